package agent

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// deltaPair is a bundle, the next release of it, and the delta between them, each in a file.
type deltaPair struct {
	oldPath, path, delta string
	old, target          *bundle.Header
}

// programs is the content of a layer: bytes that do not compress, with a change in each thousand in
// later releases.
func programs(size int, release byte) []byte {
	r := rand.New(rand.NewPCG(uint64(size), 1))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
		if i%1000 == 7 {
			b[i] = release
		}
	}
	return b
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// release has layers that stay, one that is patched, one in gzip that is patched and packed again,
// and one that is new.
func release(t *testing.T, n byte) bundletest.Spec {
	t.Helper()
	text := bytes.Repeat([]byte("a line of a text that is packed well; "), 3000)
	copy(text[50000:], fmt.Sprintf("release %d", n))
	return bundletest.Spec{Name: "site", Version: fmt.Sprintf("1.0.%d", n), ChunkSize: 4096, Images: []bundletest.Image{
		{Name: fmt.Sprintf("registry.example/app:%d", n), Layers: [][]byte{programs(60000, 0), programs(150000, n), gzipped(t, append(programs(40000, n), text...))}},
		{Name: fmt.Sprintf("registry.example/tool:%d", n), Layers: [][]byte{programs(60000, 0), programs(1000+int(n), n)}},
	}, Payloads: []bundletest.Payload{{Name: "file.tool", Content: programs(90000, n)}}}
}

