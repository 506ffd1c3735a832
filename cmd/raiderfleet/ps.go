package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) psCommand() *cobra.Command {
	return a.inspect("ps", "List the sessions that workers hold", cobra.NoArgs, a.runPS)
}

func (a *app) runPS(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
	lanes, silent, err := f.Lanes(ctx)
	if err != nil {
		return answer{}, err
	}
	for _, w := range silent {
		_, _ = fmt.Fprintf(a.stderr, "raiderfleet: worker %s does not answer\n", w)
	}
	return answer{lanes, func() error { return admin.WriteLanes(a.stdout, lanes, time.Now()) }}, nil
}
