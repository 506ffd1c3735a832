package frontdoor

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// The peer gets a safe text and an id, the log the cause with the same id.
func TestFaultHidesTheCause(t *testing.T) {
	t.Parallel()
	const cause = "open /secret/place: permission denied"
	var logged bytes.Buffer
	f := &FrontDoor{log: slog.New(slog.NewJSONHandler(&logged, nil))}
	e := f.fault(errors.New(cause))
	if e.Code != -32603 {
		t.Errorf("code %d, want -32603", e.Code)
	}
	sent, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(sent), "secret") || strings.Contains(e.Message, "denied") {
		t.Errorf("the cause was told: %s", sent)
	}
	var data struct {
		Raiderfleet struct {
			ErrorID string `json:"error_id"`
		} `json:"raiderfleet"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatalf("data %s: %v", e.Data, err)
	}
	id := data.Raiderfleet.ErrorID
	if id == "" || !strings.Contains(e.Message, id) {
		t.Errorf("message %q without the id %q", e.Message, id)
	}
	var line struct {
		ErrorID string `json:"error_id"`
		Error   string `json:"error"`
	}
	if err := json.Unmarshal(logged.Bytes(), &line); err != nil {
		t.Fatalf("log %q: %v", logged.String(), err)
	}
	if line.ErrorID != id || line.Error != cause {
		t.Errorf("logged %+v, want id %q and the cause", line, id)
	}
}
