// Command raiderfleet is every process of a fleet: `raiderfleet help` lists them.
package main

import (
	"context"
	"os"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/shim"
	"raiderfleet/internal/stream"
)

func main() { os.Exit(run()) }

func run() int {
	// First of all and without anything else: these are started for every raider.
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			return shim.Main(os.Args[2:])
		case "demo":
			return demo.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr)
		case "stream-raider":
			return stream.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr)
		}
	}
	// To the very end: a Ctrl-C that comes when all is done must not change the exit code.
	ctx, _ := untilSignal(context.Background(), os.Exit)
	return execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}
