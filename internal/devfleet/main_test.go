package devfleet

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"raiderfleet/internal/shim"
)

// The test binary is also the shim, and a detached process that says what it is told to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main(os.Args[2:]))
		case "say":
			NewAnnouncer().say(os.Args[2])
			os.Exit(0)
		case "running":
			NewAnnouncer().Failed(fmt.Errorf("it: %w", ErrRunning))
			os.Exit(1)
		case "silent":
			os.Exit(1)
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}
