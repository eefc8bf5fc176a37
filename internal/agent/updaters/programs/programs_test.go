package programs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/model"
)

// simNode is a node whose runtime is a file with its version in it.
type simNode struct {
	bin, cni string
	running  string // content of containerd when it was started, "" if it does not run
	pid, age int
	sick     bool     // the new one does not come up
	loses    bool     // containers do not survive
	pods     []string // IDs of the running containers
	restarts int
}

func (n *simNode) path(name string) string { return filepath.Join(n.bin, name) }
func (n *simNode) text(name string) string { b, _ := os.ReadFile(n.path(name)); return string(b) }
func (n *simNode) PluginDir() string       { return n.cni }
func (n *simNode) What() string            { return "the container runtime" }
func (n *simNode) Log(context.Context) string {
	return "containerd: bad flag"
}
func (n *simNode) Program(_ context.Context, name string) (string, error) {
	if n.text(name) == "" {
		return "", nil
	}
	return n.path(name), nil
}
func (n *simNode) RuntimeReplaced(context.Context) (bool, error) {
	return n.running != "" && n.running != n.text("containerd"), nil
}
func (n *simNode) Process(context.Context) (string, error) {
	if n.running == "" {
		return "", nil
	}
	return fmt.Sprint(n.pid), nil
}
func (n *simNode) Restart(context.Context) error {
	n.restarts++
	n.pid++
	n.age, n.running = 0, n.text("containerd")
	if n.sick && n.running == "containerd 2" {
		n.running = ""
	}
	if n.loses {
		n.pods = n.pods[:1]
	}
	return nil
}
func (n *simNode) Unready(context.Context) string {
	if n.running == "" || n.age < 3 {
		return "the container runtime does not answer"
	}
	return ""
}
func (n *simNode) Containers(context.Context) ([]cri.Container, error) {
	if n.running == "" || n.age < 3 {
		return nil, errors.New("the container runtime does not answer")
	}
	var out []cri.Container
	for _, p := range n.pods {
		out = append(out, cri.Container{ID: p, Namespace: "ns", Pod: "pod-" + p, Name: "c", Running: true})
	}
	return out, nil
}

func (n *simNode) state() string {
	var out []string
	for _, dir := range []string{n.bin, n.cni} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
			out = append(out, e.Name()+"="+string(b))
		}
	}
	sort.Strings(out)
	if n.Unready(context.Background()) != "" {
		return strings.Join(out, " ") + " runtime away"
	}
	return strings.Join(out, " ") + " runs " + n.running
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// pack makes a payload of plugins.
func pack(t *testing.T, path string, zip bool, entries ...tar.Header) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		text := e.Linkname
		if e.Typeflag == 0 || e.Typeflag == tar.TypeReg {
			e.Typeflag, e.Size, e.Linkname = tar.TypeReg, int64(len(text)), ""
		}
		e.Mode = 0o755
		if err := w.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if e.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte(text))
		}
	}
	_ = w.Close()
	data := b.Bytes()
	if zip {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, _ = g.Write(data)
		_ = g.Close()
		data = z.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newNode(t *testing.T) (*simNode, string) {
	dir := t.TempDir()
	n := &simNode{bin: filepath.Join(dir, "bin"), cni: filepath.Join(dir, "cni"), running: "containerd 1", pid: 1, age: 100, pods: []string{"a", "b"}}
	for _, name := range []string{"containerd", "runc"} {
		write(t, n.path(name), name+" 1")
		write(t, filepath.Join(dir, "payload", name), name+" 2")
	}
	write(t, filepath.Join(n.cni, "bridge"), "bridge 1")
	write(t, filepath.Join(n.cni, "theirs"), "theirs")
	pack(t, filepath.Join(dir, "payload", PayloadPlugins), true, tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "./bridge", Linkname: "bridge 2"}, tar.Header{Name: "portmap", Linkname: "portmap 2"})
	return n, dir
}

