module github.com/go-timingwheel/timingwheel/jobqueue/redisstore

go 1.25

require (
	github.com/go-timingwheel/timingwheel v0.0.0-00010101000000-000000000000
	github.com/go-timingwheel/timingwheel/jobqueue v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
