package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// simNode is a directory and some units, one of which runs what its
// configuration file said when it was started.
type simNode struct {
	root    string
	configs map[string]string
	units   map[string]*systemd.Unit
	reads   map[string]string // unit -> file it reads when it starts
	has     map[string]string // unit -> what it read
	starts  map[string]int
	sick    bool // nothing starts any more
	reload  int
	held    map[string]string // digest -> path of a payload
}

func (n *simNode) FindPayload(name, digest string) (updaters.Payload, error) {
	if p := n.held[digest]; p != "" {
		return updaters.Payload{Path: p, Digest: digest}, nil
	}
	return updaters.Payload{}, fmt.Errorf("payload %s: %w", name, updaters.ErrNoPayload)
}

// hold puts a payload into the node's store.
func (n *simNode) hold(t *testing.T, text string) (digest string) {
	path := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if n.held == nil {
		n.held = map[string]string{}
	}
	digest = model.DigestOf([]byte(text))
	n.held[digest] = path
	return digest
}

func (n *simNode) Config(name string) (string, bool) { c, ok := n.configs[name]; return c, ok }
func (n *simNode) Unit(_ context.Context, name string) (systemd.Unit, error) {
	if u := n.units[name]; u != nil {
		return *u, nil
	}
	return systemd.Unit{Active: "inactive"}, nil
}

func (n *simNode) start(name string) {
	if n.sick {
		n.units[name].Active = "failed"
		return
	}
	b, _ := os.ReadFile(filepath.Join(n.root, n.reads[name]))
	n.has[name] = string(b)
	n.units[name].Active = "active"
	n.starts[name]++
}

func (n *simNode) SetUnit(_ context.Context, name, state string) error {
	if n.units[name] == nil {
		if _, err := os.Stat(filepath.Join(n.root, "etc/systemd/system", name)); err != nil || n.reload == 0 {
			return errors.New("no such unit")
		}
		n.units[name] = &systemd.Unit{}
	}
	n.units[name].File = state
	if state == model.UnitEnabled {
		n.start(name)
	} else {
		n.units[name].Active, n.has[name] = "inactive", ""
	}
	return nil
}
func (n *simNode) ReloadUnits(context.Context) error { n.reload++; return nil }
func (n *simNode) RefreshUnit(_ context.Context, name string, _ bool) error {
	if n.units[name] != nil && n.units[name].Active == "active" {
		n.start(name)
	}
	return nil
}

func (n *simNode) StartUnit(_ context.Context, name string) error {
	n.start(name)
	return nil
}

func (n *simNode) state() string {
	var out []string
	_ = filepath.WalkDir(n.root, func(p string, d os.DirEntry, _ error) error {
		if d != nil && !d.IsDir() {
			st, _ := d.Info()
			b, _ := os.ReadFile(p)
			out = append(out, fmt.Sprintf("%s %04o %s", strings.TrimPrefix(p, n.root), st.Mode().Perm(), b))
		}
		return nil
	})
	for name, u := range n.units {
		if u.File != "" || u.Active != "inactive" {
			out = append(out, fmt.Sprintf("%s %s %s with %q", name, u.File, u.Active, n.has[name]))
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

func newNode(t *testing.T) *simNode {
	n := &simNode{root: t.TempDir(), configs: map[string]string{}, has: map[string]string{}, starts: map[string]int{},
		reads: map[string]string{"probe.service": "etc/probe.conf"},
		units: map[string]*systemd.Unit{
			"probe.service": {File: "enabled", Active: "active"}, "cups.service": {File: "enabled", Active: "active"}, "spare.service": {File: "disabled", Active: "inactive"},
		}}
	put(t, n, "etc/probe.conf", "old", 0o600)
	put(t, n, "etc/motd", "theirs", 0o644)
	n.start("probe.service")
	n.start("cups.service")
	return n
}

func put(t *testing.T, n *simNode, path, text string, mode os.FileMode) {
	t.Helper()
	path = filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func me() (string, string) { return strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid()) }

func file(path, text string, d model.Disruption, units ...string) model.ConfigFile {
	u, g := me()
	return model.ConfigFile{Path: path, Mode: 0o644, Owner: u, Group: g, Data: []byte(text), Disruption: d, Units: units}
}

func task(t *testing.T, n *simNode, c model.NodeConfig) updaters.Task {
	c.Version = model.ConfigVersion
	data := string(c.JSON())
	name := v1alpha1.ContentName(v1alpha1.ContentConfig, data)
	n.configs[name] = data
	dir := t.TempDir()
	return updaters.Task{UID: "u", Attempt: 1, Started: time.Now(), Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "files", Updater: "files", Verb: "apply", Params: map[string]string{model.ParamConfig: name}}}
}

func config() model.NodeConfig {
	return model.NodeConfig{
		Files: []model.ConfigFile{
			file("/etc/probe.conf", "new", model.DisruptionRestart, "probe.service"),
			file("/etc/systemd/system/extra.service", "[Service]", model.DisruptionRestart, "extra.service"),
			file("/etc/sysctl.d/90-edge.conf", "vm.swappiness=1\n", model.DisruptionNone),
			{Path: "/etc/motd", Absent: true, Disruption: model.DisruptionNone},
		},
		Units: []model.ConfigUnit{{Name: "cups.service", State: model.UnitMasked}, {Name: "extra.service", State: model.UnitEnabled}},
	}
}

func fixture(t *testing.T) *updatertest.Fixture {
	n := newNode(t)
	now := time.Now()
	f := &updatertest.Fixture{
		Make: func() updaters.Updater {
			u := New(n, n.root, n.root+".json")
			u.now = func() time.Time { return now }
			return u
		},
		Task:  task(t, n, config()),
		Tick:  func() { now = now.Add(time.Second) },
		State: n.state, From: n.state(), Reversible: true,
		Break: func() { n.sick = true },
	}
	done := newNode(t)
	u := New(done, done.root, done.root+".json")
	tk := task(t, done, config())
	for range 10 {
		if r, err := u.Update(t.Context(), tk); err != nil || r.Failed {
			t.Fatal(r, err)
		}
	}
	f.To = done.state()
	return f
}

func TestConformance(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: files are owned by this user")
	}
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture {
		f := fixture(t)
		// A unit that did not exist is gone after an undo.
		state := f.State
		f.State = func() string { return strings.ReplaceAll(state(), "extra.service disabled inactive with \"\"\n", "") }
		return f
	})
}

