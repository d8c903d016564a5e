module github.com/go-timingwheel/timingwheel/jobqueue

go 1.25

require (
	github.com/go-timingwheel/timingwheel v0.0.0-00010101000000-000000000000
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
