package worker

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"raiderfleet/internal/shim"
)

// The test binary is also the shim and the raider: what it is, its first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main(os.Args[2:]))
		case "test-raider":
			os.Exit(raiderMain(os.Args[2:]))
		case "test-worker":
			os.Exit(workerMain(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}
