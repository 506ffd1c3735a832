package devfleet

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The files in the state directory of a fleet.
const (
	readyName       = "ready.json"
	leavingName     = "leaving.json" // instead of the ready file, while the fleet ends
	credentialsName = "credentials.json"
	lockName        = "lock"
	// LogName is the file that a detached fleet writes its log to.
	LogName = "dev.log"
)

// Ready says how to reach a process that serves: the content of a ready file.
type Ready struct {
	PID int `json:"pid"`
	// ID is new at every start.
	ID string `json:"id,omitempty"`
	// ACP is the host:port of the front door.
	ACP string `json:"acp,omitempty"`
	// HTTP is the host:port of the front door for HTTP and WebSocket.
	HTTP string `json:"http,omitempty"`
	// NATS is the URL of the server, without the password.
	NATS string `json:"nats,omitempty"`
	// Credentials is the file with the user and password of the NATS server.
	Credentials string `json:"credentials,omitempty"`
	StateDir    string `json:"state_dir,omitempty"`
	Fleet       string `json:"fleet,omitempty"`
	// AckWait as time.ParseDuration reads it: the same in the whole fleet.
	AckWait string   `json:"ack_wait,omitempty"`
	Raiders []Raider `json:"raiders,omitempty"`
}

// Raider is a raider that the fleet serves; the first of several is the default.
type Raider struct {
	Name            string `json:"name"`
	Description     string `json:"description,omitempty"`
	Image           bool   `json:"image,omitempty"`
	Audio           bool   `json:"audio,omitempty"`
	EmbeddedContext bool   `json:"embedded_context,omitempty"`
	Eager           bool   `json:"eager,omitempty"`
}

// Credentials are what a client of the NATS server signs in with.
type Credentials struct {
	User     string `json:"user"`
	Password string `json:"password"`
	// Port is the one that a fleet's server had last; 0 for any.
	Port int `json:"port,omitempty"`
}

// ReadCredentials reads a credentials file.
func ReadCredentials(path string) (Credentials, error) {
	var c Credentials
	if err := readJSON(path, &c); err != nil {
		return Credentials{}, fmt.Errorf("NATS credentials: %w", err)
	}
	if c.User == "" || c.Password == "" {
		return Credentials{}, fmt.Errorf("NATS credentials: %s: user and password must be given", path)
	}
	return c, nil
}

// WriteReady writes a ready file so that a reader sees all of it or nothing.
func WriteReady(path string, r Ready) error {
	if err := writeJSON(path, r); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

// ReadReady reads a ready file. fs.ErrNotExist when there is none.
func ReadReady(path string) (Ready, error) {
	var r Ready
	if err := readJSON(path, &r); err != nil {
		return Ready{}, fmt.Errorf("ready file: %w", err)
	}
	return r, nil
}

// RemoveReady removes a ready file if it is still the one of this process: one that was
// started later may have written its own.
func RemoveReady(path string, r Ready) error {
	now, err := ReadReady(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (now.PID != r.PID || now.ID != r.ID) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

func readJSON(path string, v any) error {
	body, err := os.ReadFile(path) //nolint:gosec // a path that the user or the state directory names
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON writes a file that only the user can read, in one step.
func writeJSON(path string, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	// CreateTemp makes it 0600.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(body, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func random() string {
	var b [20]byte
	// crypto/rand.Read never fails: it ends the process instead.
	_, _ = rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}
