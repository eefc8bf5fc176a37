package kubelet

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// simServer is a node of k3s whose program is a file with its version in it.
type simServer struct {
	*simNode
	server bool
	// exit and torn are how its snapshot ends.
	exit  int
	torn  bool
	saves int
	// replacedEarly: the program was another one when the snapshot was saved.
	replacedEarly bool
	// db is the path of its database of SQLite, "" with etcd.
	db    string
	stops int
	// etcd is the member of a server of k0s.
	etcd *simEtcd
	// unpacked is the directory of its parts, "" if it unpacks none, started the boot.
	unpacked, started string
}

// simEtcd is a member that may end its snapshot early.
type simEtcd struct {
	node *simServer
	torn bool
	size int64
}

func (e *simEtcd) Size(context.Context) (int64, error) { return e.size, nil }

func (e *simEtcd) Snapshot(_ context.Context, w io.Writer) error {
	e.node.saves++
	e.node.replacedEarly = e.node.replacedEarly || e.node.file() != e.node.running
	sum := sha256.Sum256([]byte("objects"))
	if _, err := w.Write([]byte("objects")); err != nil {
		return err
	}
	if e.torn {
		return errors.New("etcd's snapshot was cut off")
	}
	_, err := w.Write(sum[:])
	return err
}

func (n *simServer) Etcd() Etcd {
	if n.etcd == nil {
		return nil
	}
	return n.etcd
}

func (n *simServer) Unpacked() (string, bool) { return n.unpacked, true }

func (n *simServer) BootID() (string, error) { return n.started, nil }

func (n *simServer) SnapshotCommand(dir string) []string {
	if !n.server || n.db != "" || n.etcd != nil {
		return nil
	}
	return []string{"k3s", "etcd-snapshot", "save", "--dir", dir}
}

