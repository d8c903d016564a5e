module github.com/go-timingwheel/timingwheel/examples

go 1.25

replace (
	github.com/go-timingwheel/timingwheel => ..
	github.com/go-timingwheel/timingwheel/jobqueue => ../jobqueue
)

require (
	github.com/go-timingwheel/timingwheel v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
