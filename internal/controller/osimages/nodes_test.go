//go:build linux

package osimages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// shelves are bundles that nodes have.
type shelves struct {
	all map[string]shelf
	// away: no node sends a blob; read are those that were sent.
	away bool
	read []string
}

type shelf struct {
	header *bundle.Header
	parts  bundletest.Parts
}

func (s *shelves) Header(_ context.Context, digest string) (*bundle.Header, error) {
	if x, ok := s.all[digest]; ok {
		return x.header, nil
	}
	return nil, errors.New("the bundle's header is not here yet")
}

func (s *shelves) Blob(_ context.Context, h *bundle.Header, n int) ([]byte, error) {
	if s.away {
		return nil, errors.New("no node has it")
	}
	s.read = append(s.read, h.Metadata.Blobs[n].Digest)
	return s.all[h.Digest].parts.Blobs[n], nil
}

// put a bundle with a base of some version there.
func (s *shelves) put(t *testing.T, version string) (h *bundle.Header) {
	t.Helper()
	p := bundletest.Make(t, bundletest.Spec{Name: "site", Version: version + ".0.0", Images: []bundletest.Image{{Name: "r.example/os/base:" + version, Layers: [][]byte{bytes.Repeat([]byte("kernel "+version), 100), []byte("userland")}}}})
	h, err := bundle.ParseHeader(p.Header(t))
	if err != nil {
		t.Fatal(err)
	}
	s.all[h.Digest] = shelf{h, p}
	return h
}

// offline is a site whose registry is not to be asked for anything.
func offline(t *testing.T) (*site, *shelves) {
	t.Helper()
	w, s := newWorld(t), &shelves{all: map[string]shelf{}}
	w.r.Bases = &osbuild.Finder{Client: w.r.Live, Bundles: s}
	w.builds.Bases = w.r.Bases
	w.reg.Requests()
	t.Cleanup(func() {
		if got := w.reg.Requests(); len(got) != 0 {
			t.Errorf("a registry was asked: %v", got)
		}
	})
	return w, s
}

func forNodes(base string) *v1alpha1.OSImage {
	return &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: "r.example/os/base@" + base}, Output: v1alpha1.OutputNodes}}
}

func (w *site) serves(node string, digests ...string) {
	w.t.Helper()
	w.says(node, func(st *v1alpha1.NodeUpdateStatus) { st.Bundles = digests })
}

