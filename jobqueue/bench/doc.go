// Package bench measures the job queue on the embedded store and on Redis, beside what the disk
// alone takes and beside other job queues. It is a module of its own, so that programs that use the
// job queue do not get the requirements of the others. In this folder:
//
//	go test -run '^$' -bench EmbeddedAdd -benchtime 200000x .
//	go test -run '^$' -bench EmbeddedPending -benchtime 200000x .   # alone: it measures memory
//	go test -run '^$' -bench EmbeddedChurn -benchtime 10000000x -timeout 1h .
//	go test -run '^$' -bench '^Benchmark(Lateness|Idle)' -benchtime 1x .
//	go test -run '^$' -bench Redis -benchtime 1x .   # needs redis-server; ten minutes
package bench
