module github.com/go-timingwheel/timingwheel

go 1.25

require (
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
