package bootstreams_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/registry"
)

var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
)

// bundles that nodes hold, by digest; nil is one without a stream.
type bundles map[string]*bundlefiles.File

func (b bundles) file(_ context.Context, digest, name string, most int64) (*bundlefiles.File, error) {
	if name != bundle.PayloadBootImages || most <= 0 {
		return nil, fmt.Errorf("asked for %s of at most %d bytes", name, most)
	}
	f, ok := b[digest]
	if !ok {
		return nil, fmt.Errorf("%w: %w", bundlefiles.ErrNotYet, errors.New("no node has the bundle's header"))
	}
	return f, nil
}

func (s *site) spec(spec v1alpha1.BootImageStreamSpec) {
	s.t.Helper()
	if err := s.c.Create(context.Background(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u1", Generation: 1}, Spec: spec}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) change(f func(*v1alpha1.BootImageStreamSpec)) {
	s.t.Helper()
	var l v1alpha1.BootImageStreamList
	if err := s.c.List(context.Background(), &l); err != nil {
		s.t.Fatal(err)
	}
	o := &l.Items[0]
	f(&o.Spec)
	o.Generation++
	if err := s.c.Update(context.Background(), o); err != nil {
		s.t.Fatal(err)
	}
}

const coreosOVA = `{"stream":"rhel-9.6","metadata":{"last-modified":"2025-10-24T00:00:00Z"},"architectures":{"x86_64":{"artifacts":{"vmware":{"release":"9.6.20251023-0","formats":{"ova":{"disk":{"location":"https://example.test/rhcos-vmware.ova","sha256":"%s"}}}}}}}}`

// A stream in a bundle is read once, with its release and the files in the bundle, and
// stays when the bundle is gone.
func TestStreamOfABundle(t *testing.T) {
	t.Parallel()
	s, held := newSite(t), bundles{}
	s.l.BundleFile = held.file
	s.spec(v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: digestA}})
	got, said := s.load()
	if got != nil || !strings.HasPrefix(said, "False StreamUnusable "+digestA) || !strings.Contains(said, "approve it") {
		t.Fatal(said)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("a disk")))
	meta := &bundle.Metadata{Name: "kubernetes", Version: "1.36.3", KubernetesVersion: "v1.36.3", Payloads: []bundle.Payload{
		{Name: bundle.PrefixBootImage + "vsphere.amd64.ova", Digest: "sha256:" + sum}, {Name: bundle.PayloadKubelet, Digest: digestB}}}
	held[digestA] = &bundlefiles.File{Bundle: meta, Data: fmt.Appendf(nil, coreosOVA, sum)}
	got, said = s.load() // at once: no node was asked before
	if got == nil || got.Release != "1.36.3" || got.Kubernetes != "v1.36.3" || !strings.HasPrefix(said, "True AsExpected") {
		t.Fatalf("%s %+v", said, got)
	}
	i, err := got.Data.Find(bootstream.Key{Architecture: "amd64", Platform: "vsphere"})
	if f, ok := i.DiskFile(); err != nil || !ok || f.Payload != "boot-image.vsphere.amd64.ova" || f.SHA256 != sum {
		t.Errorf("%v %+v", err, i)
	}
	delete(held, digestA) // the nodes have let it go
	s.now = s.now.Add(24 * time.Hour)
	if got, said = s.load(); got == nil {
		t.Error("it is gone with its bundle:", said)
	}
	// A person sets the release and edits other fields while no node has the bundle.
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.Release, b.Kubernetes = "4.19.3", "1.36.3" })
	if got, said = s.load(); got == nil || got.Release != "4.19.3" {
		t.Errorf("%s %+v", said, got)
	}
	// Another bundle is another stream.
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.Bundle.Digest = digestB })
	if got, said = s.load(); got != nil || !strings.Contains(said, digestB) {
		t.Error("the stream of another bundle is used:", said)
	}
}

func TestBundlesThatBringNoStream(t *testing.T) {
	t.Parallel()
	meta := &bundle.Metadata{Name: "apps", Version: "0.0.0"}
	for name, tc := range map[string]struct {
		file *bundlefiles.File
		want string
	}{
		"no payload":         {nil, "has no boot image stream: create it with refit bundle create boot-images:FILE"},
		"something else":     {&bundlefiles.File{Bundle: meta, Data: []byte("{}")}, "bundle apps 0.0.0: boot image stream: neither"},
		"an unknown release": {&bundlefiles.File{Bundle: meta, Data: fmt.Appendf(nil, coreosOVA, "00")}, "neither the data nor spec.release says which release"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.l.BundleFile = bundles{digestA: tc.file}.file
			s.spec(v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: digestA}})
			if got, said := s.load(); got != nil || !strings.HasPrefix(said, "False StreamUnusable") || !strings.Contains(said, tc.want) {
				t.Errorf("%s, want %q", said, tc.want)
			}
		})
	}
}

