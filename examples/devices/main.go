// Devices switches the plugs and lamps of a house at the times of a table:
//
//	# minute hour weekday device     on/off
//	30       6    mon-fri boiler     on
//	0        22   *       lamp-hall  off
//
// The devices are TCP servers of the program's own. It plays a night and a day in
// Berlin, in which the clocks are put forward and one of the devices is off the
// network for a while, and checks at the end what each device has done.
//
// table.go (the table is a timingwheel.Scheduler) and house.go (orders, and further
// attempts where they do not get through) are what you would copy; they know nothing
// of the story and how fast it passes.
//
//	go run ./examples/devices                  28 hours in nine seconds
//	go run ./examples/devices -scale 3600      the same in 28
//	go run ./examples/devices -table house.txt check a table and list its next times
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
	_ "time/tzdata" // Berlin's clock, wherever the program runs
)

func main() {
	flags := flag.NewFlagSet("devices", flag.ExitOnError)
	scale := flags.Float64("scale", 12000, "how many seconds of the story pass in one")
	file := flags.String("table", "", "check the table in this `file`, list its times of the next week,\nand play no story")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Switches devices at the times of a table, and plays 28 hours in a house.\n\nusage: go run ./examples/devices [flags]\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 || !(*scale >= 1 && *scale <= 1e5) {
		fmt.Fprintln(os.Stderr, "devices: -scale is between 1 and 100000, and there are no arguments")
		os.Exit(2)
	}
	var err error
	if *file != "" {
		err = list(os.Stdout, *file, time.Now())
	} else {
		err = run(os.Stdout, *scale)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "devices:", err)
		os.Exit(1)
	}
}

// list prints when the table in a file switches what, in the week after now.
func list(out io.Writer, file string, now time.Time) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := parseTable(string(text))
	if err != nil {
		return fmt.Errorf("%s:\n%w", file, err)
	}
	end := now.AddDate(0, 0, 7)
	for at := t.Next(now); !at.IsZero() && !at.After(end); at = t.Next(at) {
		for _, l := range t.at(at) {
			fmt.Fprintf(out, "%s  %s %s\n", at.Format("Mon 2006-01-02 15:04 MST"), l.device, word(l.on))
		}
	}
	return nil
}
