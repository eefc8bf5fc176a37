//go:build linux

package osimages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// bundleStore has the bundles that the nodes serve.
type bundleStore struct {
	all map[string]storedBundle
	// unavailable: no node sends a blob. read lists the digests of the blobs that were sent.
	unavailable bool
	read        []string
	// tampered: nodes stream other bytes.
	tampered bool
}

func (s *bundleStore) Stream(_ context.Context, h *bundle.Header, n int) io.ReadCloser {
	b := bytes.Clone(s.all[h.Digest].parts.Blobs[n])
	if s.tampered && h.Metadata.Blobs[n].Size > 1 {
		b[len(b)-1]++
	}
	return io.NopCloser(bytes.NewReader(b))
}

type storedBundle struct {
	header *bundle.Header
	parts  bundletest.Parts
}

func (s *bundleStore) Header(_ context.Context, digest string) (*bundle.Header, error) {
	if x, ok := s.all[digest]; ok {
		return x.header, nil
	}
	return nil, errors.New("the bundle's header is not here yet")
}

func (s *bundleStore) Blob(_ context.Context, h *bundle.Header, n int) ([]byte, error) {
	if s.unavailable {
		return nil, errors.New("no node has it")
	}
	s.read = append(s.read, h.Metadata.Blobs[n].Digest)
	return s.all[h.Digest].parts.Blobs[n], nil
}

// addBundle adds a bundle with a base of a version.
func (s *bundleStore) addBundle(t *testing.T, version string) (h *bundle.Header) {
	t.Helper()
	p := bundletest.Make(t, bundletest.Spec{Name: "site", Version: version + ".0.0", Images: []bundletest.Image{{Name: "r.example/os/base:" + version, Layers: [][]byte{bytes.Repeat([]byte("kernel "+version), 100), []byte("userland")}}}})
	h, err := bundle.ParseHeader(p.Header(t))
	if err != nil {
		t.Fatal(err)
	}
	s.all[h.Digest] = storedBundle{h, p}
	return h
}

