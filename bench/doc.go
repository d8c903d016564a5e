// Package bench holds the benchmarks of the timing wheel. It exports nothing.
//
//	go test -run '^$' -bench . ./bench
//
// measures the wheel beside package time and beside the floor, the least work that a thread-safe
// timer must do. It takes a few minutes. With -short the sizes are smaller; -pending 10000000, at
// the end of the command, makes them larger. The names have the key=value form of benchstat, so one
// run can be compared with another, or two implementations within one run:
//
//	go test -run '^$' -bench StartStop -count 10 ./bench | tee new.txt
//	go tool benchstat -col /impl new.txt
//
// The workloads are in bench/internal/workload. bench/report, a module of its own, runs them on
// other libraries as well and writes tables and charts to bench/results.
package bench
