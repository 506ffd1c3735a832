package main

import (
	"flag"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// asProgram makes the test binary the program itself: nothing to build.
const asProgram = "RAIDERFLEET_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// Raiders and their shims get a clean environment; their first word tells.
	inner := len(os.Args) > 1 && slices.Contains([]string{"shim", "demo", "stream-raider"}, os.Args[1])
	if inner || os.Getenv(asProgram) != "" {
		os.Exit(run())
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}
