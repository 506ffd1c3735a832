//go:build unix

package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
)

// asks is a script that asks one question and says the answer.
func asks(question string) string {
	return `answer=$(perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(shift) or exit; print $s shift, "\n"; $s->flush; print scalar <$s>' "$RAIDERFLEET_PERMISSION_SOCKET" '` + question + `')
printf '{"version":1,` + done + `,"response":"%s"}\n' "$(printf %s "$answer" | sed 's/"/\\"/g')"`
}

const rule = `{"id":"q1","tool":"bash","kind":"execute","input":{"command":"ls -l"},"reason":"To look.","rule":"execute(ls*)"}`

func TestPermissionOutcomes(t *testing.T) {
	t.Parallel()
	const ruleless = `{"id":7,"tool":"bash","title":"Look"}`
	replies := func(result string) func(*rpc.Request) {
		return func(r *rpc.Request) { _ = r.Reply(json.RawMessage(result)) }
	}
	for _, tc := range []struct {
		name, question string
		answer         func(*rpc.Request)
		want           string
	}{
		{"allow once", rule, selects("allow_once"), `{"id":"q1","decision":"allow_once"}`},
		{"allow always", rule, selects("allow_always"), `{"id":"q1","decision":"allow_always","rule":"execute(ls*)"}`},
		{"allow once without a rule", ruleless, selects("allow_once"), `{"id":7,"decision":"allow_once"}`},
		{"allow always without a rule", ruleless, selects("allow_always"), `{"id":7,"decision":"reject_once","reason":"the answer was none of the options"}`},
		{"reject once", rule, selects("reject_once"), `{"id":"q1","decision":"reject_once","reason":"rejected"}`},
		{"reject always", rule, selects("reject_always"), `{"id":"q1","decision":"reject_once","reason":"the answer was none of the options"}`},
		{"reject once with a reason", rule, replies(`{"outcome":{"outcome":"selected","optionId":"reject_once"},"_meta":{"raiderfleet/reason":"forbidden"}}`), `{"id":"q1","decision":"reject_once","reason":"forbidden"}`},
		{"cancelled with a reason", rule, replies(`{"outcome":{"outcome":"cancelled"},"_meta":{"raiderfleet/reason":"too late"}}`), `{"id":"q1","decision":"reject_once","reason":"too late"}`},
		{"unknown option", rule, selects("allow_everything"), `{"id":"q1","decision":"reject_once","reason":"the answer was none of the options"}`},
		{"no option", rule, replies(`{"outcome":{"outcome":"selected"}}`), `{"id":"q1","decision":"reject_once","reason":"the answer was none of the options"}`},
		{"cancelled", rule, replies(`{"outcome":{"outcome":"cancelled"}}`), `{"id":"q1","decision":"reject_once","reason":"cancelled"}`},
		{"cancelled with an option", rule, replies(`{"outcome":{"outcome":"cancelled","optionId":"allow_once"}}`), `{"id":"q1","decision":"reject_once","reason":"cancelled"}`},
		{"unknown outcome", rule, replies(`{"outcome":{"outcome":"maybe","optionId":"allow_once"}}`), `{"id":"q1","decision":"reject_once","reason":"the answer could not be read"}`},
		{"empty result", rule, replies(`{}`), `{"id":"q1","decision":"reject_once","reason":"the answer could not be read"}`},
		{"result of another type", rule, replies(`"allow_once"`), `{"id":"q1","decision":"reject_once","reason":"the answer could not be read"}`},
		{"null", rule, replies(`null`), `{"id":"q1","decision":"reject_once","reason":"the answer could not be read"}`},
		{"error", rule, func(r *rpc.Request) { _ = r.ReplyError(&rpc.Error{Code: -32601, Message: "no such method"}) }, `{"id":"q1","decision":"reject_once","reason":"nobody could be asked: no such method"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, shell(), tc.answer)
			how, notes := c.prompt(c.open("/"), asks(tc.question))
			if how != "end_turn" || spoken(notes) != tc.want {
				t.Fatalf("%s, %s; stderr %s", how, spoken(notes), c.stderr)
			}
			if tc.name == "allow once" {
				checkRequest(t, <-c.asked)
			}
		})
	}
}

func checkRequest(t *testing.T, params json.RawMessage) {
	t.Helper()
	var p map[string]json.RawMessage
	if err := json.Unmarshal(params, &p); err != nil {
		t.Fatal(err)
	}
	call := string(p["toolCall"])
	_, rest, _ := strings.Cut(call, "/")
	if want := `ask-1","title":"ls -l","kind":"execute","status":"pending","content":[{"type":"content","content":{"type":"text","text":"To look."}}],"rawInput":{"command":"ls -l"}}`; rest != want {
		t.Errorf("toolCall %s", call)
	}
	if want := `[{"optionId":"allow_once","name":"Allow once","kind":"allow_once"},{"optionId":"allow_always","name":"Allow for this session: execute(ls*)","kind":"allow_always"},{"optionId":"reject_once","name":"Reject","kind":"reject_once"}]`; string(p["options"]) != want {
		t.Errorf("options %s", p["options"])
	}
}

// The end of the worker's connection, and of the turn, refuse what is open.
func TestOpenQuestionsAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t, demoRaider(t), nil)
	session := c.open("/")
	ended := c.begin(session, "ask Me")
	wait(t, c.asked)
	c.cancel(session)
	if how := wait(t, ended); how != "cancelled" {
		t.Fatal(how)
	}

	ended = c.begin(session, "ask Me again")
	wait(t, c.asked)
	_ = c.near.Close()
	wait(t, ended)
	wait(t, c.exit)
	c.exit <- 0 // for the cleanup
}

