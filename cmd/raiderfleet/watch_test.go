package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/rpc"
)

// Who loses the connection is told which prompt goes on, as far as it is known.
func TestLostConnectionNamesThePrompt(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("the front door went away: %w", rpc.ErrClosed)
	w := &watch{printer: &acpclient.Printer{Out: io.Discard}}
	if err := w.lost(lost); err != lost { //nolint:errorlint // that very error
		t.Errorf("before the prompt was sent: %v", err)
	}
	w.session = "sxyz"
	if err := w.lost(lost); !errors.Is(err, rpc.ErrClosed) || !strings.Contains(err.Error(), "the prompt of session sxyz goes on") ||
		!strings.HasSuffix(err.Error(), "raiderfleet cancel sxyz") {
		t.Errorf("without an id: %v", err)
	}
	w.printer.Update(json.RawMessage(`{"sessionId":"sxyz","update":{"sessionUpdate":"session_info_update","_meta":{"raiderfleet/queue":{"prompt":"pxyz","place":1,"of":2}}}}`))
	if err := w.lost(lost); !strings.Contains(err.Error(), "prompt pxyz of session sxyz goes on") || !strings.HasSuffix(err.Error(), "raiderfleet cancel pxyz") {
		t.Errorf("with an id: %v", err)
	}
	if err := w.lost(nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
	if other := errors.New("the disk is full"); w.lost(other) != other { //nolint:errorlint // that very error
		t.Error("another error is changed")
	}
}

func TestUnknownVariableIsTold(t *testing.T) {
	t.Parallel()
	p := newHome(t, "RAIDERFLEET_ACKWAIT=2s").run("prompt", "--dev", "echo x")
	p.want(0, "x\n", "raiderfleet: warning: ", "RAIDERFLEET_ACKWAIT (did you mean RAIDERFLEET_ACK_WAIT?)")
}

func TestHelpNamesTheExitCodes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"prompt", "--help"}} {
		var out strings.Builder
		if code := execute(t.Context(), args, strings.NewReader(""), &out, io.Discard); code != exitOK {
			t.Errorf("%q ended with %d", args, code)
		}
		_, codes, _ := strings.Cut(out.String(), "Exit codes:")
		for _, code := range []int{exitOK, exitFailed, exitUsage, exitCancel} {
			if !strings.Contains(codes, fmt.Sprint(code)) {
				t.Errorf("%q says nothing of exit code %d", args, code)
			}
		}
	}
}
