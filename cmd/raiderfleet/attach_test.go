package main

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/admin"
	"raiderfleet/internal/natstest"
)

// openAsk waits until one ask is open and returns it.
func (f *fleet) openAsk() admin.Ask {
	f.t.Helper()
	var open []admin.Ask
	poll(f.t, "an open ask", func() bool {
		open = decode[[]admin.Ask](f.t, f.run("asks", "--json"))
		return len(open) == 1
	})
	return open[0]
}

// An ask of a spawned run is answered from another process. Who is attached without a
// terminal leaves it open.
func TestAskAndAnswer(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	s := decode[spawned](t, f.run("spawn", "--json", "ask Delete everything"))
	watch := f.start("attach", "--json", string(s.Session))
	ask := f.openAsk()
	if ask.Prompt != s.Prompt || ask.Session != s.Session || ask.Title != "Delete everything" || ask.Kind != "execute" || len(ask.Options) != 3 || ask.Deadline.IsZero() {
		t.Errorf("the ask is %+v", ask)
	}
	if table := f.run("asks"); !strings.Contains(table.stdout.String(), "Delete everything") {
		t.Errorf("asks said\n%s", table.stdout)
	}
	id := string(ask.Ask)
	f.run("answer", id, "perhaps").want(1, "", `option "perhaps" was not offered; there are: allow_once (allow_once)`)
	f.run("answer", id, "reject").want(0, id+" answered reject_once\n")
	f.run("wait", string(s.Prompt)).want(0, string(s.Prompt)+" completed\n")
	f.run("answer", id, "allow").want(1, "", "decided already")
	watch.says(watch.stdout, "rejected")
	f.run("asks").want(0, "nothing is asked\n")
	allowed := decode[spawned](t, f.run("spawn", "--json", "--session", string(s.Session), "ask"))
	done := decode[admin.Answered](t, f.run("answer", "--json", string(f.openAsk().Ask), "allow"))
	if done.Prompt != allowed.Prompt || done.Kind != "allow_once" {
		t.Errorf("answer said %+v", done)
	}
	watch.says(watch.stdout, "allowed once")
	watch.signal(syscall.SIGINT)
	if code := watch.wait(); code != 0 {
		t.Errorf("attach ended with %d; stderr:\n%s", code, watch.stderr)
	}
}

func (p *process) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, text); err != nil {
		p.t.Fatal(err)
	}
}

// Two are attached: one that only looks, one that talks.
func TestAttach(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	s := decode[spawned](t, f.run("spawn", "--json", "echo first"))
	session := string(s.Session)
	f.run("wait", string(s.Prompt))
	f.run("attach", "--no-follow", session).want(0, "> echo first\nfirst\n")
	look, talk := f.start("attach", session), f.start("attach", "--interactive", session)
	look.says(look.stdout, "> echo first\nfirst")
	talk.says(talk.stdout, "> echo first\nfirst")
	talk.types("echo second\n")
	talk.says(talk.stdout, "second\n")
	look.says(look.stdout, "> echo second\nsecond")
	// A line answers the question that is open.
	talk.types("ask\n")
	talk.says(talk.stderr, "Number: ")
	talk.types("1\n")
	talk.says(talk.stdout, "allowed once\n")
	talk.types("fail no luck\n")
	talk.says(talk.stderr, "raiderfleet: no luck\n")
	// Ctrl-C cancels the turn, and not only the first.
	for range 2 {
		before := strings.Count(talk.stderr.String(), "the agent stopped: cancelled")
		running := strings.Count(look.stdout.String(), "1s\n")
		talk.types("sleep 1000\n")
		look.poll("the turn", func() bool { return strings.Count(look.stdout.String(), "1s\n") > running })
		talk.signal(syscall.SIGINT)
		talk.poll("its end", func() bool {
			return strings.Count(talk.stderr.String(), "the agent stopped: cancelled") > before
		})
	}
	// The end of what is piped in lets what was sent end first.
	talk.types("echo last\n")
	if err := talk.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := talk.wait(); code != 0 || !strings.HasSuffix(talk.stdout.String(), "last\n") {
		t.Errorf("it ended with %d and said\n%s\nstderr:\n%s", code, talk.stdout, talk.stderr)
	}
	look.says(look.stdout, "> echo last\nlast")
	look.signal(syscall.SIGINT)
	if code := look.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	idle := f.start("attach", "-i", session)
	idle.says(idle.stdout, "last")
	poll(t, "its end by Ctrl-C", func() bool {
		select {
		case <-idle.ended:
			return true
		default:
			_ = idle.cmd.Process.Signal(syscall.SIGINT) // it may just have ended
			return false
		}
	})
	if idle.code != 130 {
		t.Errorf("it ended with %d", idle.code)
	}
}

// Whose stdin has ended answers nothing of a turn that others have started, and refuses what
// their own turn asks.
func TestAnswersWithoutInput(t *testing.T) {
	t.Parallel()
	request := acpclient.PermissionRequest{}
	for _, own := range []bool{true, false} {
		c := &talk{app: &app{stderr: io.Discard}, running: own}
		ask := c.answers()
		if err := c.answer.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan string, 1)
		go func() { answered <- ask(ctx, request) }()
		if own {
			if got := <-answered; got != "" {
				t.Errorf("answered %q", got)
			}
			cancel()
			continue
		}
		natstest.Stays(t, 200*time.Millisecond, "nothing is answered", func() (bool, any) { return len(answered) == 0, "answered" })
		cancel()
		<-answered
	}
}
