package conformance

import (
	"context"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/shim"
	"raiderfleet/internal/stream"
)

// The test binary is also the shim and the demo raider: real processes, nothing to build.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main(os.Args[2:]))
		case "picture-agent":
			os.Exit(pictureAgent())
		case "demo":
			os.Exit(demo.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "stream-raider":
			os.Exit(stream.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}