func task(t *testing.T, dir string, names ...string) updaters.Task {
	digest := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, "payload", name))
		if err != nil {
			t.Fatal(err)
		}
		return model.DigestOf(b)
	}
	params := map[string]string{}
	for _, n := range names {
		if n == PayloadPlugins {
			params[model.FieldCNI] = digest(n)
		} else {
			params[model.FieldProgram+n] = digest(n)
		}
	}
	return updaters.Task{UID: "u", Attempt: 1, Started: time.Now(), Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "programs", Updater: "programs", Verb: "swap", Params: params},
		Payload: func(name string) (updaters.Payload, error) {
			if _, err := os.Stat(filepath.Join(dir, "payload", name)); err != nil {
				return updaters.Payload{}, updaters.ErrNoPayload
			}
			return updaters.Payload{Path: filepath.Join(dir, "payload", name), Digest: digest(name)}, nil
		}}
}

func fixture(t *testing.T) *updatertest.Fixture {
	n, dir := newNode(t)
	now := time.Now()
	return &updatertest.Fixture{
		Make:       func() updaters.Updater { u := New(n); u.now = func() time.Time { return now }; return u },
		Task:       task(t, dir, "containerd", "runc", PayloadPlugins),
		Tick:       func() { now = now.Add(time.Second); n.age++ },
		State:      n.state,
		From:       "bridge=bridge 1 containerd=containerd 1 runc=runc 1 theirs=theirs runs containerd 1",
		To:         "bridge=bridge 2 containerd=containerd 2 portmap=portmap 2 runc=runc 2 theirs=theirs runs containerd 2",
		Reversible: true, Break: func() { n.sick = true },
	}
}

func TestConformance(t *testing.T) { updatertest.Conform(t, fixture) }

// drive calls until the end.
func drive(t *testing.T, u *Updater, n *simNode, tk updaters.Task) updaters.Result {
	t.Helper()
	for range 500 {
		r, err := u.Update(t.Context(), tk)
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		n.age++
		before := u.now()
		u.now = func() time.Time { return before.Add(time.Second) }
	}
	t.Fatal("no end")
	return updaters.Result{}
}

func TestPrograms(t *testing.T) {
	t.Run("runc alone restarts nothing", func(t *testing.T) {
		n, dir := newNode(t)
		if r := drive(t, New(n), n, task(t, dir, "runc")); !r.Done || n.restarts != 0 {
			t.Fatal(r, n.restarts)
		}
	})
	t.Run("a runtime restarts once", func(t *testing.T) {
		n, dir := newNode(t)
		if r := drive(t, New(n), n, task(t, dir, "containerd")); !r.Done || n.restarts != 1 || r.Message != "" {
			t.Fatal(r, n.restarts)
		}
	})
	t.Run("containers that did not survive are named", func(t *testing.T) {
		n, dir := newNode(t)
		n.loses = true
		if r := drive(t, New(n), n, task(t, dir, "containerd")); !r.Done || !strings.Contains(r.Message, "1 of 2") || !strings.Contains(r.Message, "ns/pod-b/c") {
			t.Fatal(r)
		}
	})
	t.Run("a program that is not on the node is not installed", func(t *testing.T) {
		n, dir := newNode(t)
		write(t, filepath.Join(dir, "payload", "crun"), "crun 2")
		if r := drive(t, New(n), n, task(t, dir, "crun")); !r.Failed || !strings.Contains(r.Message, "no crun on this node") {
			t.Fatal(r)
		}
	})
	t.Run("a program that is not listed is not touched", func(t *testing.T) {
		n, dir := newNode(t)
		write(t, n.path("bash"), "bash")
		write(t, filepath.Join(dir, "payload", "bash"), "evil")
		if r := drive(t, New(n), n, task(t, dir, "bash")); !r.Failed || n.text("bash") != "bash" {
			t.Fatal(r)
		}
	})
	t.Run("a payload that is not the planned one replaces nothing", func(t *testing.T) {
		n, dir := newNode(t)
		tk := task(t, dir, "containerd", "runc")
		write(t, filepath.Join(dir, "payload", "runc"), "another")
		if r := drive(t, New(n), n, tk); !r.Failed || n.text("containerd") != "containerd 1" {
			t.Fatal(r, n.state())
		}
	})
	t.Run("a payload for another machine replaces nothing", func(t *testing.T) {
		n, dir := newNode(t)
		elf := make([]byte, 64)
		copy(elf, "\x7fELF\x02\x01\x01")
		elf[16], elf[18], elf[20], elf[52], elf[54], elf[58] = 2, 22, 1, 64, 56, 64 // s390
		write(t, filepath.Join(dir, "payload", "runc"), string(elf))
		if r := drive(t, New(n), n, task(t, dir, "runc")); !r.Failed || !strings.Contains(r.Message, "architecture") || n.text("runc") != "runc 1" {
			t.Fatal(r)
		}
	})
}

