package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// memory is a store in memory.
type memory map[digest.Digest][]byte

func (m memory) String() string { return "memory" }

func (m memory) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	b, ok := m[d.Digest]
	if !ok {
		return nil, fmt.Errorf("no %s: %w", d.Digest, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m memory) put(mediaType string, v any) ocispec.Descriptor {
	b, ok := v.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(v); err != nil {
			panic(err)
		}
	}
	d := digest.FromBytes(b)
	m[d] = b
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(b))}
}

// image puts an image for a platform with one layer.
func (m memory) image(p ocispec.Platform, layer string) ocispec.Descriptor {
	d := m.put(ocispec.MediaTypeImageManifest, ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: m.put(ocispec.MediaTypeImageConfig, ocispec.Image{Platform: p}),
		Layers: []ocispec.Descriptor{m.put(ocispec.MediaTypeImageLayer, []byte(layer))}})
	d.Platform = &p
	return d
}

func (m memory) index(children ...ocispec.Descriptor) ocispec.Descriptor {
	return m.put(ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: children})
}

var (
	amd64 = ocispec.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = ocispec.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
)

func TestWalkTakesWhatWasAskedFor(t *testing.T) {
	m := memory{}
	a, b := m.image(amd64, "a"), m.image(arm64, "b")
	attestation := m.image(ocispec.Platform{OS: "unknown", Architecture: "unknown"}, "att")
	multi := m.index(a, b, attestation)
	for sentence, c := range map[string]struct {
		desc      ocispec.Descriptor
		platforms []string
		nodes     int
		got       []string
		err       string
	}{
		"everything, attestations too":          {multi, nil, 10, []string{"linux/amd64", "linux/arm64/v8"}, ""},
		"one platform without attestations":     {multi, []string{"linux/amd64"}, 4, []string{"linux/amd64"}, ""},
		"a platform without naming its variant": {multi, []string{"linux/arm64"}, 4, []string{"linux/arm64/v8"}, ""},
		"two platforms":                         {multi, []string{"linux/amd64", "linux/arm64"}, 7, []string{"linux/amd64", "linux/arm64/v8"}, ""},
		"a platform that is not there":          {multi, []string{"linux/s390x"}, 0, nil, "has no platform linux/s390x; it has linux/amd64, linux/arm64/v8"},
		"a single image of another platform":    {a, []string{"linux/arm64"}, 0, nil, "has no platform linux/arm64; it has linux/amd64"},
		"an index in an index":                  {m.index(multi), []string{"linux/amd64"}, 5, []string{"linux/amd64"}, ""},
		"indexes without end":                   {m.index(m.index(m.index(m.index(m.index(multi))))), nil, 0, nil, "deep"},
		"the same image twice":                  {m.index(a, a), nil, 4, []string{"linux/amd64"}, ""},
	} {
		g, err := Walk(t.Context(), Root{Name: "x", Desc: c.desc, Store: m}, c.platforms)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v", sentence, err)
			}
			continue
		}
		if err != nil || len(g.Nodes) != c.nodes || cmp.Diff(c.got, g.Platforms) != "" || g.Nodes[0].Desc.Digest != c.desc.Digest {
			t.Errorf("%s: %d nodes, platforms %v, %v", sentence, len(g.Nodes), g.Platforms, err)
		}
	}
}