// socket opens the permission socket of a run without one.
func socket(t *testing.T, ask asker) *permissionSocket {
	t.Helper()
	s, err := openSocket(t.Context(), slog.New(slog.DiscardHandler), ask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func dial(t *testing.T, s *permissionSocket) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSocketIsPrivate(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("long", 30)))
	if err := os.MkdirAll(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	s := socket(t, func(context.Context, question) decision { return decision{} })
	if len(s.path) > maxSocketPath {
		t.Errorf("path of %d bytes", len(s.path))
	}
	for path, want := range map[string]os.FileMode{s.dir: 0o700 | os.ModeDir, s.path: 0o600 | os.ModeSocket} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
	s.close()
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// Answers come as they are decided, each with its question's id.
func TestConcurrentQuestions(t *testing.T) {
	t.Parallel()
	decide := map[string]chan bool{}
	for i := range 10 {
		decide[fmt.Sprint(i)] = make(chan bool)
	}
	s := socket(t, func(ctx context.Context, q question) decision {
		select {
		case <-decide[string(q.ID)]:
			return decision{ID: q.ID, Decision: allowOnce}
		case <-ctx.Done():
			return refusal(q.ID, "cancelled")
		}
	})
	c := dial(t, s)
	for i := range 10 {
		if _, err := fmt.Fprintf(c, `{"id":%d,"tool":"t"}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	in := bufio.NewReader(c)
	for _, i := range []int{7, 0, 9, 3, 5, 1, 8, 2, 6, 4} {
		decide[fmt.Sprint(i)] <- true
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf(`{"id":%d,"decision":"allow_once"}`+"\n", i); err != nil || line != want {
			t.Fatalf("got %s, %v", line, err)
		}
	}
}

func TestBrokenQuestionsAreRefused(t *testing.T) {
	t.Parallel()
	s := socket(t, func(_ context.Context, q question) decision {
		return decision{ID: q.ID, Decision: allowOnce}
	})
	for _, tc := range []struct{ line, want string }{
		{`hello`, `{"id":null,"decision":"reject_once","reason":"the line is no JSON object"}`},
		{``, `{"id":null,"decision":"reject_once","reason":"the line is no JSON object"}`},
		{`[]`, `{"id":null,"decision":"reject_once","reason":"the line is no JSON object"}`},
		{`{"tool":"x"}`, `{"id":null,"decision":"reject_once","reason":"the question has no id (a string or a number)"}`},
		{`{"id":null,"tool":"x"}`, `{"id":null,"decision":"reject_once","reason":"the question has no id (a string or a number)"}`},
		{`{"id":{"a":1},"tool":"x"}`, `{"id":null,"decision":"reject_once","reason":"the question has no id (a string or a number)"}`},
		{`{"id":"a"}`, `{"id":"a","decision":"reject_once","reason":"the question names no tool"}`},
		{`{"id":12,"tool":["x"]}`, `{"id":12,"decision":"reject_once","reason":"a field of the question is of the wrong type"}`},
		{`{"id":12,"tool":"x","reason":5}`, `{"id":12,"decision":"reject_once","reason":"a field of the question is of the wrong type"}`},
		{`{"id":"a","tool":"` + strings.Repeat("x", maxQuestionBytes) + `"}`, `{"id":null,"decision":"reject_once","reason":"the line is too long"}`},
		{`{"id":-1.50,"tool":"x","unknown":{}}`, `{"id":-1.50,"decision":"allow_once"}`},
	} {
		c := dial(t, s)
		if _, err := io.WriteString(c, tc.line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || strings.TrimSpace(got) != tc.want {
			t.Errorf("%.80s: got %s, %v", tc.line, got, err)
		}
	}
}

// One that has said all and waits is answered; one that has gone is not waited for.
func TestHalfClosedAndClosed(t *testing.T) {
	t.Parallel()
	asked, decide, withdrawn := make(chan string, 2), make(chan bool), make(chan string, 2)
	s := socket(t, func(ctx context.Context, q question) decision {
		asked <- string(q.ID)
		select {
		case <-decide:
			return decision{ID: q.ID, Decision: allowOnce}
		case <-ctx.Done():
			withdrawn <- string(q.ID)
			return refusal(q.ID, "cancelled")
		}
	})
	half := dial(t, s)
	_, _ = io.WriteString(half, `{"id":1,"tool":"x"}`) // its end is the end of the line
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wait(t, asked)
	whole := dial(t, s)
	_, _ = io.WriteString(whole, `{"id":2,"tool":"x"}`+"\n")
	wait(t, asked)
	_ = whole.Close()
	if id := wait(t, withdrawn); id != "2" {
		t.Fatalf("question %s was withdrawn", id)
	}
	decide <- true
	if got, err := io.ReadAll(half); err != nil || string(got) != `{"id":1,"decision":"allow_once"}`+"\n" {
		t.Fatalf("got %s, %v", got, err)
	}
}

// A place is free again when its question is decided.
func TestManyQuestionsOneByOne(t *testing.T) {
	t.Parallel()
	s := socket(t, func(_ context.Context, q question) decision { return decision{ID: q.ID, Decision: allowOnce} })
	c := dial(t, s)
	in := bufio.NewReader(c)
	for i := range 2 * maxQuestions {
		_, _ = fmt.Fprintf(c, `{"id":%d,"tool":"x"}`+"\n", i)
		if got, err := in.ReadString('\n'); err != nil || got != fmt.Sprintf(`{"id":%d,"decision":"allow_once"}`+"\n", i) {
			t.Fatalf("got %s, %v", got, err)
		}
	}
}

func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	s := socket(t, func(ctx context.Context, q question) decision {
		<-ctx.Done()
		return refusal(q.ID, "cancelled")
	})
	c := dial(t, s)
	for i := range maxQuestions + 1 {
		_, _ = fmt.Fprintf(c, `{"id":%d,"tool":"x"}`+"\n", i)
	}
	in := bufio.NewReader(c)
	if got, err := in.ReadString('\n'); err != nil || got != `{"id":64,"decision":"reject_once","reason":"too many questions are open"}`+"\n" {
		t.Fatalf("got %s, %v", got, err)
	}
	for range maxConnections {
		dial(t, s)
	}
	over := dial(t, s)
	if _, err := over.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("one connection too many: %v", err)
	}
	// The end of the run refuses what is open, if the asker still listens or not.
	s.close()
	_, _ = io.Copy(io.Discard, in)
}

func TestShellRaider(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../examples/shell-raider/raider.sh")
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"allow_once":  "say \"hi\"\nand \\ bye",
		"reject_once": "That is not allowed.",
		"none":        "That is not allowed.",
	} {
		c := start(t, Config{Command: []string{script, "{prompt}"}}, selects(option))
		how, notes := c.prompt(c.open("/"), "echo 'say \"hi\"'\nprintf '%s\\n' 'and \\ bye'")
		if how != "end_turn" || spoken(notes) != want {
			t.Errorf("%s: %s, %q; stderr %s", option, how, spoken(notes), c.stderr)
		}
		var p struct {
			ToolCall struct {
				RawInput struct {
					Command string `json:"command"`
				} `json:"rawInput"`
			} `json:"toolCall"`
		}
		if err := json.Unmarshal(<-c.asked, &p); err != nil || p.ToolCall.RawInput.Command != "echo 'say \"hi\"'\nprintf '%s\\n' 'and \\ bye'" {
			t.Errorf("asked for %q, %v", p.ToolCall.RawInput.Command, err)
		}
	}
}