func releases(t *testing.T) deltaPair {
	t.Helper()
	var p deltaPair
	p.oldPath, p.old = mediumWith(t, release(t, 1), 1)
	p.path, p.target = mediumWith(t, release(t, 2), 1)
	p.delta = filepath.Join(t.TempDir(), "delta")
	from, err := bundlereader.OpenPath(p.oldPath)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := bundlereader.OpenPath(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := bundledelta.Create(t.Context(), from, to, p.delta, nil); err != nil {
		t.Fatal(err)
	}
	p.checkKinds(t)
	return p
}

// checkKinds checks that the delta has blobs of every kind.
func (p deltaPair) checkKinds(t *testing.T) {
	t.Helper()
	d, err := bundledelta.OpenPath(p.delta)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	kinds := map[string]int{}
	for i := range p.target.Metadata.Blobs {
		_, kind := d.Blob(i)
		kinds[kind]++
	}
	if kinds[bundledelta.KindCopied] != 1 || kinds[bundledelta.KindPatched] < 3 || kinds[bundledelta.KindNew] < 1 {
		t.Fatalf("the delta has %v", kinds)
	}
}

// both is what the controller lets nodes have during an update.
func (p deltaPair) both() model.PinSet {
	l := everything(p.old)
	now := everything(p.target)
	l.Images, l.Payloads = append(l.Images, now.Images...), append(l.Payloads, now.Payloads...)
	return l
}

// port is a USB port in which one medium after the other is plugged.
func port(t *testing.T) (path string, plug func(n *testNode, file string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "port")
	return path, func(n *testNode, file string) {
		t.Helper()
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		wake(n.agent.wakeMedia)
	}
}

// isWhole checks that the store of a node has every byte of the bundle.
func (p deltaPair) isWhole(t *testing.T, n *testNode) {
	t.Helper()
	f, err := bundlereader.OpenPath(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := n.agent.library.Shelf(p.target.Digest)
	for k := range p.target.Chunks.Len() {
		want, err := f.ReadChunk(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(k); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: chunk %d of blob %d: %v", n.name, k, p.target.Chunks.Chunk(k).Blob, err)
		}
	}
}

func mediumState(state, text string) func(*v1alpha1.NodeUpdateStatus) bool {
	return func(s *v1alpha1.NodeUpdateStatus) bool {
		return slices.ContainsFunc(s.Media, func(m v1alpha1.Medium) bool { return m.State == state && strings.Contains(m.Message, text) })
	}
}

// A node that has the old bundle restores the new one from a stick with the delta.
func TestDeltaRestoredFromTheStore(t *testing.T) {
	p := releases(t)
	at, plug := port(t)
	n := newTestNode(t, "n1", 18100, at)
	plug(n, p.oldPath)
	approve(t, p.old, everything(p.old), n)
	n.reported("the old bundle is held", held)
	plug(n, p.delta)
	s := n.reported("the delta is found", mediumState(v1alpha1.MediumRefused, "needs the base bundle site 1.0.1 ("+p.old.Digest+")"))
	if m := s.Media[0]; m.Digest != p.target.Digest || m.Name != "site" || m.Version != "1.0.2" {
		t.Errorf("%+v", m)
	}
	if n.agent.library.Shelf(p.target.Digest) != nil {
		t.Error("the header is stored before it is approved")
	}
	approve(t, p.target, p.both(), n)
	n.reported("the new bundle is held", func(s *v1alpha1.NodeUpdateStatus) bool {
		return held(s) && s.Pins.ImagesTotal == 4 && s.Pins.BytesDone == s.Pins.BytesTotal
	})
	n.reported("the stick may be pulled", mediumState(v1alpha1.MediumCopied, "may be pulled"))
	p.isWhole(t, n)
}

// The base may be on another medium, also without approval: the new bundle has it.
func TestDeltaRestoredFromASecondMedium(t *testing.T) {
	p := releases(t)
	at, plug := port(t)
	n := newTestNode(t, "n1", 18101, at, p.delta)
	approve(t, p.target, everything(p.target), n)
	n.reported("the base is missing", func(s *v1alpha1.NodeUpdateStatus) bool {
		_, reason := condition(s, v1alpha1.ConditionReconciling)
		return reason == v1alpha1.ReasonBaseContentMissing && strings.Contains(s.Message, "bundle "+p.old.Digest) &&
			mediumState(v1alpha1.MediumFound, "which is not on this node: plug in its medium too")(s)
	})
	plug(n, p.oldPath)
	n.reported("held", held)
	p.isWhole(t, n)
	if n.agent.library.Shelf(p.old.Digest) != nil {
		t.Error("the header of the base is stored without approval")
	}
}

// One node that restores supplies all others, also those that never had the base. What it does not
// need itself it restores for them.
func TestDeltaRestoredForPeers(t *testing.T) {
	p := releases(t)
	at, plug := port(t)
	a, b, c := newTestNode(t, "n1", 18102, at), newTestNode(t, "n2", 18103), newTestNode(t, "n3", 18104)
	introduce(a, b, c)
	plug(a, p.oldPath)
	approve(t, p.old, everything(p.old), a, b)
	for _, n := range []*testNode{a, b} {
		n.reported("the old bundle is held", held)
	}
	plug(a, p.delta)
	own := p.both()
	own.Images, own.Payloads = own.Images[:3], own.Payloads[:1] // no tool
	approve(t, p.target, own, a)
	approve(t, p.target, everything(p.target), b, c)
	for _, n := range []*testNode{a, b, c} {
		n.reported("the new bundle is held", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && slices.Contains(s.Bundles, p.target.Digest) })
	}
	for _, n := range []*testNode{b, c} {
		p.isWhole(t, n)
	}
	a.reported("the stick may be pulled", mediumState(v1alpha1.MediumCopied, "may be pulled"))
}

// Nodes of two roles have different images of the base: the one with the stick gets from its peer what
// it needs of the base.
func TestDeltaWithBaseFromAPeer(t *testing.T) {
	p := releases(t)
	at, plug := port(t)
	a, b := newTestNode(t, "n1", 18107, at), newTestNode(t, "n2", 18108)
	introduce(a, b)
	plug(a, p.oldPath)
	own, others := everything(p.old), everything(p.old)
	own.Images, own.Payloads, others.Images = own.Images[1:], nil, others.Images[:1]
	approve(t, p.old, own, a)
	approve(t, p.old, others, b)
	for _, n := range []*testNode{a, b} {
		n.reported("the old bundle is held", held)
	}
	plug(a, p.delta)
	for n, list := range map[*testNode]model.PinSet{a: own, b: others} {
		now := everything(p.target)
		list.Images, list.Payloads = append(list.Images, now.Images...), append(list.Payloads, now.Payloads...)
		approve(t, p.target, list, n)
	}
	for _, n := range []*testNode{a, b} {
		n.reported("the new bundle is held", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && slices.Contains(s.Bundles, p.target.Digest) })
		p.isWhole(t, n)
	}
}