// Sources that cannot be loaded, also hostile ones, are refused with the reason.
func TestWalkRefuses(t *testing.T) {
	m := memory{}
	config := m.put(ocispec.MediaTypeImageConfig, ocispec.Image{Platform: amd64})
	manifest := func(change func(*ocispec.Manifest)) ocispec.Descriptor {
		v := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, Config: config}
		change(&v)
		return m.put(ocispec.MediaTypeImageManifest, v)
	}
	gone := m.image(arm64, "gone")
	delete(m, gone.Digest)
	lying := m.image(amd64, "x")
	lying.Size++
	big := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: config.Digest, Size: 1 << 40}
	for sentence, c := range map[string]struct {
		desc ocispec.Descriptor
		err  string
	}{
		"schema 1 by its media type": {m.put("application/vnd.docker.distribution.manifest.v1+prettyjws", []byte("{}")), "schema 1"},
		"schema 1 by its content":    {manifest(func(v *ocispec.Manifest) { v.SchemaVersion = 1 }), "schema 1"},
		"something that is no image": {m.put("application/vnd.cncf.helm.config.v1+json", []byte("{}")), "no image"},
		"a manifest that is no JSON": {m.put(ocispec.MediaTypeImageManifest, []byte("x")), "manifest sha256:"},
		"an index that is no JSON":   {m.put(ocispec.MediaTypeImageIndex, []byte("x")), "index sha256:"},
		"a layer with sha512": {manifest(func(v *ocispec.Manifest) {
			v.Layers = []ocispec.Descriptor{{Digest: digest.SHA512.FromString("x"), Size: 1}}
		}), "only sha256"},
		"a layer whose digest is a path": {manifest(func(v *ocispec.Manifest) {
			v.Layers = []ocispec.Descriptor{{Digest: "sha256:../../../etc/passwd", Size: 1}}
		}), "digest"},
		"a layer of negative size": {manifest(func(v *ocispec.Manifest) {
			v.Layers = []ocispec.Descriptor{{Digest: config.Digest, Size: -1}, {Digest: digest.FromString("y"), Size: -1}}
		}), "negative"},
		"a child that is not there":     {m.index(m.image(amd64, "a"), gone), "no " + gone.Digest.String()},
		"a manifest of another size":    {lying, "other bytes"},
		"a manifest larger than memory": {big, "more than"},
	} {
		if _, err := Walk(t.Context(), Root{Name: "x", Desc: c.desc, Store: m}, nil); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", sentence, err, c.err)
		}
	}
	if g, err := Walk(t.Context(), Root{Name: "x", Desc: m.index(m.image(amd64, "a"), gone), Store: m, Sparse: true}, nil); err != nil || len(g.Nodes) != 4 {
		t.Errorf("a sparse source with a missing child: %v", err)
	}
	if _, err := Walk(t.Context(), Root{Name: "x", Desc: m.index(gone), Store: m, Sparse: true}, nil); err == nil {
		t.Error("a sparse source without any child is accepted")
	}
}

func TestNames(t *testing.T) {
	d := "sha256:" + strings.Repeat("a", 64)
	for in, want := range map[string][2]string{
		"pause:3.10":                      {"docker.io/library/pause:3.10", ""},
		"localhost:5000/a/b/c/d:v1":       {"localhost:5000/a/b/c/d:v1", ""},
		"registry.k8s.io/pause:3.10@" + d: {"registry.k8s.io/pause:3.10", d},
		"registry.k8s.io/pause@" + d:      {"registry.k8s.io/pause@" + d, d},
		"[::1]:5000/a:1":                  {"[::1]:5000/a:1", ""},
	} {
		name, digest, err := ParseName(in)
		if err != nil || name != want[0] || digest != want[1] {
			t.Errorf("%s: %q %q %v", in, name, digest, err)
		}
	}
	for _, in := range []string{"", "pause", "localhost:5000/a", "a.b/UPPER:1", "a:b:c", "x@sha512:" + strings.Repeat("a", 128), "a b:1"} {
		if name, _, err := ParseName(in); err == nil {
			t.Errorf("%q is taken for %q", in, name)
		}
	}
	for in, want := range map[string][2]string{
		"localhost:5000/a:v1": {"v1", "localhost:5000/a"},
		"localhost:5000/a":    {"", "localhost:5000/a"},
		"r.example/a@" + d:    {"", "r.example/a"},
		"r.example/a:v1@" + d: {"v1", "r.example/a"},
	} {
		if got := [2]string{Tag(in), Repository(in)}; got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

// archive writes a tar of these entries.
func archive(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		content := e.PAXRecords["content"]
		e.PAXRecords = nil
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(content))
		}
		if err := w.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil && e.Typeflag == tar.TypeReg {
			t.Fatal(err)
		}
	}
	w.Close()
	p := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Mode: 0o600, PAXRecords: map[string]string{"content": content}}
}

// An archive is read in place; links, devices and odd paths in it lead
// nowhere, and nothing is written.
func TestHostileArchives(t *testing.T) {
	m := memory{}
	d := m.image(amd64, "layer")
	d.Annotations = map[string]string{ocispec.AnnotationRefName: "registry.example/a:1"}
	idx := string(m[m.index(d).Digest])
	var blobs []tar.Header
	for dg, b := range m {
		blobs = append(blobs, file("blobs/sha256/"+dg.Encoded(), string(b)))
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	stray := digest.FromString("secret").Encoded()
	noise := []tar.Header{
		{Name: "blobs/sha256/" + stray, Typeflag: tar.TypeSymlink, Linkname: secret},
		{Name: "blobs/sha256/" + stray, Typeflag: tar.TypeLink, Linkname: secret},
		{Name: "dev", Typeflag: tar.TypeBlock, Devmajor: 8},
		file("../../"+filepath.Base(secret), "overwritten"),
		file(secret, "overwritten"),
		file("blobs/sha256/../../index.json2", "{}"),
		file("blobs/sha256/short", "x"),
	}
	good := archive(t, append(append(noise, file("./index.json", idx)), blobs...)...)
	roots, c, err := OpenArchive(good, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if g, err := Walk(t.Context(), roots[0], nil); err != nil || len(g.Nodes) != 3 {
		t.Errorf("the good image among the noise: %v", err)
	}
	if _, err := roots[0].Store.Open(t.Context(), ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, stray)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("a file was written: %q %v", b, err)
	}

	truncated := filepath.Join(t.TempDir(), "t.tar")
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(truncated, whole[:len(whole)-1800], 0o600); err != nil {
		t.Fatal(err)
	}
	for sentence, c := range map[string]struct{ path, err string }{
		"no index.json":                {archive(t, file("manifest.json", "[]")), "no index.json"},
		"an index.json that is none":   {archive(t, file("index.json", "x")), "index.json"},
		"an index.json that is huge":   {archive(t, file("index.json", strings.Repeat(" ", maxManifest+1))), "more than"},
		"an index.json that is a link": {archive(t, tar.Header{Name: "index.json", Typeflag: tar.TypeSymlink, Linkname: secret}), "no index.json"},
		"an archive cut off":           {truncated, "read tar"},
		"no tar":                       {secret, "read tar"},
		"no file":                      {secret + "x", "no such file"},
	} {
		if _, _, err := OpenArchive(c.path, ""); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v", sentence, err)
		}
	}
}

