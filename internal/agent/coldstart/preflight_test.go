package coldstart

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

func layer(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		content := strings.Repeat(f+" ", 100)
		must(t, w.WriteHeader(&tar.Header{Name: f, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a machine with a bundle in its library and a runtime on disk.
type node struct {
	conf    agentconfig.Config
	runtime *store
	header  *bundle.Header
	lib     *bundlestore.Library
	boot    int
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: unpacking sets owners")
	}
	dir := t.TempDir()
	n := &node{conf: agentconfig.Config{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run")}}
	base := layer(t, "bin/base", "lib/base.so")
	raw := bundletest.Bytes(t, bundletest.Spec{Images: []bundletest.Image{
		{Name: "r.example/a:1", Layers: [][]byte{base, layer(t, "bin/a")}},
		{Name: "r.example/b:1", Layers: [][]byte{base, layer(t, "bin/b")}},
	}})
	f, err := bundlereader.Open(bytes.NewReader(raw), int64(len(raw)))
	must(t, err)
	n.header = f.Header()
	n.lib = bundlestore.OpenLibrary(n.conf.StateDir, slog.New(slog.DiscardHandler), refuse(t))
	shelf, err := n.lib.Add(n.header)
	must(t, err)
	var all []int
	for i := range n.header.Chunks.Len() {
		all = append(all, i)
	}
	must(t, bundlestore.Copy(t.Context(), f, shelf, all, func(int64) {}))
	w := &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "pins-1", Bundles: []v1alpha1.ApprovedBundle{{Digest: n.header.Digest}}}}
	for _, i := range n.header.Metadata.Images {
		w.Pins.Images = append(w.Pins.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: n.header.Digest})
	}
	must(t, w.Save(n.conf.Path("want.json")))
	n.runtime = &store{dir: filepath.Join(dir, "runtime"), names: map[string]string{}, pins: map[string]bool{}}
	return n
}

// starts the machine: what Run says.
func (n *node) starts(t *testing.T) Report {
	t.Helper()
	n.boot++
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Config: n.conf, Runtime: n.runtime, BootID: fmt.Sprint(n.boot), Pause: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	return r
}

func (n *node) ends(t *testing.T) {
	t.Helper()
	must(t, RecordShutdown(n.conf, fmt.Sprint(n.boot)))
}

func (n *node) whole(t *testing.T) {
	t.Helper()
	for _, i := range n.header.Metadata.Images {
		if !n.runtime.pins[i.Name] {
			t.Errorf("%s is not pinned", i.Name)
		}
		parts, err := n.runtime.Parts(t.Context(), cri.Target{Name: i.Name, Digest: i.Digest})
		must(t, err)
		for _, p := range parts {
			if p.File != "" {
				if d, err := fsutil.Digest(p.File); d != p.Digest {
					t.Errorf("%s: blob %s is not whole: %s %v", i.Name, p.Digest, d, err)
				}
				continue
			}
			f, err := n.runtime.blobs.Open(p.Digest)
			must(t, err)
			x, err := IndexLayer(t.Context(), f)
			must(t, err)
			f.Close()
			if d, err := x.Check(t.Context(), p.Dir, true); err != nil || d.Found() {
				t.Errorf("%s: %s %v", i.Name, d, err)
			}
		}
	}
}

// store is a runtime on disk: blobs as files, a directory a layer.
type store struct {
	dir   string
	names map[string]string // name to digest
	pins  map[string]bool
	blobs cri.Blobs
	taken []string
	pods  int
	deaf  int // answers that are errors
	// strange makes a part look torn that cannot be repaired.
	strange string
}

func (s *store) file(d string) string {
	return filepath.Join(s.dir, "blobs", strings.TrimPrefix(d, "sha256:"))
}
func (s *store) fs(d string) string {
	return filepath.Join(s.dir, "fs", strings.TrimPrefix(d, "sha256:"))
}

func (s *store) Present(context.Context) (out []pin.RuntimeImage, err error) {
	if s.deaf > 0 {
		s.deaf--
		return nil, errors.New("it does not answer")
	}
	for n, d := range s.names {
		if _, err := s.children(d); err == nil { // as containerd: what it cannot read it does not list
			out = append(out, pin.RuntimeImage{ID: d, Tags: []string{n}, Digests: []string{pin.Repository(n) + "@" + d}, Pinned: s.pins[n]})
		}
	}
	return out, nil
}

// children of a manifest: configuration, then layers.
func (s *store) children(manifest string) ([]string, error) {
	b, err := os.ReadFile(s.file(manifest))
	if err != nil {
		return nil, err
	}
	var m struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	out := []string{m.Config.Digest}
	for _, l := range m.Layers {
		out = append(out, l.Digest)
	}
	return out, nil
}

func (s *store) Parts(_ context.Context, img cri.Target) ([]cri.Part, error) {
	if s.names[img.Name] != img.Digest {
		return nil, cri.ErrNoImage
	}
	// As CRI-O: a piece of an image may be empty, and is no blob of the bundle.
	empty := filepath.Join(s.dir, "empty")
	if err := errors.Join(os.MkdirAll(s.dir, 0o700), os.WriteFile(empty, nil, 0o600)); err != nil {
		return nil, err
	}
	parts := []cri.Part{{Digest: s.strange + bundle.DigestOf(nil), File: empty}, {Digest: img.Digest, File: s.file(img.Digest)}}
	all, err := s.children(img.Digest)
	if err != nil {
		return parts, err
	}
	for i, d := range all {
		parts = append(parts, cri.Part{Digest: d, File: s.file(d)})
		if i > 0 {
			parts = append(parts, cri.Part{Digest: d, Dir: s.fs(d), Base: i == 1})
		}
	}
	return parts, nil
}

func (s *store) Load(ctx context.Context, img cri.Target, blobs cri.Blobs) ([]string, error) {
	s.blobs = blobs
	for todo := []string{img.Digest}; len(todo) > 0; todo = todo[1:] {
		f, err := blobs.Open(todo[0])
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if got := bundle.DigestOf(b); got != todo[0] {
			return nil, fmt.Errorf("blob %s has digest %s", todo[0], got)
		}
		if err := fsutil.WriteFile(s.file(todo[0]), b, 0o600); err != nil {
			return nil, err
		}
		if todo[0] != img.Digest {
			continue
		}
		all, err := s.children(img.Digest)
		if err != nil {
			return nil, err
		}
		todo = append(todo, all...)
	}
	all, err := s.children(img.Digest)
	if err != nil {
		return nil, err
	}
	for i, d := range all[1:] {
		b, err := os.ReadFile(s.file(d))
		if err != nil {
			return nil, err
		}
		if err := RestoreLayer(ctx, s.fs(d), bytes.NewReader(b), d, i == 0); err != nil {
			return nil, err
		}
	}
	s.names[img.Name], s.pins[img.Name] = img.Digest, true
	return []string{img.Name}, nil
}

func (s *store) Pin(_ context.Context, img cri.Target) ([]string, bool, error) {
	ok := s.names[img.Name] == img.Digest
	s.pins[img.Name] = s.pins[img.Name] || ok
	return []string{img.Name}, ok, nil
}

func (s *store) Unpin(_ context.Context, names []string) error {
	for _, n := range names {
		delete(s.pins, n)
	}
	return nil
}

func (s *store) Refresh(context.Context, cri.Target) error { return nil }

func (s *store) RemovePods(context.Context) error { s.pods = 0; return nil }

func (s *store) Remove(_ context.Context, name string) error {
	s.taken = append(s.taken, name)
	delete(s.names, name)
	delete(s.pins, name)
	return nil
}

func zero(t *testing.T, path string) {
	t.Helper()
	must(t, os.Truncate(path, 0))
}

// For any damage by a power cut in the runtime's store, the node has its images when the
// kubelet starts, from its own copy alone.
func TestAfterAPowerCut(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, n *node, img bundle.Image, children []string){
		"nothing is torn": func(*testing.T, *node, bundle.Image, []string) {},
		"the whole store was wiped": func(t *testing.T, n *node, _ bundle.Image, _ []string) {
			must(t, os.RemoveAll(n.runtime.dir))
			clear(n.runtime.names)
			clear(n.runtime.pins)
		},
		"its records are there and nothing else": func(t *testing.T, n *node, _ bundle.Image, _ []string) { must(t, os.RemoveAll(n.runtime.dir)) },
		"a manifest of no bytes":                 func(t *testing.T, n *node, img bundle.Image, _ []string) { zero(t, n.runtime.file(img.Digest)) },
		"a configuration of no bytes, and a layer's blob": func(t *testing.T, n *node, _ bundle.Image, c []string) {
			zero(t, n.runtime.file(c[0]))
			zero(t, n.runtime.file(c[1]))
		},
		"a file of no bytes in a layer that two images share": func(t *testing.T, n *node, _ bundle.Image, c []string) {
			zero(t, filepath.Join(n.runtime.fs(c[1]), "bin/base"))
		},
		"a file of zeroes of the right size": func(t *testing.T, n *node, _ bundle.Image, c []string) {
			path := filepath.Join(n.runtime.fs(c[1]), "bin/base")
			st, err := os.Stat(path)
			must(t, err)
			must(t, os.WriteFile(path, make([]byte, st.Size()), 0o755))
		},
		"a layer that is gone": func(t *testing.T, n *node, _ bundle.Image, c []string) { must(t, os.RemoveAll(n.runtime.fs(c[2]))) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.starts(t)
			n.whole(t)
			children, err := n.runtime.children(n.header.Metadata.Images[0].Digest)
			must(t, err)
			spoil(t, n, n.header.Metadata.Images[0], children)
			r := n.starts(t)
			if !r.Unclean || r.Images != 2 || len(r.Missing) > 0 || (name == "nothing is torn") != (len(r.Restored) == 0) {
				t.Errorf("%+v", r)
			}
			n.whole(t)
			if r = n.starts(t); len(r.Damage)+len(r.Restored) > 0 {
				t.Errorf("the next time: %+v", r)
			}
		})
	}
}

