package forecast

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

var updateGolden = flag.Bool("update", false, "write the golden stories anew")

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC) // a Friday

// input is a plan for so many control planes and workers of pool edge, in zones
// a and b by turns.
func input(cps, workers int, change func(*rollout.Pool)) rollout.Input {
	p := rollout.Pool{Name: "edge", Budget: 1}
	if change != nil {
		change(&p)
	}
	in := rollout.Input{Now: start, Pools: map[string]rollout.Pool{"edge": p}, Nodes: map[string]rollout.Node{}, ControlPlane: rollout.ControlPlane{Etcd: map[string]bool{}}}
	add := func(name, role string, wave int, zone string) {
		in.Nodes[name] = rollout.Node{Name: name, Ready: true, Zone: zone, NotYet: "old"}
		in.Plan.Nodes = append(in.Plan.Nodes, model.NodePlan{Node: name, Role: role, Pool: "edge", Wave: wave, From: "v1.35.4", To: "v1.36.3",
			Steps: []model.Step{{ID: "kubeadm", Updater: "kubeadm", By: model.ByAgent}, {ID: "kubelet", Updater: "kubelet", By: model.ByAgent}}})
	}
	for i := range cps {
		name := fmt.Sprintf("c%d", i+1)
		add(name, model.RoleControlPlane, i, "")
		in.ControlPlane.Etcd[name] = true
	}
	for i := range workers {
		add(fmt.Sprintf("w%d", i+1), model.RoleWorker, cps, []string{"a", "b"}[i%2])
	}
	return in
}

func learned(in rollout.Input) rollout.Input {
	in.Learned = rollout.Learned{ControlPlane: rollout.Range{Low: 4 * time.Minute, High: 6 * time.Minute, Samples: 2}, Worker: rollout.Range{Low: time.Minute, High: 2 * time.Minute, Samples: 7}}
	return in
}

var outlines = map[string]func() rollout.Input{
	"a plain pool": func() rollout.Input { return input(1, 2, nil) },
	"everything a pool can say": func() rollout.Input {
		return learned(input(3, 7, func(p *rollout.Pool) {
			p.Budget, p.Canary, p.CanarySoak, p.Soak = 3, rollout.Amount{Value: 2}, 10*time.Minute, time.Minute
			p.Zones, p.Attempts, p.Undo, p.MaxFailures = true, 3, true, 2
			p.Windows = []rollout.Window{{Days: []time.Weekday{time.Friday, time.Saturday}, Start: 22 * 60, Duration: 4 * time.Hour, Zone: time.UTC}, {Start: 3 * 60, Duration: 30 * time.Minute, Zone: time.UTC}}
		}))
	},
	"two etcd members": func() rollout.Input { return input(2, 0, nil) },
	"a window that cannot be read": func() rollout.Input {
		return input(1, 1, func(p *rollout.Pool) { p.Invalid = "there is no time zone \"Mars\"" })
	},
	"an etcd somewhere else": func() rollout.Input { in := input(3, 0, nil); in.ControlPlane.Etcd = nil; return in },
	"a rollback says that etcd is not downgraded": func() rollout.Input {
		in := input(3, 0, nil)
		in.Plan.Nodes[0].From, in.Plan.Nodes[0].To = "v1.36.3", "v1.36.1"
		return in
	},
	"what cannot be undone is predicted": func() rollout.Input {
		in := input(3, 1, func(p *rollout.Pool) { p.Undo = true })
		in.Plan.Nodes[0].PointOfNoReturn = "kubeadm"
		in.Plan.Nodes[0].Steps[0].NotReversible = "kubeadm cannot downgrade a control plane"
		return in
	},
}

