package main

import (
	"context"
	"errors"
	"sync"
)

// together runs all functions until ctx ends or one of them does, and returns when all
// have ended.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() {
			defer cancel()
			err := f(ctx)
			if err != nil && errors.Is(err, ctx.Err()) {
				err = nil // it was told to end
			}
			errs[i] = err
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// orStopped drops the error of what was given up because the process is to end.
func orStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
