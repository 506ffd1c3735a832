package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) asksCommand() *cobra.Command {
	return a.inspect("asks", "List the permission requests that wait for an answer", cobra.NoArgs,
		func(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
			asks, err := f.Asks(ctx)
			return answer{asks, func() error { return admin.WriteAsks(a.stdout, asks, time.Now()) }}, err
		})
}

func (a *app) answerCommand() *cobra.Command {
	cmd := a.inspect("answer ASK OPTION|allow|reject", "Answer a permission request", cobra.ExactArgs(2),
		func(ctx context.Context, f *admin.Fleet, args []string) (answer, error) {
			done, err := f.Answer(ctx, args[0], args[1])
			return answer{done, func() error { return admin.WriteAnswered(a.stdout, done) }}, err
		})
	cmd.Long = `Answer a permission request with one of its options: by the option's id, by its kind
(allow_once, allow_always, reject_once, reject_always), or with allow or reject, which
prefer the option for this once. The first valid answer decides, whoever gives it.`
	return cmd
}