// What was uploaded is known by the sum of its file; one of another release is reported.
func TestUploadsOfAStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := fmt.Sprintf(coreosOVA, strings.Repeat("1", 64))
	s.spec(v1alpha1.BootImageStreamSpec{Inline: &data, Release: "4.19.3", Kubernetes: "1.36.3", Uploaded: []v1alpha1.UploadedImage{
		{SHA256: strings.Repeat("1", 64), Region: "hall-2", Attributes: map[string]string{"template": "two"}},
		{SHA256: strings.Repeat("1", 64), Attributes: map[string]string{"template": "all"}},
		{SHA256: strings.Repeat("2", 64)}}})
	got, said := s.load()
	if got == nil || !strings.HasPrefix(said, "True") || !strings.Contains(said, "no file of it has the SHA-256 that spec.uploaded names: 2222") {
		t.Fatal(said)
	}
	i, err := got.Data.Find(bootstream.Key{Architecture: "amd64", Platform: "vsphere"})
	if err != nil {
		t.Fatal(err)
	}
	for region, want := range map[string]string{"hall-2": "two", "hall-3": "all", "": "all"} {
		if u, ok := i.UploadForRegion(region); !ok || u.Attributes["template"] != want {
			t.Errorf("%q: %+v", region, u)
		}
	}
	if r, ok := got.Data.Recognise("vsphere", map[string]string{"template": "two"}); !ok || r.Version != "9.6.20251023-0" {
		t.Errorf("what was uploaded is not recognised: %+v", r)
	}
	if _, ok := got.Data.Recognise("vsphere", map[string]string{"template": "three"}); ok {
		t.Error("something else is")
	}
}

// An artifact with a digest is asked for once, one with a tag again; a registry that
// is unavailable deletes nothing.
func TestStreamOfARegistry(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var asked []string
	layer := []byte(list("1.36.3"))
	away := false
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		manifest := fmt.Appendf(nil, `{"schemaVersion":2,"layers":[{"digest":"sha256:%x","size":%d}]}`, sha256.Sum256(layer), len(layer))
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(manifest)))
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write(manifest)
		case strings.Contains(r.URL.Path, "/blobs/"):
			_, _ = w.Write(layer)
		}
	}))
	t.Cleanup(fake.Close)
	s.l.Registry = registry.NewPoller(&http.Transport{DisableKeepAlives: true}, func() time.Time { return s.now })
	repository := strings.TrimPrefix(fake.URL, "http://") + "/boot-images"
	s.spec(v1alpha1.BootImageStreamSpec{Artifact: &v1alpha1.StreamArtifact{Reference: repository + ":4.19", EveryMinutes: 60}})
	if got, said := s.load(); got == nil || got.Release != "1.36.3" || s.contents() != 1 {
		t.Fatal(said)
	}
	before := len(asked)
	if s.load(); len(asked) != before {
		t.Errorf("asked within the hour: %v", asked[before:])
	}
	layer, s.now = []byte(list("1.36.4")), s.now.Add(2*time.Hour)
	if got, said := s.load(); got == nil || got.Release != "1.36.4" {
		t.Errorf("the tag has moved: %s %+v", said, got)
	}
	away, s.now = true, s.now.Add(2*time.Hour)
	if got, said := s.load(); got == nil || got.Release != "1.36.4" {
		t.Error("it is gone with its registry:", said)
	}
	away, s.now = false, s.now.Add(2*time.Hour)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, `{"schemaVersion":2,"layers":[{"digest":"sha256:%x","size":%d}]}`, sha256.Sum256(layer), len(layer))))
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.Artifact.Reference = repository + "@" + digest })
	if got, said := s.load(); got == nil {
		t.Fatal(said)
	}
	before, s.now = len(asked), s.now.Add(48*time.Hour)
	if got, said := s.load(); got == nil || len(asked) != before {
		t.Errorf("what never changes is asked for again: %s %v", said, asked[before:])
	}
	layer = []byte(list("1.36.5")) // the registry serves other bytes
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.Artifact.Reference = repository + "@" + digestA })
	if got, said := s.load(); got != nil || !strings.Contains(said, "it answers with sha256:") {
		t.Error("other bytes than the digest says are taken:", said)
	}
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.Artifact.PullSecret = &v1alpha1.PullSecret{Name: "pull"} })
	s.now = s.now.Add(time.Hour)
	if got, said := s.load(); got != nil || !strings.Contains(said, "pull secret refit-builds/pull") {
		t.Error(said)
	}
}
