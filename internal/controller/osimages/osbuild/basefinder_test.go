package osbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// site is what is asked: NodeUpdates, and bundles by digest.
type site struct {
	client.Reader
	updates []v1alpha1.NodeUpdate
	bundles map[string]*fakeBundle
	broken  error
}

func (s *site) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*v1alpha1.NodeUpdateList).Items = s.updates
	return nil
}

func (s *site) Header(_ context.Context, d string) (*bundle.Header, error) {
	if b := s.bundles[d]; b != nil {
		return b.header, nil
	}
	return nil, errors.New("it is being fetched")
}

func (s *site) Blob(_ context.Context, h *bundle.Header, n int) ([]byte, error) {
	return s.bundles[h.Digest].blobs[n], s.broken
}

func (s *site) Stream(_ context.Context, h *bundle.Header, n int) io.ReadCloser {
	return io.NopCloser(bytes.NewReader(s.bundles[h.Digest].blobs[n]))
}

// fakeBundle is a bundle with some manifests of an index of two platforms.
type fakeBundle struct {
	header *bundle.Header
	blobs  [][]byte
}

func (s *fakeBundle) add(data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}
	s.blobs = append(s.blobs, data)
	s.header.Metadata.Blobs = append(s.header.Metadata.Blobs, bundle.Blob{Digest: d.Digest.String(), Size: d.Size})
	return d
}

func readText(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// index returns a bundle with an index of two platforms and the manifests of some of them.
func index(t *testing.T, name string, has ...string) (s *fakeBundle, dgst string) {
	t.Helper()
	s = &fakeBundle{header: &bundle.Header{Digest: "sha256:" + name, Metadata: &bundle.Metadata{Name: name}}}
	other := &fakeBundle{header: &bundle.Header{Metadata: &bundle.Metadata{}}}
	var idx ocispec.Index
	idx.SchemaVersion, idx.MediaType = 2, ocispec.MediaTypeImageIndex
	for _, arch := range []string{"amd64", "arm64"} {
		to := other
		if strings.Contains(strings.Join(has, " "), arch) {
			to = s
		}
		layer := to.add([]byte("kernel " + arch))
		layer.MediaType = ocispec.MediaTypeImageLayer
		config := to.add(readText(t, map[string]any{"architecture": arch, "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest.String()}}}))
		config.MediaType = ocispec.MediaTypeImageConfig
		m := to.add(readText(t, map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []ocispec.Descriptor{layer}}))
		m.MediaType, m.Platform = ocispec.MediaTypeImageManifest, &ocispec.Platform{OS: "linux", Architecture: arch}
		idx.Manifests = append(idx.Manifests, m)
	}
	top := s.add(readText(t, idx))
	img := bundle.Image{Name: "r.example/os/base:9", Digest: top.Digest.String(), MediaType: ocispec.MediaTypeImageIndex}
	for n := range s.blobs {
		img.Blobs = append(img.Blobs, n)
	}
	s.header.Metadata.Images = []bundle.Image{img}
	return s, img.Digest
}

func node(name string, approved []string, served ...string) v1alpha1.NodeUpdate {
	nu := v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodeUpdateStatus{Bundles: served}}
	for _, d := range approved {
		nu.Spec.Bundles = append(nu.Spec.Bundles, v1alpha1.ApprovedBundle{Digest: d})
	}
	return nu
}

// A bundle for one platform has one manifest of an index. The image is built for that platform
// alone, without a read of the other manifests.
func TestAnIndexOfWhichABundleHasAPart(t *testing.T) {
	b, dgst := index(t, "a", "amd64")
	s := &site{bundles: map[string]*fakeBundle{b.header.Digest: b}, updates: []v1alpha1.NodeUpdate{node("n1", nil, b.header.Digest)}}
	f := &Finder{Client: s, Bundles: s}
	base, why, err := f.Find(t.Context(), "r.example/os/base@"+dgst, "")
	if base == nil {
		t.Fatal(why, err)
	}
	platforms, err := base.Platforms(t.Context())
	if diff := cmp.Diff([]string{"linux/amd64"}, platforms); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	img, err := imagebuild.Append(t.Context(), imagebuild.AppendRequest{Base: base.Root, Platforms: platforms, Entries: []osimage.LayerEntry{{Path: "etc/motd", Mode: 0o644}}})
	if err != nil || len(img.Kept) != 1 || !base.Has(img.Kept[0]) || len(img.Manifests) != 2 {
		t.Fatalf("%v %+v", err, img)
	}
	if base.Has(ocispec.Descriptor{Digest: img.Kept[0].Digest, Size: 1}) || base.Has(img.Desc) {
		t.Error("Has reports a descriptor that the bundle does not have")
	}
	// A platform that the bundle misses cannot be built; a blob that no node sent yet is transient.
	if _, err := imagebuild.Append(t.Context(), imagebuild.AppendRequest{Base: base.Root, Platforms: []string{"linux/arm64"}}); err == nil || IsTransient(err) || !strings.Contains(err.Error(), "no small blob") {
		t.Error(err)
	}
	s.broken = errors.New("connection refused")
	if _, err := base.Platforms(t.Context()); !IsTransient(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	s.broken = nil
	b.blobs[len(b.blobs)-1] = []byte("{}")
	if _, err := base.Platforms(t.Context()); err == nil || IsTransient(err) || !strings.Contains(err.Error(), "other bytes") {
		t.Error("a blob with other bytes is believed: ", err)
	}
}

// The bundle that is used already stays; else the one that is wanted first has its way.
func TestWhichBundle(t *testing.T) {
	a, dgst := index(t, "a", "amd64")
	b, _ := index(t, "b", "amd64", "arm64")
	s := &site{bundles: map[string]*fakeBundle{a.header.Digest: a, b.header.Digest: b}}
	f := &Finder{Client: s, Bundles: s}
	for name, c := range map[string]struct {
		approved, served []string
		prefer, want     string
	}{
		"the one that is wanted first":           {[]string{"sha256:b", "sha256:a"}, []string{"sha256:a", "sha256:b"}, "", "sha256:b"},
		"the one that is used":                   {[]string{"sha256:b", "sha256:a"}, []string{"sha256:a", "sha256:b"}, "sha256:a", "sha256:a"},
		"the one that is used is nowhere now":    {[]string{"sha256:b"}, []string{"sha256:b"}, "sha256:a", "sha256:b"},
		"approved, and on no node":               {[]string{"sha256:b"}, nil, "", ""},
		"by a trusted key: served, not approved": {nil, []string{"sha256:a"}, "", "sha256:a"},
	} {
		s.updates = []v1alpha1.NodeUpdate{node("n1", c.approved, c.served...)}
		base, why, err := f.Find(t.Context(), "r.example/os/base@"+dgst, c.prefer)
		got := ""
		if base != nil {
			got = base.Bundle
		}
		if got != c.want || err != nil || (got == "") != (why != "") {
			t.Errorf("%s: %q, %q, %v", name, got, why, err)
		}
	}
}
