package config_test

import (
	"slices"
	"testing"

	"raiderfleet/config"
)

func TestUnknownVariablesAreTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		environ []string
		want    []string
	}{
		{nil, nil},
		{[]string{"PATH=/bin", "RAIDERFLEET_ACK_WAIT=5s", "RAIDERFLEET_NATS_USER=u", "RAIDERFLEET_DEMO_STATE=/x", "RAIDERFLEET_RAIDER_BIN=/x", "RAIDERFLEET_PERMISSION_SOCKET=/x", "RAIDER=1"}, nil},
		{
			[]string{"RAIDERFLEET_WORKER_CAPACTIY=4", "RAIDERFLEET_MAX_BACKLOG=4", "RAIDERFLEET_ACKWAIT=secret", "RAIDERFLEET_XYZZY_PLUGH="},
			[]string{"nothing reads these variables: RAIDERFLEET_ACKWAIT (did you mean RAIDERFLEET_ACK_WAIT?), " +
				"RAIDERFLEET_WORKER_CAPACTIY (did you mean RAIDERFLEET_WORKER_CAPACITY?), RAIDERFLEET_XYZZY_PLUGH"},
		},
	} {
		c, err := config.Load(config.Options{Env: func(name string) (string, bool) {
			if name == "HOME" {
				return t.TempDir(), true
			}
			return "", false
		}, Dir: t.TempDir(), Environ: tc.environ})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Warnings(); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.environ, got, tc.want)
		}
	}
}
