package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/shim"
)

// The test binary is also the shim and the demo raider: real processes, nothing to build.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main(os.Args[2:]))
		case "echo":
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			err := answer(ctx, os.Args[2])
			stop()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "demo":
			os.Exit(demo.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}
