//go:build unix && !linux

package stream

import "syscall"

// running says whether a process is there.
func running(pid int) bool { return syscall.Kill(pid, 0) == nil }
