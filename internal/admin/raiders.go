package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"raiderfleet/subjects"
)

// Raider is a raider of the fleet and who serves it.
type Raider struct {
	Raider      subjects.Raider `json:"raider"`
	Description string          `json:"description,omitempty"`
	// Configured says that the configuration of who asks has it.
	Configured bool `json:"configured"`
	// Workers that serve it, and FrontDoors that open sessions with it.
	Workers    []subjects.Instance `json:"workers"`
	FrontDoors []subjects.Instance `json:"front_doors"`
	// Running and Waiting count prompts, Warm the processes without one.
	Running int `json:"running"`
	Warm    int `json:"warm"`
	Waiting int `json:"waiting"`
}

// Raiders lists the raiders that workers serve, front doors offer, prompts wait for, or
// the caller has configured, by name. configured are names with descriptions.
func (f *Fleet) Raiders(ctx context.Context, configured map[subjects.Raider]string) ([]Raider, error) {
	records, err := f.b.List(ctx, f.b.Fleet().NodesBucket(), "")
	if err != nil {
		return nil, fmt.Errorf("list the raiders: %w", err)
	}
	all := map[subjects.Raider]*Raider{}
	of := func(name subjects.Raider) *Raider {
		if all[name] == nil {
			all[name] = &Raider{Raider: name, Workers: []subjects.Instance{}, FrontDoors: []subjects.Instance{}}
		}
		return all[name]
	}
	for name, description := range configured {
		r := of(name)
		r.Configured, r.Description = true, description
	}
	for _, record := range records {
		var n subjects.Node
		if _, err := subjects.ParseNodeKey(record.Key); err != nil || json.Unmarshal(record.Value, &n) != nil || n.State == subjects.NodeGoodbye {
			continue // a lease of the workers, or gone
		}
		for _, name := range n.Raiders {
			r := of(name)
			switch n.Role {
			case subjects.RoleWorker:
				r.Workers = append(r.Workers, n.Instance)
			case subjects.RoleFrontDoor:
				r.FrontDoors = append(r.FrontDoors, n.Instance)
			}
		}
	}
	lanes, _, err := f.Lanes(ctx)
	if err != nil {
		return nil, err
	}
	running := map[subjects.PromptID]bool{}
	for _, l := range lanes {
		if l.Prompt == "" {
			of(l.Raider).Warm++
			continue
		}
		of(l.Raider).Running++
		running[l.Prompt] = true
	}
	prompts, err := f.backlog(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range prompts {
		if !running[p.header.Prompt] {
			of(p.raider).Waiting++
		}
	}
	out := make([]Raider, 0, len(all))
	for _, r := range all {
		slices.Sort(r.Workers)
		slices.Sort(r.FrontDoors)
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Raider) int { return cmp.Compare(a.Raider, b.Raider) })
	return out, nil
}

// WriteRaiders writes what raiders shows.
func WriteRaiders(w io.Writer, all []Raider) error {
	rows := make([][]string, 0, len(all))
	for _, r := range all {
		workers := make([]string, len(r.Workers))
		for i, name := range r.Workers {
			workers[i] = string(name)
		}
		rows = append(rows, []string{
			string(r.Raider), fmt.Sprint(r.Running), fmt.Sprint(r.Warm), fmt.Sprint(r.Waiting),
			orDash(strings.Join(workers, ",")), orDash(cell(r.Description)),
		})
	}
	return table(w, "no raider is there", []string{"RAIDER", "RUNNING", "WARM", "WAITING", "WORKERS", "DESCRIPTION"}, rows)
}
