package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// moment checks a node and says whether the row's time has come.
type moment func(ctx context.Context, s *scenario.Scenario, node string) bool

// killPoint is one row of the table: who is killed, and when.
type killPoint struct {
	name string
	node string
	// victim is a systemd unit of the node, "refit-controller", or "power" for
	// the whole node.
	victim string
	when   moment
	// watch is the node that is checked; default node.
	watch string
}

// reported is a moment that the node's NodeUpdate tells.
func reported(when func(nu *v1alpha1.NodeUpdate) bool) moment {
	return func(ctx context.Context, s *scenario.Scenario, node string) bool {
		nu, err := nodeUpdateOf(ctx, s, node)
		return err == nil && when(nu)
	}
}

var copying = reported(func(nu *v1alpha1.NodeUpdate) bool {
	h := nu.Status.Pins
	return h != nil && h.BytesDone > 0 && h.BytesDone < h.BytesTotal
})

var loading = reported(func(nu *v1alpha1.NodeUpdate) bool {
	h := nu.Status.Pins
	return nu.Status.Phase == "Loading" || (h != nil && h.ImagesTotal > 0 && h.ImagesReady > 0 && h.ImagesPinned < h.ImagesTotal)
})

// granted: the node may run its steps, so it is drained.
var granted = reported(func(nu *v1alpha1.NodeUpdate) bool { return nu.Spec.Run != nil })

// draining: refit has cordoned the node, pods of the workload are still there,
// and the node may not run its steps yet.
func draining(ctx context.Context, s *scenario.Scenario, node string) bool {
	if cordoned, err := s.Cordoned(ctx, node); err != nil || !cordoned || granted(ctx, s, node) {
		return false
	}
	n, err := s.WorkloadPods(ctx, node)
	return err == nil && n > 0
}

// kubeadm reports whether kubeadm runs in the node, in its own unit. It reads the node's
// files: on a control plane the API server is unavailable for most of that time. A program
// that asks systemd is too slow on a busy machine.
func kubeadm(_ context.Context, s *scenario.Scenario, node string) bool {
	units, err := s.Lab.Path(node, "/run/systemd/transient")
	if err != nil {
		return false
	}
	found, err := filepath.Glob(filepath.Join(units, "refit-run-*.service"))
	return err == nil && len(found) > 0
}

// apiUnavailable: kubeadm runs on the control plane and has taken the API server down.
func apiUnavailable(ctx context.Context, s *scenario.Scenario, node string) bool {
	_, err := s.Cordoned(ctx, node)
	return err != nil && kubeadm(ctx, s, node)
}

// killTable: every component in the middle of each part of an update.
var killTable = []killPoint{
	{name: "agent while it copies from the stick", node: "n2", victim: "refit-agent", when: copying},
	{name: "agent while it fetches from peers", node: "n3", victim: "refit-agent", when: copying},
	{name: "agent while it loads", node: "n1", victim: "refit-agent", when: loading},
	{name: "containerd while images are loaded", node: "n3", victim: "containerd", when: loading},
	{name: "kubelet while images are loaded", node: "n2", victim: "kubelet", when: loading},
	{name: "controller while nodes prepare", victim: "refit-controller", watch: "n3", when: copying},
	{name: "agent in the kubeadm step of the control plane", node: "n1", victim: "refit-agent", when: kubeadm},
	{name: "kubelet in the kubeadm step of the control plane", node: "n1", victim: "kubelet", when: kubeadm},
	{name: "containerd in the kubeadm step of the control plane", node: "n1", victim: "containerd", when: kubeadm},
	{name: "power of the control plane while kubeadm replaces its API server", node: "n1", victim: "power", when: apiUnavailable},
	{name: "controller while a worker is drained", victim: "refit-controller", watch: "n3", when: draining},
	{name: "agent of a worker that is drained", node: "n2", victim: "refit-agent", when: draining},
	{name: "kubelet of a worker that is drained", node: "n3", victim: "kubelet", when: draining},
	{name: "containerd of a worker that is drained", node: "n2", victim: "containerd", when: draining},
	{name: "agent in the kubeadm step of a worker", node: "n2", victim: "refit-agent", when: kubeadm},
	{name: "containerd in the kubeadm step of a worker", node: "n3", victim: "containerd", when: kubeadm},
	{name: "kubelet in the kubeadm step of a worker", node: "n2", victim: "kubelet", when: kubeadm},
	{name: "controller in the kubeadm step of a worker", victim: "refit-controller", watch: "n3", when: kubeadm},
	{name: "containerd as a worker is permitted to run its steps", node: "n2", victim: "containerd", when: granted},
	{name: "controller as a worker is permitted to run its steps", victim: "refit-controller", watch: "n3", when: granted},
	{name: "power of a worker as it is permitted to run its steps", node: "n3", victim: "power", when: granted},
}

// labs is how many clusters share the table's rows, every third row each, so
// that no cluster loses everything at once.
const labs = 3

