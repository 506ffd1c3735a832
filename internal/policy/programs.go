package policy

// isShell says whether a program is a shell.
func isShell(base string) bool {
	switch base {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "yash", "ksh93", "oksh", "lksh", "bash.exe", "sh.exe":
		return true
	}
	return false
}

// runsAnother says whether a program's use is to run another one, which stands in its
// arguments. A rule that allows it would allow all of them.
func runsAnother(base string) bool {
	switch base {
	case "env", "xargs", "parallel", "command", "builtin", "exec", "noglob", "nocorrect", "repeat", "foreach", "-",
		"sudo", "doas", "su", "runuser", "pkexec", "gosu", "su-exec", "setpriv", "chroot", "unshare", "nsenter",
		"nohup", "nice", "ionice", "chrt", "taskset", "setsid", "stdbuf", "timeout", "gtimeout", "time", "watch",
		"script", "strace", "ltrace", "busybox", "toybox", "flock", "entr", "expect", "unbuffer", "rlwrap",
		"start-stop-daemon", "systemd-run", "at", "batch", "firejail", "bwrap", "dbus-run-session", "xvfb-run",
		"ssh-agent", "caffeinate", "arch", "torsocks", "proxychains", "proxychains4", "setarch", "prlimit", "linux64", "linux32",
		"fakeroot", "faketime", "valgrind", "gdb", "lldb", "perf", "hyperfine", "numactl", "cpulimit", "chpst", "softlimit", "setuidgid",
		"sg", "capsh", "tmux", "screen", "dtach", "abduco", "daemonize", "tsocks", "sshpass", "run-parts",
		"direnv", "catchsegv", "eatmydata":
		return true
	}
	return false
}

// evaluates says whether a program runs text as commands.
func evaluates(base string) bool {
	switch base {
	case "eval", "source", ".", "trap", "fc", "fish", "csh", "tcsh", "pwsh", "powershell", "cmd", "cmd.exe", "rc", "es", "nu", "elvish", "xonsh", "osh", "ysh", "posh", "sash", "zsh5":
		return true
	}
	return false
}

// changesShell says whether a command changes what later ones in the line mean: variables
// such as PATH, aliases, options. Some of them run what is in the index of a name.
func changesShell(base string) bool {
	switch base {
	case "alias", "unalias", "hash", "enable", "set", "shopt", "setopt", "unsetopt", "export", "readonly", "declare",
		"typeset", "local", "unset", "read", "mapfile", "readarray", "getopts", "let", "bind", "complete",
		"compgen", "history", "autoload", "zmodload", "emulate", "wait", "vared", "integer", "float", "nameref":
		return true
	}
	return false
}
