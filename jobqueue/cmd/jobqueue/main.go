// Command jobqueue looks at the jobs of a job queue and changes them: in a directory that no
// process has open, or through the page of a running process.
//
//	jobqueue stats -url http://localhost:6060/jobs/
//	jobqueue dead orders/expire -file orders.db
//	jobqueue requeue orders/expire -all -file orders.db
//
// The command in jobqueue/redisstore/cmd/jobqueue does the same, and opens stores in Redis too.
//
// Tables are at most 80 columns wide and have no colours. With -json it prints the JSON of the
// page, an object on a line. The exit status is 0 if all was done, 1 if something failed, and 2 if
// the command line makes no sense. jobqueue -h lists the commands, and jobqueue COMMAND -h explains
// one.
package main

import "github.com/go-timingwheel/timingwheel/jobqueue/internal/command"

func main() { command.Main(nil) }
