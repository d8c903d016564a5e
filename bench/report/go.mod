module github.com/go-timingwheel/timingwheel/bench/report

go 1.25

replace github.com/go-timingwheel/timingwheel => ../..

require (
	github.com/dubbogo/gost v1.11.16
	github.com/go-timingwheel/timingwheel v0.0.0-00010101000000-000000000000
	github.com/siddontang/go v0.0.0-20180604090527-bdc77568d726
	github.com/stretchr/testify v1.12.1
	github.com/zeromicro/go-zero v1.10.3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	go.opentelemetry.io/otel v1.40.0 // indirect
	go.opentelemetry.io/otel/trace v1.40.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/automaxprocs v1.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.41.0 // indirect
)

// gost's timer package needs none of these, but its go.mod predates the pruning
// of module graphs: without the exclusions they add 570 lines to go.sum and 230
// modules to every go command in the workspace.
exclude (
	github.com/dubbogo/go-zookeeper v1.0.3
	github.com/nacos-group/nacos-sdk-go v1.0.8
	github.com/prometheus/client_golang v1.9.0
	github.com/tmc/grpc-websocket-proxy v0.0.0-20201229170055-e5319fda7802
	go.etcd.io/etcd/api/v3 v3.5.0-alpha.0
	go.etcd.io/etcd/client/v3 v3.5.0-alpha.0
	go.etcd.io/etcd/server/v3 v3.5.0-alpha.0
	google.golang.org/genproto v0.0.0-20200806141610-86f49bd18e98
	google.golang.org/grpc v1.36.0
)
