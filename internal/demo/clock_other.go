//go:build !linux

package demo

import "time"

// bootNanos is the wall clock where there is no boot clock to be had.
func bootNanos() int64 { return time.Now().UnixNano() }
