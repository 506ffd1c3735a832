package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

func (a *app) waitCommand() *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use: "wait PROMPT", Short: "Wait until a prompt has ended", Args: cobra.ExactArgs(1),
		Long: `Wait until a prompt has ended and say how. Exit code 0: the turn ended as it should; 1: it
failed or was refused; 130: it was cancelled, or Ctrl-C ended the waiting; 3: how it ends can't
be learnt, because NATS is out of reach or nobody knows the prompt.`,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		l, err := a.openLook(cmd, f.dev)
		if err != nil {
			return unsure(err)
		}
		defer l.close()
		e, err := l.Wait(cmd.Context(), args[0])
		if err != nil {
			return unsure(orCancelled(cmd.Context(), err))
		}
		if f.json {
			err = writeJSON(a.stdout, e)
		} else {
			_, err = fmt.Fprintf(a.stdout, "%s %s\n", e.Prompt, e.State)
		}
		return errors.Join(err, endedCode(e))
	})
	addLookFlags(cmd, &f)
	return cmd
}

// unsure is an error that says nothing of the prompt.
func unsure(err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err // Ctrl-C
	}
	return &exitError{exitUnsure, err}
}

// endedCode is the exit code of a prompt's end, the same as that of `prompt`.
func endedCode(e admin.Ended) error {
	switch {
	case e.State == subjects.RunCancelled:
		return &exitError{code: exitCancel}
	case e.State == subjects.RunCompleted && e.StopReason == acpclient.StopEndTurn:
		return nil
	case e.State == subjects.RunCompleted:
		return &exitError{exitFailed, fmt.Errorf("the agent stopped: %s", e.StopReason)}
	case e.Error != nil:
		return &exitError{exitFailed, errors.New(e.Error.Message)}
	default:
		return &exitError{exitFailed, fmt.Errorf("the prompt is %s", e.State)}
	}
}