// A delta with other bytes gives nothing, and says so; a cut one too.
func TestDamagedDelta(t *testing.T) {
	p := releases(t)
	raw, err := os.ReadFile(p.delta)
	if err != nil {
		t.Fatal(err)
	}
	altered := bytes.Clone(raw)
	at := bytes.Index(raw, programs(1002, 2)[100:200]) // of the layer that the delta has whole
	if at < 0 {
		t.Fatal("the delta does not have the new layer")
	}
	altered[at] ^= 1
	for name, tc := range map[string]struct {
		raw  []byte
		text string
		port int
	}{
		"altered": {altered, "cannot be made", 18105},
		"cut":     {raw[:len(raw)-100], "copy it again", 18106},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad")
			if err := os.WriteFile(bad, tc.raw, 0o600); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			second := filepath.Join(dir, "old")
			if err := os.Link(p.oldPath, second); err != nil {
				t.Fatal(err)
			}
			n := newTestNode(t, "n1", tc.port, onMedium(t, bad), second)
			approve(t, p.old, everything(p.old), n)
			n.reported("the old bundle is held", held)
			approve(t, p.target, p.both(), n)
			n.reported("the delta is refused", func(s *v1alpha1.NodeUpdateStatus) bool {
				return mediumState(v1alpha1.MediumUnreadable, tc.text)(s) && !held(s)
			})
			// Nothing wrong is in the store; the full bundle completes it.
			if err := os.Remove(second); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(p.path, second); err != nil {
				t.Fatal(err)
			}
			wake(n.agent.wakeMedia)
			n.reported("held", held)
			p.isWhole(t, n)
		})
	}
}

// The process is killed with SIGKILL while it restores, and the next one goes on with what is there.
func TestKilledWhileRestoring(t *testing.T) {
	p := releases(t)
	for _, point := range []string{failpoint.MediumCopy + ":30", failpoint.ChunkWritten + ":20", failpoint.BlobSync + ":2", failpoint.BlobRename + ":3"} {
		t.Run(point, func(t *testing.T) {
			f := files{t.TempDir()}
			api := newFakeAPI()
			say := func(digest string, list model.PinSet, medium string) {
				t.Helper()
				raw, err := os.ReadFile(medium)
				if err != nil {
					t.Fatal(err)
				}
				nu := &v1alpha1.NodeUpdate{}
				nu.Generation = 1
				nu.Spec.Bundles = []v1alpha1.ApprovedBundle{{Digest: digest}}
				nu.Spec.Pins = api.content(t, v1alpha1.ContentPins, list)
				for _, err := range []error{os.RemoveAll(f.path("status")), os.WriteFile(f.path("stick"), raw, 0o600), f.write("nodeupdate", nu), f.write(nu.Spec.Pins, api.contents[nu.Spec.Pins])} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			say(p.old.Digest, everything(p.old), p.oldPath)
			if err := start(t, f); err != nil {
				t.Fatalf("the old bundle: %v", err)
			}
			say(p.target.Digest, p.both(), p.delta)
			if err := os.WriteFile(f.path("state/failpoint"), []byte(point), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := start(t, f); !wasKilled(err) {
				t.Fatalf("the point was not reached: %v", err)
			}
			before := len(blobsIn(t, f))
			if err := start(t, f); err != nil {
				t.Fatalf("the second process: %v", err)
			}
			var s v1alpha1.NodeUpdateStatus
			f.read("status", &s)
			if after := len(blobsIn(t, f)); !held(&s) || len(runtimeFiles{f}.state().Images) != 4 || s.Pins.BytesDone != s.Pins.BytesTotal || after <= before || s.Pins.BytesFromPeers > 0 {
				t.Fatalf("held %v, %d blobs before and %d after, %+v", held(&s), before, after, s.Pins)
			}
		})
	}
}

// blobsIn lists the complete blobs in the store of a killed process.
func blobsIn(t *testing.T, f files) []string {
	t.Helper()
	list, err := filepath.Glob(f.path("state/blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(p string) bool { return strings.HasSuffix(p, ".part") })
}
