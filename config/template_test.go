package config_test

import (
	"regexp"
	"strings"
	"testing"

	"raiderfleet/config"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	text := config.Template()
	if c := mustLoad(t, text, nil, nil); len(c.Raiders) != 1 || c.Raiders[0].Kind != config.KindDemo {
		t.Errorf("as it is: %+v", c.Raiders)
	}
	// With every '#' taken off, all keys are there and good, and still mean the default
	// where there is one.
	all := regexp.MustCompile(`(?m)^#((?:  )*[a-z_]+:)`).ReplaceAllString(text, "$1")
	all = regexp.MustCompile(`(?m)^  #(- |  )`).ReplaceAllString(all, "  $1")
	c := mustLoad(t, all, nil, nil)
	for _, k := range config.Keys() {
		if k.Env != "" && c.Origin(k.Path).Source != config.SourceFile {
			t.Errorf("%s isn't in\n%s", k.Path, all)
		}
	}
	if got := strings.Join(c.RaiderNames(), " "); got != "demo bjorn lagertha freya" {
		t.Errorf("raiders %q", got)
	}
	if r := c.Raiders[2]; !r.HallOwn() {
		t.Errorf("%+v", r)
	}
	plain := mustLoad(t, "fleet: default\n", nil, nil)
	if c.AckWait != plain.AckWait || c.OnDisconnect != plain.OnDisconnect || c.FrontDoor != plain.FrontDoor || c.Logs != plain.Logs {
		t.Errorf("%+v", c)
	}
}
