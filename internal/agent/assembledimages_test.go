package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// memory is a store of blobs by digest.
type memory map[string][]byte

func (memory) String() string { return "memory" }

func (m memory) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	b, ok := m[d.Digest.String()]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// added makes an image of a base as the controller does.
func added(t *testing.T, base oci.Root) model.MadeImage {
	t.Helper()
	img, err := imagebuild.Append(t.Context(), imagebuild.AppendRequest{Base: base, Entries: []osimage.LayerEntry{{Path: "etc/motd", Mode: 0o644, Data: []byte("hello\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	own := model.MadeImage{Digest: img.Digest(), MediaType: img.Desc.MediaType, Base: base.Desc.Digest.String()}
	for _, b := range append(slices.Clone(img.Blobs), img.Manifests...) {
		if err := own.Add(b.Data); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

// madeOf is an image that was made on the site of the first one of a bundle.
func madeOf(t *testing.T, spec bundletest.Spec, h *bundle.Header) (model.MadeImage, model.HeldImage) {
	t.Helper()
	store := memory{}
	for _, b := range bundletest.Make(t, spec).Blobs {
		store[bundle.DigestOf(b)] = b
	}
	base := h.Metadata.Images[0]
	root := oci.Root{Name: "r.example/os/base@" + base.Digest, Store: store, Desc: ocispec.Descriptor{MediaType: base.MediaType, Digest: digest.Digest(base.Digest), Size: int64(len(store[base.Digest]))}}
	own := added(t, root)
	return own, model.HeldImage{Name: "refit.invalid/os/edge:1", Digest: own.Digest, Bundle: h.Digest, Base: own.Base}
}

// Without any registry: the controller reads of a base that a stick brought only what it
// needs, from a node; every node puts the image together from what it has and what the
// controller made, also one that has no stick; and it stays, whatever is lost.
func TestAnImageThatWasMadeOnTheSite(t *testing.T) {
	path, h := stick(t, bundletest.Tiny(), 1)
	n1, n2 := newTestNode(t, "n1", 17968, path), newTestNode(t, "n2", 17969)
	introduce(n1, n2)
	approve(t, h, everything(h), n1, n2)
	n1.reported("everything held", held)
	want, img := madeOf(t, bundletest.Tiny(), h)
	own := readFrom(t, n1, h, "r.example/os/base@"+want.Base)
	if own.Digest != want.Digest {
		t.Fatalf("over the wire it is %s, and %s beside it", own.Digest, want.Digest)
	}
	list := everything(h)
	for _, n := range []*testNode{n1, n2} {
		img.Made = n.api.content(t, v1alpha1.ContentOSImage, own)
		list.Images = append(everything(h).Images, img)
		approve(t, h, list, n)
		s := n.reported("the image that was made too", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && s.Pins.ImagesPinned == 3 })
		if !n.runtime.has(img.Name) || s.ColdStart == nil || s.ColdStart.Copies != 3 {
			t.Errorf("%s: %+v %+v", n.name, s.Pins, s.ColdStart)
		}
	}
	// The API server is away, the agent was restarted, its parts have rotted, and the
	// runtime has lost the image: it comes back from this node alone.
	n2.stop()
	n2.api.mu.Lock()
	n2.api.away = true
	n2.api.mu.Unlock()
	for _, b := range own.Blobs {
		file, err := n2.agent.library.Blobs().Path(b.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, b.Size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n2.start()
	n2.runtime.mu.Lock()
	delete(n2.runtime.images, img.Name)
	n2.runtime.mu.Unlock()
	wake(n2.agent.wakeHold)
	waitFor(t, "the image is back", func() bool { return n2.runtime.has(img.Name) })

	// It is wanted no more: its parts go, and nothing of the bundle does.
	approve(t, h, everything(h), n1)
	waitFor(t, "its parts are gone", func() bool {
		return !slices.ContainsFunc(own.Blobs, func(b model.MadeBlob) bool { return n1.agent.library.Blobs().Has(b.Digest) })
	})
	if _, ok := n1.agent.library.Shelf(h.Digest).Target(list.Images[0], platform()); !ok {
		t.Error("the base went with it")
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// readFrom makes the image as the controller, which reads from one agent.
func readFrom(t *testing.T, n *testNode, h *bundle.Header, ref string) model.MadeImage {
	t.Helper()
	key, _, err := peerapi.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	hs := bundlefiles.NewHeaders(id)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = hs.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Peers = append(s.Peers, v1alpha1.Peer{Node: "controller", Address: "127.0.0.1:1", PublicKey: id.PublicKey()})
	})
	f := &osbuild.Finder{Client: oneNode{node: n}, Bundles: &bundlefiles.Reader{Client: oneNode{node: n}, Headers: hs, Identity: id}}
	var base *osbuild.Base
	why := ""
	for range 300 { // a header that could not be had is asked for again after some seconds
		if base, why, err = f.Find(ctx, ref, ""); base != nil || err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if base == nil || base.Bundle != h.Digest {
		t.Fatal(why, err)
	}
	if p, err := base.Platforms(ctx); len(p) != 0 || err != nil {
		t.Error("an image of one platform has", p, err)
	}
	if _, why, err := f.Find(ctx, ref[:len(ref)-1]+"x", ""); err != nil || !strings.Contains(why, "insert a bundle that has it") {
		t.Error(why, err)
	}
	return added(t, base.Root)
}

// What a Content says is compared at every step: nothing comes into the runtime that is
// not what the hold list wants, and the node does all else meanwhile.
func TestPartsThatAreNotTheImages(t *testing.T) {
	path, h := stick(t, bundletest.Tiny(), 1)
	for i, c := range []struct {
		name  string
		spoil func(*model.MadeImage, *model.HeldImage)
		says  string
	}{
		{"a blob with other bytes", func(m *model.MadeImage, _ *model.HeldImage) { m.Blobs[0].Gzip = m.Blobs[1].Gzip }, "other bytes"},
		{"the parts of another image", func(_ *model.MadeImage, i *model.HeldImage) { i.Digest = "sha256:" + strings.Repeat("1", 64) }, "another image's"},
		{"of another base", func(_ *model.MadeImage, i *model.HeldImage) { i.Base = h.Metadata.Images[1].Digest }, "another image's"},
		{"not there", func(m *model.MadeImage, _ *model.HeldImage) { m.Blobs = nil }, "another image's"},
		{"a blob that is said to be huge", func(m *model.MadeImage, _ *model.HeldImage) { m.Blobs[0].Size = model.MaxMadeBlob + 1 }, "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t, "n1", 17970+i, path)
			own, img := madeOf(t, bundletest.Tiny(), h)
			c.spoil(&own, &img)
			img.Made = n.api.content(t, v1alpha1.ContentOSImage, own)
			list := everything(h)
			list.Images = append(list.Images, img)
			approve(t, h, list, n)
			s := n.reported("the other images held, and why not this one", func(s *v1alpha1.NodeUpdateStatus) bool {
				text, err := json.Marshal(s)
				return err == nil && s.Pins != nil && s.Pins.ImagesPinned == 2 && strings.Contains(string(text), c.says)
			})
			if n.runtime.has(img.Name) || held(s) {
				t.Errorf("it is held: %+v", s.Pins)
			}
		})
	}
}
