package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// Nobody signs in, so a port that is published for other hosts would give them a shell;
// and what a container runs must be commands that there are.
func TestCompose(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image   string   `yaml:"image"`
			Command []string `yaml:"command"`
			Ports   []string `yaml:"ports"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	parts := map[string]int{}
	for name, s := range file.Services {
		if s.Image != "raiderfleet:local" || len(s.Command) == 0 {
			t.Errorf("%s: image %q, command %q", name, s.Image, s.Command)
			continue
		}
		parts[s.Command[0]]++
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s", name, p)
			}
		}
	}
	if parts["nats"] != 1 || parts["frontdoor"] != 1 || parts["worker"] != 2 || len(parts) != 3 {
		t.Errorf("parts: %v", parts)
	}
}
