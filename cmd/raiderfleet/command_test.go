package main

import (
	"slices"
	"testing"
)

func TestRelativeCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file          string
		command, want []string
	}{
		{"/etc/fleet/fleet.yml", []string{"./agent", "./x"}, []string{"/etc/fleet/agent", "./x"}},
		{"/etc/fleet/fleet.yml", []string{"bin/agent"}, []string{"/etc/fleet/bin/agent"}},
		{"/etc/fleet/fleet.yml", []string{"agent"}, []string{"agent"}},
		{"/etc/fleet/fleet.yml", []string{"/opt/agent"}, []string{"/opt/agent"}},
		{"", []string{"./agent"}, []string{"./agent"}},
		{"/etc/fleet/fleet.yml", nil, nil},
	} {
		if got := fromFile(tt.file, tt.command); !slices.Equal(got, tt.want) {
			t.Errorf("%q in %q: %q, want %q", tt.command, tt.file, got, tt.want)
		}
	}
}