// offline is a site whose registry is not to be asked for anything.
func offline(t *testing.T) (*site, *bundleStore) {
	t.Helper()
	w, s := newSite(t), &bundleStore{all: map[string]storedBundle{}}
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

func (w *site) serveBundles(node string, digests ...string) {
	w.t.Helper()
	w.setStatus(node, func(st *v1alpha1.NodeUpdateStatus) { st.Bundles = digests })
}

// A site without a registry builds the image of a pool from a base in a bundle. The build
// reads only the manifest and configuration of the base, and the desired state of the nodes
// names the layers. The status reports what the build waits for.
func TestWithoutARegistry(t *testing.T) {
	w, s := offline(t)
	other, h := s.addBundle(t, "8"), s.addBundle(t, "9")
	base := h.Metadata.Images[0]
	w.joinNode("n1")
	w.create(forNodes(base.Digest), pool(), config())
	waits := func(says string) {
		t.Helper()
		c := ready(w.reconcileAndBuild())
		if c.Reason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(c.Message, says) || len(w.allBuilds()) != 0 {
			t.Errorf("want %q: %+v, %d builds", says, c, len(w.allBuilds()))
		}
	}
	waits("is not held by any node yet: insert a bundle that has it")
	w.serveBundles("n1", "sha256:"+strings.Repeat("1", 64))
	waits("catalogue is being read from the nodes")
	w.serveBundles("n1", other.Digest)
	waits("bundle site has r.example/os/base:8@" + other.Metadata.Images[0].Digest)

	// The bundle is known, but no node serves its blobs yet: the build waits without an attempt.
	w.serveBundles("n1", other.Digest, h.Digest)
	s.unavailable = true
	for range 6 {
		w.reconcileAndBuild()
	}
	b := w.allBuilds()[0]
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BuildBuilding)
	if b.Status.Phase != v1alpha1.BuildBuilding || b.Status.Attempts != 0 || c == nil || c.Reason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(c.Message, "no node has it") {
		t.Fatalf("%+v", b.Status)
	}
	s.unavailable, s.tampered = false, true
	p := w.pool(w.reconcileAndBuild())
	b = *w.build(p.Build)
	if p.State != "Use" || p.Image != "refit.invalid/os/edge@"+b.Status.Digest || b.Status.Parts == "" || b.Spec.Output != v1alpha1.OutputNodes || !strings.Contains(b.Status.PackagesSay, "are on the nodes") {
		t.Fatalf("%+v %+v %+v", p, b.Spec, b.Status)
	}
	if len(s.read) == 0 {
		t.Error("nothing of the base was read")
	}
	for _, l := range [][]byte{bytes.Repeat([]byte("kernel 9"), 100), []byte("userland")} {
		if strings.Contains(fmt.Sprint(s.read), model.DigestOf(l)) {
			t.Error("a layer of the base was read")
		}
	}
	// What is in the image comes from the nodes too, and from its parts; bytes that a node
	// altered say nothing about it.
	if p.Facts != "" || !strings.Contains(p.FactsMessage, "other bytes") {
		t.Errorf("%q %q", p.Facts, p.FactsMessage)
	}
	s.tampered, w.now = false, w.now.Add(factsRest)
	if p = w.pool(w.reconcileAndBuild()); p.Facts == "" || p.FactsMessage != "" {
		t.Errorf("%q %q", p.Facts, p.FactsMessage)
	}
	// The pin set tells the nodes which layers to assemble.
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
	w.checkComplete(b.Status.Parts, b.Status.Digest, s.all[h.Digest].parts)
	list := w.assignPins("n1", model.PinSetImage{Name: "refit.invalid/os/edge:" + b.Name, Digest: b.Status.Digest, Bundle: h.Digest, Base: base.Digest, Overlay: b.Status.Parts})
	w.setStatus("n1", func(st *v1alpha1.NodeUpdateStatus) {
		st.Bundles, st.Pins = []string{h.Digest}, &v1alpha1.PinStatus{Content: list, ImagesTotal: 1, ImagesReady: 1, ImagesPinned: 1}
	})
	if p := w.pool(w.reconcileAndBuild()); p.Prepulled != "1/1" || p.PrepullReason != "" || w.set() == nil {
		t.Errorf("held, and %+v, set %v", p, w.set())
	}

	// The Content with the layers is deleted: the same build writes the same Content again.
	uid := b.UID
	w.must(w.r.Client.Delete(context.Background(), &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: b.Status.Parts}}))
	if p := w.pool(w.reconcileAndBuild()); p.Build != b.Name || w.build(p.Build).UID == uid || w.build(p.Build).Status.Digest != b.Status.Digest || w.build(p.Build).Status.Parts != b.Status.Parts {
		t.Errorf("%+v %+v", p, w.build(p.Build).Status)
	}
	// The controller is killed after it wrote the Content and before it wrote the status of the
	// build: the repeated build finds the Content and names it.
	w.must(w.admin.Delete(context.Background(), w.build(b.Name)))
	if p := w.pool(w.reconcileAndBuild()); p.Build != b.Name || w.build(p.Build).Status.Parts != b.Status.Parts || w.build(p.Build).Status.Digest != b.Status.Digest {
		t.Errorf("%+v %+v", p, w.build(p.Build).Status)
	}
	// The bundle is removed: the desired state of the nodes stays, and the status explains why a new node waits.
	w.joinNode("n2")
	w.serveBundles("n1")
	p = w.pool(w.reconcileAndBuild())
	if p.PrepullReason != v1alpha1.ReasonOSBaseNotPinned || !strings.Contains(p.PrepullMessage, "any more") || cmp.Diff(want, w.set().Spec) != "" {
		t.Errorf("%+v %+v", p, w.set().Spec)
	}
	// Another image waits, too, and the pool keeps its current one.
	w.editConfig(func(c *v1alpha1.NodeConfigSpec) { c.KernelArguments = append(c.KernelArguments, "debug") })
	o := w.reconcileAndBuild()
	if q := w.pool(o); q.Image != p.Image || q.State != "Wait" || ready(o).Reason != v1alpha1.ReasonOSBaseNotPinned {
		t.Errorf("%+v", q)
	}
}

// checkComplete checks that the overlay and the blobs of the base are a complete image.
func (w *site) checkComplete(parts, digest string, base bundletest.Parts) {
	w.t.Helper()
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: parts}, &c))
	m, err := model.ParseImageOverlay(c.Data)
	w.must(err)
	have := map[string][]byte{}
	for _, b := range base.Blobs {
		have[model.DigestOf(b)] = b
	}
	for _, b := range m.Blobs {
		data, err := b.Decompress()
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

// Settings that need a registry are refused with their fix.
func TestWithoutARegistryRefuses(t *testing.T) {
	w, s := offline(t)
	h := s.addBundle(t, "9")
	w.joinNode("n1")
	w.serveBundles("n1", h.Digest)
	w.create(forNodes(h.Metadata.Images[0].Digest), pool(), config(func(c *v1alpha1.NodeConfigSpec) { c.Packages = []v1alpha1.PackageName{"chrony"} }))
	if c := ready(w.reconcileAndBuild()); c.Reason != v1alpha1.ReasonOSImageInvalid || !strings.Contains(c.Message, "spec.output: Nodes runs nothing") {
		t.Errorf("%+v", c)
	}
	w.editConfig(func(c *v1alpha1.NodeConfigSpec) { c.Packages = nil })
	w.editImage(func(o *v1alpha1.OSImageSpec) { o.Platforms = []string{"linux/s390x"} })
	if c := ready(w.reconcileAndBuild()); c.Reason != v1alpha1.ReasonImageBuildFailed || !strings.Contains(c.Message, "has no platform linux/s390x") {
		t.Errorf("%+v", c)
	}
}
