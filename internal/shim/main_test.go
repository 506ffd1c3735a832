//go:build unix

package shim_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raiderfleet/internal/shim"
)

// The test binary is also the shim, the raiders, and a worker that can be killed.
// They end with syscall.Exit: os.Exit takes a second under the race detector.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			syscall.Exit(shim.Main(os.Args[2:]))
		case "raider":
			syscall.Exit(raider(os.Args[2], os.Args[3:]))
		case "worker":
			syscall.Exit(worker(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

func self(args ...string) []string { return append([]string{os.Args[0]}, args...) }

// raider is what the tests start. Each prints a line when it is ready.
func raider(mode string, args []string) int {
	switch mode {
	case "cat":
		fmt.Println("ready")
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "env":
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	case "fds":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup") {
				fmt.Println(e.Name(), to)
			}
		}
	case "blocking":
		for fd := range 3 {
			flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
			fmt.Println(fd, flags&syscall.O_NONBLOCK != 0)
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		<-time.After(time.Hour)
	case "sleep":
		fmt.Println("ready")
		<-time.After(time.Hour)
	case "interrupted":
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGINT)
		fmt.Println("ready")
		<-ch
		fmt.Println("interrupted")
	case "stdio":
		_, _ = fmt.Fprintln(os.Stderr, "to stderr")
		fmt.Println("to stdout")
	case "dir":
		d, _ := os.Getwd()
		fmt.Println(d)
	// A tree: a child, and a grandchild in a session of its own whose parent has ended.
	case "tree":
		child := start(self("raider", "quiet"), false)
		double := exec.Command(os.Args[0], "raider", "daemon", args[0])
		double.Stderr = os.Stderr
		out, _ := double.Output()
		fmt.Printf("%d %d %s", os.Getpid(), child, out)
		if len(args) > 1 && args[1] == "end" {
			return 0
		}
		<-time.After(time.Hour)
	case "daemon":
		fmt.Println(start(self("raider", "quiet"), args[0] == "holding"))
	case "quiet":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		<-time.After(time.Hour)
	case "bomb":
		bomb(args[0])
	}
	return 0
}

// start starts a process in a session of its own; holding gives it our stderr.
func start(argv []string, holding bool) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if holding {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}

// bomb starts a successor in a session of its own and ends, again and again.
func bomb(mark string) {
	if mark == "first" {
		fmt.Println("ready")
		for range 4 {
			start(self("raider", "bomb", "next"), false)
		}
		<-time.After(time.Hour)
	}
	start(self("raider", "bomb", "next"), false)
}

// worker starts a raider that is a tree, says its pids, and then moves its deadline for
// ever: args are the time to the deadline and the raider's arguments.
func worker(args []string) int {
	left, err := time.ParseDuration(args[0])
	if err != nil {
		return 2
	}
	p, err := shim.Start(background(), shim.Spec{
		Exe: self("shim"), Command: self(append([]string{"raider"}, args[1:]...)...), Deadline: shim.After(left),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	line, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
	fmt.Printf("%d %s", os.Getpid(), line)
	for {
		<-time.After(left / 10)
		if p.SetDeadline(shim.After(left)) != nil {
			return 0
		}
	}
}