func TestImagesAnswerToNameAndTag(t *testing.T) {
	m := memory{}
	named := func(layer string, annotations map[string]string) ocispec.Descriptor {
		d := m.image(amd64, layer)
		d.Annotations = annotations
		return d
	}
	idx := m[m.index(
		named("a", map[string]string{ocispec.AnnotationRefName: "registry.example/a:v1"}),
		named("b", map[string]string{ocispec.AnnotationRefName: "v2", annotationImageName: "registry.example/b:v2"}),
		named("c", map[string]string{ocispec.AnnotationRefName: "pause:v3"}),
		named("d", map[string]string{ocispec.AnnotationRefName: "registry.example/d:v1"}),
	).Digest]
	for tag, want := range map[string]string{
		"registry.example/a:v1":      "registry.example/a:v1",
		"v2":                         "registry.example/b:v2",
		"registry.example/b:v2":      "registry.example/b:v2",
		"v3":                         "docker.io/library/pause:v3",
		"docker.io/library/pause:v3": "docker.io/library/pause:v3",
	} {
		roots, err := rootsOf(m, idx, tag)
		if err != nil || len(roots) != 1 || roots[0].Name != want {
			t.Errorf("%s: %+v, %v", tag, roots, err)
		}
	}
	if roots, err := rootsOf(m, idx, ""); err != nil || len(roots) != 4 {
		t.Errorf("all: %v", err)
	}
	for tag, want := range map[string]string{"v1": "2 images", "v9": "it has registry.example/a:v1"} {
		if _, err := rootsOf(m, idx, tag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", tag, err)
		}
	}
}

// counting counts what is opened.
type counting struct {
	memory
	opened int
}

func (c *counting) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	c.opened++
	return c.memory.Open(ctx, d)
}

// What is listed many times is followed once: 156 KB of indexes that list each other
// 200 times, four deep, were 1.6 billion ways to one image.
func TestIndexesThatAreListedOftenAreFollowedOnce(t *testing.T) {
	for _, platforms := range [][]string{nil, {"linux/amd64"}} {
		m := memory{}
		top := m.image(amd64, "layer")
		for range 4 {
			children := make([]ocispec.Descriptor, 200)
			for i := range children {
				children[i] = top
			}
			top = m.index(children...)
		}
		store := &counting{memory: m}
		g, err := Walk(t.Context(), Root{Name: "x", Desc: top, Store: store}, platforms)
		if err != nil || len(g.Nodes) != 7 || store.opened != 6 {
			t.Errorf("platforms %v: %d blobs, %d opened, %v", platforms, len(g.Nodes), store.opened, err)
		}
	}
}

func TestAnImageOfTooManyBlobsIsRefused(t *testing.T) {
	m := memory{}
	layers := make([]ocispec.Descriptor, maxNodes)
	for i := range layers {
		layers[i] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.Digest(fmt.Sprintf("sha256:%064x", i)), Size: 1}
	}
	var images []ocispec.Descriptor
	for part := range 4 { // a manifest has its own limit
		images = append(images, m.put(ocispec.MediaTypeImageManifest, ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
			Config: m.put(ocispec.MediaTypeImageConfig, ocispec.Image{Platform: amd64}), Layers: layers[part*maxNodes/4 : (part+1)*maxNodes/4]}))
	}
	if _, err := Walk(t.Context(), Root{Name: "x", Desc: m.index(images...), Store: m}, nil); err == nil || !strings.Contains(err.Error(), "more than 65536 blobs") {
		t.Errorf("got %v", err)
	}
}
