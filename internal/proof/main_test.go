package proof

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// The test binary is every process of the fleet: what it is, its first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main(os.Args[2:]))
		case "proof-raider":
			os.Exit(raiderMain(os.Args[2:]))
		case "proof-worker":
			os.Exit(workerMain(os.Args[2:]))
		case "proof-door":
			os.Exit(doorMain(os.Args[2:]))
		case "proof-server":
			os.Exit(serverMain(os.Args[2:]))
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// raiderSpec is a raider of the fleet. Which one loses its runs with the worker, and which
// runs them again, is all that tells them apart.
type raiderSpec struct {
	name     subjects.Raider
	attempts int
}

func raiders() []raiderSpec { return []raiderSpec{{"bjorn", 1}, {"astrid", 3}} }

// workerSpec is a worker process's configuration, as JSON in its argument.
type workerSpec struct {
	Name     string        `json:"name"`
	StateDir string        `json:"state_dir"`
	URL      string        `json:"url"`
	Journal  string        `json:"journal"`
	Capacity int           `json:"capacity"`
	MaxWarm  int           `json:"max_warm"`
	Replicas int           `json:"replicas"`
	AckWait  time.Duration `json:"ack_wait"`
}

func layout(replicas int) subjects.Layout {
	return subjects.Layout{Fleet: "proof", Replicas: replicas, MaxBacklog: 100000}
}

func workerMain(args []string) int {
	var spec workerSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	for ctx.Err() == nil {
		b, err := bus.Connect(ctx, bus.Options{URLs: []string{spec.URL}, Name: spec.Name, Layout: layout(spec.Replicas), AckWait: spec.AckWait, Logger: log})
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		err = serve(ctx, b, spec, log)
		b.Close()
		if err == nil {
			return 0
		}
		log.Warn("worker process tries again", "error", err)
		pause(ctx, 100*time.Millisecond)
	}
	return 0
}

func serve(ctx context.Context, b *bus.Bus, spec workerSpec, log *slog.Logger) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := worker.Config{
		Name: spec.Name, StateDir: spec.StateDir, Capacity: spec.Capacity, MaxWarm: spec.MaxWarm,
		Exe: []string{exe, "shim"}, CancelGrace: time.Second, IdleTTL: time.Second, DrainTimeout: 10 * time.Second, Logger: log,
	}
	for _, known := range raiders() {
		r := worker.Raider{Name: known.name, Command: []string{exe, "proof-raider", spec.Journal}, PassEnv: []string{"GORACE"}}
		if known.attempts > 1 {
			r.OnWorkerLoss, r.MaxAttempts = "retry", known.attempts
		}
		c.Raiders = append(c.Raiders, r)
	}
	w, err := worker.New(b, c)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// serverSpec is a NATS server process's configuration.
type serverSpec struct {
	Name        string   `json:"name"`
	Dir         string   `json:"dir"`
	Port        int      `json:"port"`
	ClusterPort int      `json:"cluster_port"`
	Routes      []string `json:"routes"`
}

func serverMain(args []string) int {
	var spec serverSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o := bus.ServerOptions{Name: spec.Name, Port: spec.Port, StoreDir: spec.Dir}
	if spec.ClusterPort != 0 {
		o.Cluster, o.Routes = clusterOpts(spec.ClusterPort), spec.Routes
	}
	s, err := bus.StartServer(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return 0
}

func mustJSON(v any) string {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(body)
}