// seedable are rows whose moment is always seen, for the one kill of make test.
var seedable = []int{1, 5, 6, 7, 8, 18, 19, 20}

// seeded picks the row of make test; REFIT_SEED picks another.
func seeded(t *testing.T) killPoint {
	t.Helper()
	seed := 2
	if s := os.Getenv("REFIT_SEED"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			t.Fatalf("REFIT_SEED=%s: want a number", s)
		}
		seed = n
	}
	row := killTable[seedable[seed%len(seedable)]]
	t.Logf("seed %d: kill -9 of the %s", seed, row.name)
	return row
}

// killed says what became of a row.
type killed struct {
	fired bool
	at    time.Time
	err   error
}

// arm watches for the moments of the rows and kills; the answer is what has
// fired so far.
func arm(t *testing.T, s *scenario.Scenario, rows []killPoint) func() map[string]killed {
	t.Helper()
	var mu sync.Mutex
	out := map[string]killed{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for _, row := range rows {
		wg.Go(func() {
			if !awaitMoment(ctx, s, row) {
				return
			}
			err := kill(ctx, s, row)
			mu.Lock()
			defer mu.Unlock()
			out[row.name] = killed{fired: err == nil, at: time.Now(), err: err}
		})
	}
	return func() map[string]killed {
		mu.Lock()
		defer mu.Unlock()
		c := map[string]killed{}
		for k, v := range out {
			c[k] = v
		}
		return c
	}
}

func awaitMoment(ctx context.Context, s *scenario.Scenario, row killPoint) bool {
	node := row.node
	if row.watch != "" {
		node = row.watch
	}
	for ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, time.Second)
		come := row.when(look, s, node)
		cancel()
		if come {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

func kill(ctx context.Context, s *scenario.Scenario, row killPoint) error {
	switch row.victim {
	case "power":
		return s.Lab.Crash(ctx, row.node)
	case "refit-controller":
		return s.KillController(ctx)
	}
	return s.Exec(ctx, row.node, "systemctl", "kill", "--kill-who=main", "-s", "KILL", row.victim)
}

// TestKillTable plays the story in each lab with its share of the table, and
// writes what happened to results/kills.json.
func TestKillTable(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the whole table takes long: make e2e")
	}
	type outcome struct {
		Point   string `json:"point"`
		Fired   bool   `json:"fired"`
		Outcome string `json:"outcome"`
	}
	report := struct {
		Points []outcome `json:"points"`
	}{}
	for share := range labs {
		var rows []killPoint
		for i, r := range killTable {
			if i%labs == share {
				rows = append(rows, r)
			}
		}
		ok := t.Run(fmt.Sprintf("lab %d", share), func(t *testing.T) {
			playWithKills(t, share, rows, func(name string, fired bool, what string) {
				report.Points = append(report.Points, outcome{name, fired, what})
			})
		})
		t.Logf("lab %d ok: %t", share, ok)
	}
	keepResult(t, "kills.json", func() any { return report })
}

func playWithKills(t *testing.T, share int, rows []killPoint, record func(string, bool, string)) {
	s := start(t, fmt.Sprintf("kill%d", share), 3)
	ctx := t.Context()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, dev))
	fired := arm(t, s, rows)
	what := "did not finish"
	defer func() {
		for _, r := range rows {
			f := fired()[r.name]
			record(r.name, f.fired, what)
			if !f.fired {
				t.Errorf("%s: the kill did not fire (%v)", r.name, f.err)
			}
		}
	}()
	must(t, s.Approve(ctx, b))
	digest, err := s.Prepare(ctx, b)
	must(t, err)
	startUpdate(t, s)
	halts := untilDone(t, s)
	finished(t, s, b, digest)
	what = "finished by itself, every node observed at " + to
	if len(halts) > 0 {
		what = "halted with a reason, finished after refit retry: " + strings.Join(halts, "; ")
	}
}

// untilDone follows the update; a halt must say why, and is tried again.
func untilDone(t *testing.T, s *scenario.Scenario) (halts []string) {
	t.Helper()
	for range 4 {
		r, err := s.Run(t.Context(), "status", "--watch", "--timeout", "15m")
		must(t, err)
		if r.Code != 5 {
			return halts
		}
		headline, _, _ := strings.Cut(r.Stdout, "\n")
		if !strings.Contains(headline, "node n") {
			t.Errorf("a halt without a reason: %s", headline)
		}
		halts = append(halts, headline)
		if r, err = s.Run(t.Context(), "retry"); err != nil || r.Code != 0 {
			t.Fatalf("retry: exit code %d, %v", r.Code, err)
		}
		// After a power cut it may take a while until a controller acts on it.
		eventually(t, 3*time.Minute, "the retry has started", func() (bool, string) {
			r, err := s.Run(t.Context(), "status")
			return err == nil && r.Code != 5, r.Stdout
		})
	}
	return halts
}
