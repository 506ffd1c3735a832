//go:build unix

package demo

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// fork starts a process that leaves this one's session and loses its parent at
// once, as a daemon does, and lives on for an hour. It gives the pid.
func fork(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 3600 </dev/null >/dev/null 2>&1 & echo $!")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pid, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("starting a child: %w", err)
	}
	return strings.TrimSpace(string(pid)), nil
}
