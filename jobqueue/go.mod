module github.com/go-timingwheel/timingwheel/jobqueue

go 1.25
