//go:build unix

package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/shim"
)

// The test binary is also the shim, the adapter, the demo raider, and a command that says what it
// was given.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			syscall.Exit(shim.Main(os.Args[2:]))
		case "stream-raider":
			syscall.Exit(Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "demo":
			syscall.Exit(demo.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "argv":
			given, _ := json.Marshal(os.Args[2:])
			said, _ := json.Marshal(string(given))
			fmt.Printf(`{"version":1,"type":"run.finished","status":"completed","response":%s}`+"\n", said)
			syscall.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}