func (n *simServer) RunDetached(_ context.Context, _, _, log, result string, argv []string) error {
	n.saves++
	n.replacedEarly = n.replacedEarly || n.file() != n.running
	data := []byte("objects")
	sum := sha256.Sum256(data)
	if n.torn {
		data = data[1:]
	}
	if n.exit == 0 {
		if err := os.WriteFile(filepath.Join(argv[len(argv)-1], "refit-n1-1"), append(data, sum[:]...), 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(log, []byte("the log"), 0o600); err != nil {
		return err
	}
	return fsutil.WriteJSON(result, systemd.CommandResult{Exit: n.exit})
}

func (n *simServer) DetachedRuns(context.Context, string) (bool, error) { return false, nil }

// supervisorFixture is a node of k3s that moves between two versions.
func supervisorFixture(server bool, from, to string) func(t *testing.T) *updatertest.Fixture {
	return func(t *testing.T) *updatertest.Fixture {
		f, _ := newSupervisor(t, server, from, to)
		return f
	}
}

func newSupervisor(t *testing.T, server bool, from, to string) (*updatertest.Fixture, *simServer) {
	t.Helper()
	store := ""
	if server {
		store = model.DatastoreEtcd
	}
	return newServer(t, store, from, to)
}

// newServer is a server with a datastore, an agent without one.
func newServer(t *testing.T, store, from, to string) (*updatertest.Fixture, *simServer) {
	t.Helper()
	dir := t.TempDir()
	n := &simServer{simNode: &simNode{path: filepath.Join(dir, "usr", "k3s"), running: from, age: 100, sickVersion: to}, server: store != ""}
	payload := filepath.Join(dir, "payload")
	for path, text := range map[string]string{n.path: from, payload: to} {
		if err := fsutil.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := fsutil.Digest(payload)
	if err != nil {
		t.Fatal(err)
	}
	if store == model.DatastoreEtcd && distribution.SplitVersion(from).Distribution == distribution.K0s {
		n.etcd = &simEtcd{node: n}
	}
	if store == model.DatastoreSQLite {
		n.db = filepath.Join(dir, "db", "state.db")
		n.writeDB(minorOf(from), 1)
	}
	now := time.Now()
	planned := plannedSupervisor(t, store, from, to)
	return &updatertest.Fixture{
		Make: func() updaters.Updater {
			u := NewSupervisor(n, distribution.SplitVersion(from).Distribution)
			u.now = func() time.Time { return now }
			return u
		},
		Task: updaters.Task{UID: "u", Attempt: 1, Step: v1alpha1.UpdateStep{ID: "supervisor", Updater: "supervisor", Verb: "swap", From: from, To: to},
			Started: now, Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
			Payload: func(name string) (updaters.Payload, error) {
				if name != distribution.SplitVersion(from).Distribution {
					return updaters.Payload{}, updaters.ErrNoPayload
				}
				return updaters.Payload{Path: payload, Digest: digest}, nil
			}},
		Tick: func() { now = now.Add(time.Second); n.tick(); n.write() },
		State: func() string {
			if n.running == n.file() && n.readsDB() == nil && n.KubeletHealthy(t.Context()) == nil {
				return n.running
			}
			return "between"
		},
		From: from, To: to, Reversible: planned.NotReversible == "",
		Break:   func() { n.sick = true },
		Planned: planned,
		Hang:    func() <-chan struct{} { n.hang = make(chan struct{}); return n.hang },
	}, n
}

func plannedSupervisor(t *testing.T, store, from, to string) *model.Step {
	t.Helper()
	node := updateplan.Node{Name: "n1", Kubelet: from, ControlPlane: store != ""}
	if store != "" {
		node.ControlPlaneVersion, node.Current = from, updateplan.Fields{model.FieldDatastore: store}
	}
	in := updateplan.Input{Nodes: []updateplan.Node{node}, Target: model.Target{Kubernetes: to}}
	for _, s := range updateplan.Make(in).Plan.Nodes[0].Steps {
		if s.Updater == "supervisor" {
			return &s
		}
	}
	t.Fatal("no step is planned")
	return nil
}

func TestSupervisorConformance(t *testing.T) {
	for name, f := range map[string]func(*testing.T) *updatertest.Fixture{
		"server over a build":         supervisorFixture(true, "v1.35.4+k3s1", "v1.35.4+k3s2"),
		"server over a minor version": supervisorFixture(true, "v1.35.4+k3s1", "v1.36.3+k3s1"),
		"agent over a minor version":  supervisorFixture(false, "v1.35.4+k3s1", "v1.36.3+k3s1"),
		"k0s over a build":            supervisorFixture(true, "v1.35.4+k0s.0", "v1.35.4+k0s.1"),
		"k0s over a minor version":    supervisorFixture(true, "v1.35.4+k0s.1", "v1.36.3+k0s.0"),
		"worker of k0s":               supervisorFixture(false, "v1.35.4+k0s.1", "v1.36.3+k0s.0"),
		"SQLite over a build":         sqliteFixture("v1.35.4+k3s1", "v1.35.4+k3s2"),
		"SQLite over a minor version": sqliteFixture("v1.35.4+k3s1", "v1.36.3+k3s1"),
	} {
		t.Run(name, func(t *testing.T) { updatertest.Conform(t, f) })
	}
}

// The program of a server changes only after a whole snapshot of etcd.
func TestAServerSavesASnapshotFirst(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(*simServer)
		want   string
	}{
		"whole":  {func(*simServer) {}, ""},
		"failed": {func(n *simServer) { n.exit = 1 }, "ended with status 1"},
		"torn":   {func(n *simServer) { n.torn = true }, "does not match its checksum"},
	} {
		f, n := newSupervisor(t, true, "v1.35.4+k3s1", "v1.35.4+k3s2")
		c.broken(n)
		u, last := f.Make(), updaters.Result{}
		for range 60 {
			r, err := u.Update(t.Context(), f.Task)
			if err != nil {
				t.Fatal(err)
			}
			if last = r; r.Done || r.Failed {
				break
			}
			f.Tick()
		}
		if n.saves != 1 || n.replacedEarly {
			t.Errorf("%s: %d snapshots, program replaced before: %v", name, n.saves, n.replacedEarly)
		}
		if c.want == "" && !last.Done || c.want != "" && (!last.Failed || !strings.Contains(last.Message, c.want) || f.State() != f.From) {
			t.Errorf("%s: %+v at %s", name, last, f.State())
		}
	}
}

// refit saves the snapshot of k0s itself: without a whole one, or room for it, the program
// stays.
func TestASnapshotThroughEtcdComesFirst(t *testing.T) {
	f, n := newSupervisor(t, true, "v1.35.4+k0s.0", "v1.35.4+k0s.1")
	u, path := f.Make(), filepath.Join(f.Task.Rollback, "etcd-snapshot", "etcd-snapshot.db")
	n.etcd.torn = true
	if r, err := u.Update(t.Context(), f.Task); err == nil || n.file() != f.From || r.Done {
		t.Fatalf("%+v %v", r, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) > 0 {
		t.Errorf("a torn snapshot is left: %v", entries)
	}
	n.etcd.torn, n.etcd.size = false, 1<<60
	if r, err := u.Update(t.Context(), f.Task); err != nil || !r.Failed || r.Reason != v1alpha1.ReasonInsufficientSpace || n.file() != f.From {
		t.Fatalf("%+v %v", r, err)
	}
	n.etcd.size = 100
	for range 60 {
		r, err := u.Update(t.Context(), f.Task)
		if err != nil {
			t.Fatal(err)
		}
		if r.Done {
			break
		}
		f.Tick()
	}
	if err := verifySnapshot(path); err != nil || n.saves != 2 || n.replacedEarly || f.State() != f.To {
		t.Errorf("%v, %d snapshots, program replaced before: %v, %s", err, n.saves, n.replacedEarly, f.State())
	}
}
