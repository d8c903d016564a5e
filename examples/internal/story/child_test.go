package story

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain also is the child of TestChild.
func TestMain(m *testing.M) {
	if os.Getenv(childMark) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	Program{Child: func(ctx context.Context, args []string) error {
		fmt.Println("hello", strings.Join(args, " "))
		<-ctx.Done()
		fmt.Println("bye") // a killed one does not come here
		return nil
	}}.Main()
}

func TestChild(t *testing.T) {
	c := Start("a", "b")
	require.Equal(t, "hello a b", c.Said())
	c.End()
	require.True(t, c.cmd.ProcessState.Success())

	c = Start("c")
	require.Equal(t, "hello c", c.Said())
	c.Kill()
	require.False(t, c.cmd.ProcessState.Success())
}