// After an orderly end sizes are compared, and contents are not read.
func TestAnOrderlyEndIsCheaper(t *testing.T) {
	n := newNode(t)
	n.starts(t)
	n.ends(t)
	children, err := n.runtime.children(n.header.Metadata.Images[0].Digest)
	must(t, err)
	zero(t, filepath.Join(n.runtime.fs(children[2]), "bin/a"))
	r := n.starts(t)
	if r.Unclean || len(r.Damage) != 1 || len(r.Restored) != 1 {
		t.Errorf("%+v", r)
	}
	n.whole(t)
	if r = n.starts(t); !r.Unclean { // no shutdown was recorded since
		t.Errorf("%+v", r)
	}
	// A note of another boot says nothing.
	n.ends(t)
	n.boot++
	must(t, os.WriteFile(n.conf.Path(cleanFile), []byte("77\n"), 0o600))
	if r = n.starts(t); !r.Unclean {
		t.Errorf("%+v", r)
	}
}

// Without a copy a torn image never starts, and an intact one does. The node comes up, and
// the report lists the missing images.
func TestWithoutACopy(t *testing.T) {
	n := newNode(t)
	n.starts(t)
	children, err := n.runtime.children(n.header.Metadata.Images[0].Digest)
	must(t, err)
	(&Indexer{Config: n.conf, Runtime: n.runtime, Log: slog.New(slog.DiscardHandler)}).Index(t.Context(), heldImages(n), n.lib)
	must(t, n.lib.Collect(map[string]bool{n.header.Digest: true}, nil)) // no blob is kept
	zero(t, n.runtime.file(children[2]))
	zero(t, filepath.Join(n.runtime.fs(children[2]), "bin/a"))
	r := n.starts(t)
	if len(r.Missing) != 1 || r.Missing[0].Image != "r.example/a:1" || !strings.Contains(r.Missing[0].Why, "no whole copy") || r.Unchecked > 0 {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(n.runtime.taken, []string{"r.example/a:1"}) || n.runtime.names["r.example/b:1"] == "" {
		t.Errorf("taken out: %v, there: %v", n.runtime.taken, n.runtime.names)
	}
}

func heldImages(n *node) (out []model.PinSetImage) {
	for _, i := range n.header.Metadata.Images {
		out = append(out, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: n.header.Digest})
	}
	return out
}

