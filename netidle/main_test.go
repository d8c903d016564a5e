package netidle

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(serverEnv); name != "" {
		runServer(name)
	}
	goleak.VerifyTestMain(m)
}