func TestOutlines(t *testing.T) {
	for name, of := range outlines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(Outline(of()), "\n") + "\n"
			for _, v := range Predict(of()) {
				if !v.Waiting {
					t.Errorf("a prediction never blocks the start of an update: %+v", v)
				}
				got += "predicted " + v.Reason + ": " + v.Message + "\n"
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *updateGolden {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got); -update writes it anew:\n%s", diff)
			}
		})
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in        rollout.Input
		low, high time.Duration
	}{
		"nothing was ever timed: the lab's times":     {input(1, 2, nil), 70 * time.Second, 13 * time.Minute},
		"control planes one by one, then the workers": {learned(input(3, 4, nil)), 16 * time.Minute, 26 * time.Minute},
		"workers side by side":                        {learned(input(0, 5, func(p *rollout.Pool) { p.Budget = 2 })), 3 * time.Minute, 6 * time.Minute},
		"each round soaks":                            {learned(input(0, 4, func(p *rollout.Pool) { p.Budget, p.Soak = 2, 10*time.Minute })), 22 * time.Minute, 24 * time.Minute},
		"the canary goes and soaks before":            {learned(input(0, 3, func(p *rollout.Pool) { p.Budget, p.Canary, p.CanarySoak = 2, rollout.Amount{Value: 1}, time.Hour })), 62 * time.Minute, 64 * time.Minute},
		"zones one after another":                     {learned(input(0, 4, func(p *rollout.Pool) { p.Budget, p.Zones = 4, true })), 2 * time.Minute, 4 * time.Minute},
		"what does not fit goes the next day": {learned(input(0, 3, func(p *rollout.Pool) {
			p.Windows = []rollout.Window{{Start: 12 * 60, Duration: 4 * time.Minute, Zone: time.UTC}}
		})), time.Hour + 3*time.Minute, 25*time.Hour + 2*time.Minute},
	} {
		eta, ok := Estimate(tc.in, rollout.StagesOf(tc.in))
		if timed := !strings.HasPrefix(name, "nothing"); !ok || timed != (eta.Samples > 0) {
			t.Errorf("%s: ok %t, %+v", name, ok, eta)
			continue
		}
		if eta.Earliest.Sub(start) != tc.low || eta.Latest.Sub(start) != tc.high {
			t.Errorf("%s: %s to %s, want %s to %s", name, eta.Earliest.Sub(start), eta.Latest.Sub(start), tc.low, tc.high)
		}
	}
}

// A started node counts for the rest of its work, and a finished node does not count.
func TestEstimateOfStartedNodes(t *testing.T) {
	t.Parallel()
	in := learned(input(0, 3, nil))
	done := in.Nodes["w1"]
	done.AtTarget = true
	in.Nodes["w1"] = done
	moves := in.Nodes["w2"]
	moves.Started, moves.StartedAt, moves.Attempt = true, start.Add(-30*time.Second), rollout.Attempt{Number: 1, Try: 1}
	in.Nodes["w2"] = moves
	eta, ok := Estimate(in, rollout.StagesOf(in))
	if want := start.Add(90 * time.Second); !ok || !eta.Earliest.Equal(want) {
		t.Errorf("%t %s, want %s", ok, eta.Earliest, want)
	}
}

func TestLearn(t *testing.T) {
	t.Parallel()
	if r := Learn(nil); r.Samples != 0 {
		t.Errorf("%+v", r)
	}
	if r := Learn([]time.Duration{3, 1, 2}); r.Low != 1 || r.High != 3 {
		t.Errorf("of a few the shortest and the longest: %+v", r)
	}
	var many []time.Duration
	for i := range 20 {
		many = append(many, time.Duration(i+1))
	}
	many[0] = 72 * time.Hour // a budget held up one for three days
	if r := Learn(many); r.High > 20 {
		t.Errorf("one that took long is no rule: %+v", r)
	}
}

// An estimate is steady: it is not written anew at every look.
func TestSteady(t *testing.T) {
	t.Parallel()
	old := ETA{start.Add(10 * time.Minute), start.Add(20 * time.Minute), 3}
	near := ETA{start.Add(11 * time.Minute), start.Add(21 * time.Minute), 3}
	lab := ETA{near.Earliest, near.Latest, 0}
	far := ETA{start.Add(10 * time.Minute), start.Add(30 * time.Minute), 4}
	if got := KeepSteady(old, near, start); got != old {
		t.Errorf("%+v", got)
	}
	if got := KeepSteady(lab, near, start); got != near {
		t.Errorf("the source of an estimate changed: %+v", got)
	}
	if got := KeepSteady(old, far, start); got != far {
		t.Errorf("%+v", got)
	}
}

// For any remaining work, an estimate has an end, and earliest is not after latest.
func TestEveryEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := learned(input(rapid.IntRange(0, 3).Draw(t, "cps"), rapid.IntRange(1, 500).Draw(t, "workers"), func(p *rollout.Pool) {
			p.Budget, p.Zones = rapid.IntRange(1, 9).Draw(t, "budget"), rapid.Bool().Draw(t, "zones")
			p.Canary = rollout.Amount{Value: rapid.IntRange(0, 5).Draw(t, "canary")}
			p.Soak = time.Duration(rapid.IntRange(0, 90).Draw(t, "soak")) * time.Minute
			if rapid.Bool().Draw(t, "windows") {
				p.Windows = []rollout.Window{{Start: rapid.IntRange(0, 24*60-1).Draw(t, "opens"), Duration: time.Duration(rapid.IntRange(1, 300).Draw(t, "length")) * time.Minute, Zone: time.UTC}}
			}
		}))
		if eta, ok := Estimate(in, rollout.StagesOf(in)); ok && (eta.Latest.Before(eta.Earliest) || eta.Earliest.Before(start)) {
			t.Fatalf("%+v", eta)
		}
	})
}
