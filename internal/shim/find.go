//go:build unix

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// find returns the path of the command's executable, checked here because the kernel
// says the same ENOENT for a missing command, directory and interpreter.
func find(s Spec) (string, error) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return "", errors.New("no command")
	}
	if s.Dir != "" {
		info, err := os.Stat(s.Dir)
		if err != nil {
			return "", fmt.Errorf("directory %s: %w", s.Dir, cause(err))
		}
		if !info.IsDir() {
			return "", fmt.Errorf("directory %s: not a directory", s.Dir)
		}
	}
	name := s.Command[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(s.Dir, name)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("command %s: %w", name, err)
		}
		if !filepath.IsAbs(name) && s.Dir != "" {
			return name, nil // it counts from Dir, where the shim goes first
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(searchPath(s.Env)) {
		if !filepath.IsAbs(dir) {
			continue // a program in the working directory is not meant
		}
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("command %s: not found in PATH", name)
}

func searchPath(env []string) string {
	for _, e := range slices.Backward(env) { // the last one counts
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return os.Getenv("PATH")
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return cause(err)
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("is not executable")
	}
	return nil
}

// cause leaves out the path, which the caller says.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