func TestWhatTheEndLooksLike(t *testing.T) {
	f := fixture(t)
	want := []string{
		`/etc/probe.conf 0644 new`, `/etc/sysctl.d/90-edge.conf 0644 vm.swappiness=1`, ``, `/etc/systemd/system/extra.service 0644 [Service]`,
		`cups.service masked inactive with ""`, `extra.service enabled active with ""`, `probe.service enabled active with "new"`, `spare.service disabled inactive with ""`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), f.To); diff != "" {
		t.Fatal(diff)
	}
}

// A kill between the file and the restart must not leave a service with
// its old configuration, wherever it happens; and nothing restarts twice for one
// change when nothing was killed.
func TestAServiceReadsItsNewConfiguration(t *testing.T) {
	n := newNode(t)
	tk := task(t, n, config())
	u := New(n, n.root, n.root+".json")
	for range 5 {
		_, _ = u.Update(t.Context(), tk)
	}
	if n.starts["probe.service"] != 2 || n.starts["extra.service"] != 1 {
		t.Fatalf("starts: %v", n.starts)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, n *simNode)
		file   model.ConfigFile
		says   string
	}{
		"kubeadm's directory":            {nil, file("/etc/kubernetes/admin.conf", "x", ""), "kubeadm's"},
		"etcd's data":                    {nil, file("/var/lib/etcd/member/x", "x", ""), "etcd's data"},
		"refit's own state":              {nil, file("/var/lib/refit/key.pem", "x", ""), "refit's own"},
		"the runtime's state":            {nil, file("/var/lib/containerd/x", "x", ""), "container runtime"},
		"out of the path":                {nil, file("/etc/../etc/kubernetes/x", "x", ""), "clean"},
		"an unknown owner":               {nil, model.ConfigFile{Path: "/etc/x", Owner: "no-such-account", Group: "0"}, "no user"},
		"a link that is the file itself": {func(_ *testing.T, n *simNode) { _ = os.Symlink("motd", filepath.Join(n.root, "etc/link")) }, file("/etc/link", "x", ""), "symbolic link to motd"},
		"a link into what others keep": {func(_ *testing.T, n *simNode) {
			_ = os.MkdirAll(filepath.Join(n.root, "etc/kubernetes"), 0o755)
			_ = os.Symlink("kubernetes", filepath.Join(n.root, "etc/k"))
		}, file("/etc/k/x", "x", ""), "kubeadm's"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if c.change != nil {
				c.change(t, n)
			}
			before := n.state()
			u := New(n, n.root, n.root+".json")
			tk := task(t, n, model.NodeConfig{Files: []model.ConfigFile{c.file}})
			r, err := u.Update(t.Context(), tk)
			if err != nil || !r.Failed || r.Reason == "" || !strings.Contains(r.Message, c.says) {
				t.Fatalf("%+v %v, want %q", r, err, c.says)
			}
			if diff := cmp.Diff(before, n.state()); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// Undo does not restore what others have written since.
func TestUndoLeavesWhatOthersChanged(t *testing.T) {
	n := newNode(t)
	tk := task(t, n, config())
	u := New(n, n.root, n.root+".json")
	for range 5 {
		_, _ = u.Update(t.Context(), tk)
	}
	put(t, n, "etc/sysctl.d/90-edge.conf", "by hand", 0o644)
	r, err := u.Undo(t.Context(), tk)
	if err != nil || !r.Done || !strings.Contains(r.Message, "90-edge.conf") {
		t.Fatal(r, err)
	}
	if b, _ := os.ReadFile(filepath.Join(n.root, "etc/sysctl.d/90-edge.conf")); string(b) != "by hand" {
		t.Fatalf("%s", b)
	}
	if b, _ := os.ReadFile(filepath.Join(n.root, "etc/motd")); string(b) != "theirs" {
		t.Fatalf("motd is %q", b)
	}
}

// Undo itself may be cut off: the next one goes on.
func TestAnUndoThatIsCutOffGoesOn(t *testing.T) {
	f := fixture(t)
	for range 5 {
		_, _ = f.Make().Update(t.Context(), f.Task)
	}
	for range 3 {
		if r, err := f.Make().Undo(t.Context(), f.Task); err != nil || !r.Done {
			t.Fatal(r, err)
		}
	}
	if got := strings.ReplaceAll(f.State(), "extra.service disabled inactive with \"\"\n", ""); got != f.From {
		t.Fatal(cmp.Diff(f.From, got))
	}
}

// The run ends with the configuration that it began with.
func TestTheConfigurationIsKeptForTheRun(t *testing.T) {
	n := newNode(t)
	tk := task(t, n, config())
	u := New(n, n.root, n.root+".json")
	restore := failpoint.OnHit(func(p string) {
		if p == failpoint.FilesKept {
			n.configs = nil
		}
	})
	defer restore()
	var r updaters.Result
	for range 5 {
		r, _ = u.Update(t.Context(), tk)
	}
	if !r.Done {
		t.Fatal(r)
	}
	altered := task(t, n2(t), config())
	n.configs = map[string]string{altered.Step.Params[model.ParamConfig]: `{"version":"refit.dev/config/v1"}`}
	if r, _ := u.Update(t.Context(), altered); !r.Failed || !strings.Contains(r.Message, "altered") {
		t.Fatal(r)
	}
}

func n2(t *testing.T) *simNode { return newNode(t) }

func TestFieldsSayWhatIsThere(t *testing.T) {
	n := newNode(t)
	c := config()
	u := New(n, n.root, n.root+".json")
	got := u.Fields(t.Context(), &c)
	want := map[string]string{
		"file//etc/motd":       model.FileValue(model.DigestOf([]byte("theirs")), 0o644, strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid())),
		"file//etc/probe.conf": model.FileValue(model.DigestOf([]byte("old")), 0o600, strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid())),
		"unit/cups.service":    "enabled",
		"unit/extra.service":   "disabled",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	tk := task(t, n, c)
	for range 5 {
		_, _ = u.Update(t.Context(), tk)
	}
	if diff := cmp.Diff(c.Fields(), u.Fields(t.Context(), &c)); diff != "" {
		t.Fatal(diff)
	}
}

// fromPayload is a file whose bytes a bundle brings.
func fromPayload(path, digest string) model.ConfigFile {
	f := file(path, "", model.DisruptionNone)
	f.Data, f.Payload, f.Digest = nil, "file.motd", digest
	return f
}

// A file of a bundle is written, observed, and undone like any other.
func TestAFileOfABundle(t *testing.T) {
	n := newNode(t)
	before := n.state()
	c := model.NodeConfig{Files: []model.ConfigFile{fromPayload("/etc/motd", n.hold(t, "of the bundle"))}}
	u, tk := New(n, n.root, n.root+".json"), task(t, n, c)
	if r, err := u.Update(t.Context(), tk); err != nil || !r.Done {
		t.Fatal(r, err)
	}
	if b, err := os.ReadFile(filepath.Join(n.root, "etc/motd")); err != nil || string(b) != "of the bundle" {
		t.Fatalf("%s %v", b, err)
	}
	if diff := cmp.Diff(c.Fields(), u.Fields(t.Context(), &c)); diff != "" {
		t.Error(diff)
	}
	if r, err := u.Undo(t.Context(), tk); err != nil || !r.Done {
		t.Fatal(r, err)
	}
	if diff := cmp.Diff(before, n.state()); diff != "" {
		t.Error(diff)
	}
}

// A payload that is not there fails the step before anything is changed; one that
// rotted is waited for, since it is fetched again.
func TestAFileOfABundleThatIsNotRight(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, n *simNode, digest string)
		failed bool
		says   string
	}{
		"no bundle brings it": {func(_ *testing.T, n *simNode, d string) { delete(n.held, d) }, true, "not on this node"},
		"it rotted": {func(t *testing.T, n *simNode, d string) {
			if err := os.WriteFile(n.held[d], []byte("rot"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false, "no longer matches its digest"},
		"it is too large": {func(t *testing.T, n *simNode, d string) {
			if err := os.Truncate(n.held[d], model.MaxFile+1); err != nil {
				t.Fatal(err)
			}
		}, true, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			before := n.state()
			digest := n.hold(t, "of the bundle")
			conf := model.NodeConfig{Files: []model.ConfigFile{fromPayload("/etc/motd", digest)}}
			c.spoil(t, n, digest)
			r, err := New(n, n.root, n.root+".json").Update(t.Context(), task(t, n, conf))
			if r.Done || r.Failed != c.failed || !strings.Contains(fmt.Sprint(r.Message, err), c.says) {
				t.Errorf("%+v %v, want %q", r, err, c.says)
			}
			if diff := cmp.Diff(before, n.state()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
