package bus

import (
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go/micro"
)

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+`)

// Announce makes the process answer as a NATS micro service without endpoints, so that
// `nats micro ls` shows the fleet. The fleet itself doesn't look at it. Call stop before
// the connection is closed.
func (b *Bus) Announce(name, version, description string, metadata map[string]string) (stop func(), err error) {
	if !semver.MatchString(version) {
		version = "0.0.0" // the service API takes nothing else
	}
	s, err := micro.AddService(b.nc, micro.Config{Name: name, Version: version, Description: description, Metadata: metadata})
	if err != nil {
		return nil, fmt.Errorf("announce %s: %w", name, err)
	}
	return func() {
		if err := s.Stop(); err != nil {
			b.log.Debug("micro service not stopped", "error", err)
		}
	}, nil
}
