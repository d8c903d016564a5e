// Package bench holds the benchmarks of the timing wheel beside package time:
//
//	go test -run '^$' -bench . ./bench
//
// Names follow benchstat's key=value form, so two columns of one run can be set
// against each other:
//
//	go test -run '^$' -bench StartStop -count 10 ./bench | tee new.txt
//	benchstat -col /impl new.txt
package bench