// A tar says of itself what it likes.
func TestHostilePlugins(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"a path that climbs":         {{Name: "../../etc/passwd", Linkname: "x"}},
		"an absolute path":           {{Name: "/etc/passwd", Linkname: "x"}},
		"a directory deeper":         {{Name: "a/b", Linkname: "x"}},
		"a hidden file":              {{Name: ".x", Linkname: "x"}},
		"a symbolic link":            {{Name: "bridge", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		"a device":                   {{Name: "bridge", Typeflag: tar.TypeChar}},
		"a good one, then a bad one": {{Name: "bridge", Linkname: "bridge 2"}, {Name: "x/y", Linkname: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, dir := newNode(t)
			pack(t, filepath.Join(dir, "payload", PayloadPlugins), false, entries...)
			before := n.state()
			if r := drive(t, New(n), n, task(t, dir, PayloadPlugins)); !r.Failed || !strings.Contains(r.Message, "plain files") {
				t.Fatal(r)
			}
			if diff := cmp.Diff(before, n.state()); diff != "" {
				t.Fatal(diff)
			}
		})
	}
	t.Run("no tar at all", func(t *testing.T) {
		n, dir := newNode(t)
		write(t, filepath.Join(dir, "payload", PayloadPlugins), strings.Repeat("x", 2000))
		if r := drive(t, New(n), n, task(t, dir, PayloadPlugins)); !r.Failed {
			t.Fatal(r)
		}
	})
}

func TestFields(t *testing.T) {
	n, dir := newNode(t)
	u := New(n)
	tk := task(t, dir, "containerd", "runc", PayloadPlugins)
	held := []model.PinSetPayload{{Name: "kubelet", Digest: "sha256:k"}, {Name: "crun", Digest: "sha256:c"}, {Name: PayloadPlugins, Bundle: "sha256:old", Digest: "sha256:older"}}
	digests := map[string]string{}
	for _, name := range []string{"containerd", "runc", PayloadPlugins} {
		p, _ := tk.Payload(name)
		digests[name] = p.Digest
		held = append(held, model.PinSetPayload{Name: name, Digest: p.Digest, Bundle: "sha256:new"})
	}
	find := func(bundle, name string) (updaters.Payload, error) {
		if bundle != "sha256:new" {
			return updaters.Payload{}, updaters.ErrNoPayload
		}
		return tk.Payload(name)
	}
	want := map[string]string{"program/containerd": model.DigestOf([]byte("containerd 1")), "program/runc": model.DigestOf([]byte("runc 1")), "cni/plugins": "others"}
	if diff := cmp.Diff(want, u.Fields(t.Context(), held, find)); diff != "" {
		t.Fatal(diff)
	}
	write(t, n.path("containerd"), "containerd 3") // by hand, not restarted
	if got := u.Fields(t.Context(), held, find)["program/containerd"]; !strings.HasSuffix(got, "(not running)") {
		t.Fatal(got)
	}
	write(t, n.path("containerd"), "containerd 1")
	drive(t, u, n, tk)
	want = map[string]string{"program/containerd": digests["containerd"], "program/runc": digests["runc"], "cni/plugins": digests[PayloadPlugins]}
	if diff := cmp.Diff(want, u.Fields(t.Context(), held, find)); diff != "" {
		t.Fatal(diff)
	}
}

// A distribution that brings its own network plugins has no directory for those of a bundle: nothing
// is written anywhere, also by an undo.
func TestPluginsWithoutAPlace(t *testing.T) {
	n, dir := newNode(t)
	n.cni = ""
	tk := task(t, dir, PayloadPlugins)
	if r := drive(t, New(n), n, tk); !r.Failed || !strings.Contains(r.Message, "has no place on this node") {
		t.Fatal(r)
	}
	t.Chdir(dir)
	write(t, filepath.Join(dir, "bridge"), "not a plugin")
	if _, err := New(n).Undo(t.Context(), tk); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "bridge")); err != nil {
		t.Errorf("an undo removed a file of the working directory: %v", err)
	}
}