// The runtime's own blob repairs its unpacked layer when the copy is gone; a corrupt copy
// is not used, and is wanted again.
func TestSourcesOfARepair(t *testing.T) {
	n := newNode(t)
	n.starts(t)
	children, err := n.runtime.children(n.header.Metadata.Images[0].Digest)
	must(t, err)
	path, err := n.lib.Blobs().Path(children[2])
	must(t, err)
	rotten, err := os.ReadFile(path)
	must(t, err)
	rotten[10] ^= 1
	must(t, os.WriteFile(path, rotten, 0o600))
	zero(t, filepath.Join(n.runtime.fs(children[2]), "bin/a"))
	r := n.starts(t)
	if len(r.Restored) != 1 || len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}
	lib := bundlestore.OpenLibrary(n.conf.StateDir, slog.New(slog.DiscardHandler), refuse(t))
	if lib.Blobs().Has(children[2]) {
		t.Error("a rotten copy still counts as one")
	}
}

// A store with pieces that we do not understand costs a load, never an image that
// this node has a copy of.
func TestAStoreThatIsNotUnderstood(t *testing.T) {
	n := newNode(t)
	n.starts(t)
	n.runtime.strange = "x"
	if r := n.starts(t); len(r.Missing) > 0 || len(n.runtime.names) != 2 {
		t.Errorf("%+v; left: %v", r, n.runtime.names)
	}
}

