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

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
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

// added appends a layer to a base as the controller does.
func added(t *testing.T, base oci.Root) model.ImageOverlay {
	t.Helper()
	img, err := imagebuild.Append(t.Context(), imagebuild.AppendRequest{Base: base, Entries: []osimage.LayerEntry{{Path: "etc/motd", Mode: 0o644, Data: []byte("hello\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	own := model.ImageOverlay{Digest: img.Digest(), MediaType: img.Desc.MediaType, Base: base.Desc.Digest.String()}
	for _, b := range append(slices.Clone(img.Blobs), img.Manifests...) {
		if err := own.AddBlob(b.Data); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

// madeOf is an image assembled on the site from the first image of a bundle.
func madeOf(t *testing.T, spec bundletest.Spec, h *bundle.Header) (model.ImageOverlay, model.PinSetImage) {
	t.Helper()
	store := memory{}
	for _, b := range bundletest.Make(t, spec).Blobs {
		store[bundle.DigestOf(b)] = b
	}
	base := h.Metadata.Images[0]
	root := oci.Root{Name: "r.example/os/base@" + base.Digest, Store: store, Desc: ocispec.Descriptor{MediaType: base.MediaType, Digest: digest.Digest(base.Digest), Size: int64(len(store[base.Digest]))}}
	own := added(t, root)
	return own, model.PinSetImage{Name: "refit.invalid/os/edge:1", Digest: own.Digest, Bundle: h.Digest, Base: own.Base}
}

// No registry is involved. The controller reads the parts of a base that it needs from a node.
// Every node, also one without the medium, assembles the image from the base and the overlay. A
// node that loses its image or its overlay restores both.
func TestAnImageThatWasMadeOnTheSite(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n1, n2 := newTestNode(t, "n1", 17968, path), newTestNode(t, "n2", 17969)
	introduce(n1, n2)
	approve(t, h, everything(h), n1, n2)
	n1.reported("everything held", held)
	want, img := madeOf(t, bundletest.Tiny(), h)
	own := readFrom(t, n1, h, "r.example/os/base@"+want.Base)
	if own.Digest != want.Digest {
		t.Fatalf("assembled over the wire: %s, locally: %s", own.Digest, want.Digest)
	}
	list := everything(h)
	for _, n := range []*testNode{n1, n2} {
		img.Overlay = n.api.content(t, v1alpha1.ContentOSImage, own)
		list.Images = append(everything(h).Images, img)
		approve(t, h, list, n)
		s := n.reported("the image that was made too", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && s.Pins.ImagesPinned == 3 })
		if !n.runtime.has(img.Name) || s.ColdStart == nil || s.ColdStart.Copies != 3 {
			t.Errorf("%s: %+v %+v", n.name, s.Pins, s.ColdStart)
		}
	}
	// The API server is unavailable, the agent restarted, its overlay blobs are corrupt, and
	// the runtime lost the image: this node alone restores it.
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
	wake(n2.agent.wakeImages)
	waitFor(t, "the image is back", func() bool { return n2.runtime.has(img.Name) })

	// It is wanted no more: its parts go, and nothing of the bundle does.
	approve(t, h, everything(h), n1)
	waitFor(t, "its parts are gone", func() bool {
		return !slices.ContainsFunc(own.Blobs, func(b model.OverlayBlob) bool { return n1.agent.library.Blobs().Has(b.Digest) })
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

// readFrom assembles the image as the controller does, which reads the base from one agent.
func readFrom(t *testing.T, n *testNode, h *bundle.Header, ref string) model.ImageOverlay {
	t.Helper()
	reader := controllerReader(t, n)
	allowController(n, reader)
	ctx := t.Context()
	f := &osbuild.Finder{Client: oneNode{node: n}, Bundles: reader}
	var base *osbuild.Base
	var err error
	why := ""
	for range 300 { // a failed header is retried after some seconds
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

// The agent verifies an overlay at every step. It loads nothing that does not match the pin set,
// and continues with the other images.
func TestOverlaysThatDoNotMatch(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	for i, c := range []struct {
		name  string
		spoil func(*model.ImageOverlay, *model.PinSetImage)
		says  string
	}{
		{"a blob with other bytes", func(m *model.ImageOverlay, _ *model.PinSetImage) { m.Blobs[0].Gzip = m.Blobs[1].Gzip }, "other bytes"},
		{"the parts of another image", func(_ *model.ImageOverlay, i *model.PinSetImage) { i.Digest = "sha256:" + strings.Repeat("1", 64) }, "belongs to another image"},
		{"of another base", func(_ *model.ImageOverlay, i *model.PinSetImage) { i.Base = h.Metadata.Images[1].Digest }, "belongs to another image"},
		{"not there", func(m *model.ImageOverlay, _ *model.PinSetImage) { m.Blobs = nil }, "belongs to another image"},
		{"a blob with a huge size", func(m *model.ImageOverlay, _ *model.PinSetImage) { m.Blobs[0].Size = model.MaxOverlayBlob + 1 }, "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t, "n1", 17970+i, path)
			own, img := madeOf(t, bundletest.Tiny(), h)
			c.spoil(&own, &img)
			img.Overlay = n.api.content(t, v1alpha1.ContentOSImage, own)
			list := everything(h)
			list.Images = append(list.Images, img)
			approve(t, h, list, n)
			s := n.reported("the other images, and why this one is missing", func(s *v1alpha1.NodeUpdateStatus) bool {
				text, err := json.Marshal(s)
				return err == nil && s.Pins != nil && s.Pins.ImagesPinned == 2 && strings.Contains(string(text), c.says)
			})
			if n.runtime.has(img.Name) || held(s) {
				t.Errorf("it is pinned: %+v", s.Pins)
			}
		})
	}
}
