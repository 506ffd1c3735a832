//go:build !unix

package demo

import (
	"context"
	"errors"
)

func fork(context.Context) (string, error) {
	return "", errors.New("fork is not supported on this system")
}