// A drill takes everything out at the next start, once, and puts it back.
func TestADrillIsPlayedOnce(t *testing.T) {
	n := newNode(t)
	n.starts(t)
	n.ends(t)
	n.runtime.pods = 3
	for want := range 2 {
		if fresh, err := Arm(n.conf, "d1", fmt.Sprint(n.boot)); err != nil || fresh != (want == 0) {
			t.Fatal(fresh, err)
		}
	}
	n.boot-- // still the boot in which it was asked
	must(t, os.Remove(stampPath(n.conf)))
	if r := n.starts(t); r.Drill != "" || n.runtime.pods != 3 {
		t.Fatalf("%+v", r)
	}
	n.ends(t)
	r := n.starts(t)
	if r.Drill != "d1" || len(r.Restored) != 2 || len(r.Missing) > 0 || r.Files == 0 || n.runtime.pods != 0 || len(n.runtime.taken) != 2 {
		t.Errorf("%+v, %v", r, n.runtime.taken)
	}
	n.whole(t)
	n.ends(t)
	if r = n.starts(t); r.Drill != "" || len(r.Restored) > 0 || r.Unclean {
		t.Errorf("it was played again: %+v", r)
	}
}

// A runtime that does not answer is asked again; a boot that was checked is not
// checked again; a node whose desired state is unknown is not held up.
func TestTries(t *testing.T) {
	n := newNode(t)
	n.runtime.deaf = 5
	n.starts(t)
	n.whole(t)
	n.boot--
	n.runtime.deaf = 1 << 30
	n.starts(t)
	n.runtime.deaf = 0
	must(t, os.WriteFile(n.conf.Path("want.json"), []byte("{"), 0o600))
	n.starts(t)
	if _, err := os.Stat(n.conf.Path("want.json")); !os.IsNotExist(err) {
		t.Errorf("the damaged file is still there: %v", err)
	}
	n.starts(t)
}