// The image of a pool is made on a site without any registry: of a base that a bundle
// brings, of which only manifest and configuration are read, and nodes are told where
// its parts are. What it waits for is said.
func TestWithoutARegistry(t *testing.T) {
	w, s := offline(t)
	other, h := s.put(t, "8"), s.put(t, "9")
	base := h.Metadata.Images[0]
	w.joins("n1")
	w.create(forNodes(base.Digest), pool(), config())
	waits := func(says string) {
		t.Helper()
		c := ready(w.work())
		if c.Reason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(c.Message, says) || len(w.all()) != 0 {
			t.Errorf("want %q: %+v, %d builds", says, c, len(w.all()))
		}
	}
	waits("is not held by any node yet: insert a bundle that has it")
	w.serves("n1", "sha256:"+strings.Repeat("1", 64))
	waits("catalogue is being read from the nodes")
	w.serves("n1", other.Digest)
	waits("bundle site has r.example/os/base:8@" + other.Metadata.Images[0].Digest)

	// The bundle is there, and no node has sent anything of it yet: that is no fault.
	w.serves("n1", other.Digest, h.Digest)
	s.away = true
	for range 6 {
		w.work()
	}
	b := w.all()[0]
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BuildBuilding)
	if b.Status.Phase != v1alpha1.BuildBuilding || b.Status.Attempts != 0 || c == nil || c.Reason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(c.Message, "no node has it") {
		t.Fatalf("%+v", b.Status)
	}
	s.away = false
	p := w.pool(w.work())
	b = *w.build(p.Build)
	if p.State != "Use" || p.Image != "refit.invalid/os/edge@"+b.Status.Digest || b.Status.Parts == "" || b.Spec.Output != v1alpha1.OutputNodes || !strings.Contains(b.Status.PackagesSay, "are on the nodes") {
		t.Fatalf("%+v %+v %+v", p, b.Spec, b.Status)
	}
	if len(s.read) == 0 {
		t.Error("of the base nothing was read")
	}
	for _, l := range [][]byte{bytes.Repeat([]byte("kernel 9"), 100), []byte("userland")} {
		if strings.Contains(fmt.Sprint(s.read), model.DigestOf(l)) {
			t.Error("a layer of the base was read")
		}
	}
	// Nodes are told what to put together.
	set := w.set()
	if set == nil {
		t.Fatal("no set has the nodes hold it")
	}
	want := v1alpha1.PinnedImageSetSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}}, Bundle: h.Digest,
		Groups: []v1alpha1.ImageGroup{{Name: "os", Images: []v1alpha1.PinnedImage{{Name: "refit.invalid/os/edge:" + b.Name, Digest: b.Status.Digest, Base: base.Digest, Parts: b.Status.Parts}}}}}
	if diff := cmp.Diff(want, set.Spec); diff != "" {
		t.Error(diff)
	}
	if p.Prepulled != "0/1" || p.PrepullReason != v1alpha1.ReasonImagesMissing || !strings.Contains(p.PrepullMessage, "put it together") {
		t.Errorf("%+v", p)
	}
	w.whole(b.Status.Parts, b.Status.Digest, s.all[h.Digest].parts)
	list := w.told("n1", model.HeldImage{Name: "refit.invalid/os/edge:" + b.Name, Digest: b.Status.Digest, Bundle: h.Digest, Base: base.Digest, Made: b.Status.Parts})
	w.says("n1", func(st *v1alpha1.NodeUpdateStatus) {
		st.Bundles, st.Pins = []string{h.Digest}, &v1alpha1.PinStatus{Content: list, ImagesTotal: 1, ImagesReady: 1, ImagesPinned: 1}
	})
	if p := w.pool(w.work()); p.Prepulled != "1/1" || p.PrepullReason != "" || w.set() == nil {
		t.Errorf("held, and %+v, set %v", p, w.set())
	}

	// What it is made of goes from the cluster: the same build gives the same again.
	uid := b.UID
	w.must(w.r.Client.Delete(context.Background(), &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: b.Status.Parts}}))
	if p := w.pool(w.work()); p.Build != b.Name || w.build(p.Build).UID == uid || w.build(p.Build).Status.Digest != b.Status.Digest || w.build(p.Build).Status.Parts != b.Status.Parts {
		t.Errorf("%+v %+v", p, w.build(p.Build).Status)
	}
	// The controller dies after the Content is written and before the build says so: the
	// Content is there, and the build that is made again names it.
	w.must(w.admin.Delete(context.Background(), w.build(b.Name)))
	if p := w.pool(w.work()); p.Build != b.Name || w.build(p.Build).Status.Parts != b.Status.Parts || w.build(p.Build).Status.Digest != b.Status.Digest {
		t.Errorf("%+v %+v", p, w.build(p.Build).Status)
	}
	// The bundle goes: what nodes were told stays, and one that comes later is explained.
	w.joins("n2")
	w.serves("n1")
	p = w.pool(w.work())
	if p.PrepullReason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(p.PrepullMessage, "any more") || cmp.Diff(want, w.set().Spec) != "" {
		t.Errorf("%+v %+v", p, w.set().Spec)
	}
	// So does another image: it waits, and the pool keeps its own.
	w.say(func(c *v1alpha1.NodeConfigSpec) { c.KernelArguments = append(c.KernelArguments, "debug") })
	o := w.work()
	if q := w.pool(o); q.Image != p.Image || q.State != "Wait" || ready(o).Reason != v1alpha1.ReasonOSBaseNotPinned {
		t.Errorf("%+v", q)
	}
}

// whole: the parts and the base's blobs are an image without a gap.
func (w *site) whole(parts, digest string, base bundletest.Parts) {
	w.t.Helper()
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: parts}, &c))
	m, err := model.OpenMadeImage(c.Data)
	w.must(err)
	have := map[string][]byte{}
	for _, b := range base.Blobs {
		have[model.DigestOf(b)] = b
	}
	for _, b := range m.Blobs {
		data, err := b.Open()
		w.must(err)
		have[b.Digest] = data
	}
	if m.Digest != digest || have[digest] == nil {
		w.t.Fatalf("the parts are of %s, not of %s", m.Digest, digest)
	}
	var doc struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	w.must(json.Unmarshal(have[digest], &doc))
	if have[doc.Config.Digest] == nil || len(doc.Layers) != 3 {
		w.t.Errorf("%+v", doc)
	}
	for _, l := range doc.Layers {
		if have[l.Digest] == nil {
			w.t.Errorf("layer %s is nowhere", l.Digest)
		}
	}
}

// What cannot be on such a site is refused with what cures it.
func TestWithoutARegistryRefuses(t *testing.T) {
	w, s := offline(t)
	h := s.put(t, "9")
	w.joins("n1")
	w.serves("n1", h.Digest)
	w.create(forNodes(h.Metadata.Images[0].Digest), pool(), config(func(c *v1alpha1.NodeConfigSpec) { c.Packages = []v1alpha1.PackageName{"chrony"} }))
	if c := ready(w.work()); c.Reason != v1alpha1.ReasonOSImageInvalid || !strings.Contains(c.Message, "spec.output: Nodes runs nothing") {
		t.Errorf("%+v", c)
	}
	w.say(func(c *v1alpha1.NodeConfigSpec) { c.Packages = nil })
	w.change(func(o *v1alpha1.OSImageSpec) { o.Platforms = []string{"linux/s390x"} })
	if c := ready(w.work()); c.Reason != v1alpha1.ReasonImageBuildFailed || !strings.Contains(c.Message, "has no platform linux/s390x") {
		t.Errorf("%+v", c)
	}
}
