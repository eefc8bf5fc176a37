package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/test/results"
)

const (
	from = "v1.35.4"
	to   = "v1.36.3"
)

// testLog keeps a scenario's lines in bin/logs, by the name of the test; they
// are long, and a failure is to be seen. go test -v shows them as they come.
type testLog struct {
	t *testing.T
	f *os.File
}

func newLog(t *testing.T) testLog {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin/logs", t.Name()+".log"))
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened, in full: %s", path)
		}
		f.Close()
	})
	return testLog{t, f}
}

func (l testLog) Write(p []byte) (int, error) {
	if testing.Verbose() {
		l.t.Log(strings.TrimRight(string(p), "\n"))
	}
	return l.f.Write(p)
}

// prepared makes a scenario whose lab is taken down when the test ends.
func prepared(t *testing.T, o scenario.Options) *scenario.Scenario {
	t.Helper()
	if testing.Short() {
		t.Skip("a lab takes minutes: left out by -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the nodes are namespaces, mounts and loop devices")
	}
	if os.Getenv("REFIT_E2E") != "" {
		results.Commit(t) // what is measured is the tree from before the run
	}
	if o.Refit == "" {
		o.Refit = "../../bin/refit"
	}
	refit, err := filepath.Abs(o.Refit)
	must(t, err)
	if _, err := os.Stat(refit); err != nil {
		t.Fatalf("%v: run make build build-failpoint first (make test and make e2e do)", err)
	}
	o.Refit, o.Out = refit, newLog(t)
	s, err := scenario.New(o)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if t.Failed() {
			lastWords(ctx, t, s)
			s.Dump(ctx)
		}
		if err := s.Close(ctx); err != nil {
			t.Errorf("lab down: %v", err)
		}
	})
	return s
}

// start makes a scenario and its cluster.
func start(t *testing.T, name string, nodes int, options ...func(*scenario.Options)) *scenario.Scenario {
	t.Helper()
	o := scenario.Options{Name: name, From: from, To: to, Nodes: nodes, MediumNode: "n2"}
	for _, change := range options {
		change(&o)
	}
	s := prepared(t, o)
	must(t, s.Components(t.Context()))
	must(t, s.Up(t.Context()))
	return s
}

// withFailpoints has nodes run the agent that a file can kill at a named line.
func withFailpoints(o *scenario.Options) { o.Refit = "../../bin/failpoint/refit" }

// lastWords puts what a person would ask first into the test's own log.
func lastWords(ctx context.Context, t *testing.T, s *scenario.Scenario) {
	if s.Lab == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := s.Run(ctx, "status")
	t.Logf("refit status (exit code %d, %v):\n%s%s", r.Code, err, r.Stdout, r.Stderr)
}

// status is what `refit status -o json` says.
func status(t *testing.T, s *scenario.Scenario) (explain.View, bool) {
	t.Helper()
	r, err := s.Run(t.Context(), "status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var v explain.View
	return v, json.Unmarshal([]byte(r.Stdout), &v) == nil
}

// eventually polls until ask answers true; the last answer is in the failure.
func eventually(t *testing.T, limit time.Duration, what string, ask func() (bool, string)) {
	t.Helper()
	begin := time.Now()
	for {
		ok, said := ask()
		if ok {
			t.Logf("%s after %.1f s: %s", what, time.Since(begin).Seconds(), said)
			return
		}
		if time.Since(begin) > limit {
			t.Fatalf("%s: not within %s: %s", what, limit, said)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func nodeUpdate(t *testing.T, s *scenario.Scenario, node string) (*v1alpha1.NodeUpdate, error) {
	t.Helper()
	return nodeUpdateOf(t.Context(), s, node)
}

func nodeUpdateOf(ctx context.Context, s *scenario.Scenario, node string) (*v1alpha1.NodeUpdate, error) {
	nu := &v1alpha1.NodeUpdate{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, nu)
	return nu, err
}

// medium is what a node says of its stick.
func medium(t *testing.T, s *scenario.Scenario, node, device string) (v1alpha1.Medium, string) {
	t.Helper()
	nu, err := nodeUpdate(t, s, node)
	if err != nil {
		return v1alpha1.Medium{}, err.Error()
	}
	for _, m := range nu.Status.Media {
		if m.Device == device {
			return m, fmt.Sprintf("%+v", m)
		}
	}
	return v1alpha1.Medium{}, fmt.Sprintf("no medium %s among %v", device, nu.Status.Media)
}
