package story

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

var anonymous = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

func init() {
	Memory = func() string {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err.Error()
		}
		found := anonymous.FindSubmatch(status)
		if found == nil {
			return "unknown"
		}
		kB, _ := strconv.Atoi(string(found[1]))
		return fmt.Sprintf("%d MB", (kB+1023)/1024)
	}
}
