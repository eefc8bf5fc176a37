package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layerTar is a layer with one file.
func layerTar(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipped(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t testing.TB, s string) string {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.EncodeAll([]byte(s), nil))
}

// configOf is the config of an image with these uncompressed layers.
func configOf(t testing.TB, layers ...string) string {
	t.Helper()
	c := ocispec.Image{Platform: amd64, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}}}
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromString(l))
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func manifestOf(t testing.TB, images ...dockerImage) tar.Header {
	t.Helper()
	b, err := json.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	return file("manifest.json", string(b))
}

// openDocker opens an archive that must be good, and reads every blob of its images.
func openDocker(t *testing.T, path, tag string) []Root {
	t.Helper()
	roots, c, err := OpenDockerArchive(t.Context(), path, tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for _, r := range roots {
		g, err := Walk(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			b, err := readBlob(t.Context(), r.Store, n.Desc)
			if err != nil || digest.FromBytes(b) != n.Desc.Digest || int64(len(b)) != n.Desc.Size {
				t.Errorf("%s: blob %s: %d bytes, %v", r.Name, n.Desc.Digest, len(b), err)
			}
		}
	}
	return roots
}

func names(roots []Root) []string {
	var out []string
	for _, r := range roots {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

// saved are the entries of an archive as docker save writes it: two images, three names, a shared
// layer that the second one has as a link, and files of other formats.
func saved(t testing.TB) []tar.Header {
	t.Helper()
	base, app := layerTar(t, "base"), layerTar(t, "app")
	one, two := configOf(t, base), configOf(t, base, app)
	oneJSON, twoJSON := digest.FromString(one).Encoded()+".json", digest.FromString(two).Encoded()+".json"
	return []tar.Header{
		{Name: "aaa/", Typeflag: tar.TypeDir, Mode: 0o755},
		file("aaa/VERSION", "1.0"), file("aaa/json", "{}"), file("aaa/layer.tar", base),
		{Name: "bbb/layer.tar", Typeflag: tar.TypeSymlink, Linkname: "../aaa/layer.tar"},
		file("ccc/layer.tar", app),
		file(oneJSON, one), file(twoJSON, two),
		manifestOf(t, dockerImage{oneJSON, []string{"pause:3.10"}, []string{"aaa/layer.tar"}},
			dockerImage{twoJSON, []string{"registry.example/app:v1", "registry.example/app:v2"}, []string{"bbb/layer.tar", "ccc/layer.tar"}}),
		file("repositories", "{}"),
	}
}

func TestDockerArchive(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	plain := archive(t, saved(t)...)
	content, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"docker.io/library/pause:3.10", "registry.example/app:v1", "registry.example/app:v2"}
	roots := openDocker(t, plain, "")
	if !slices.Equal(names(roots), want) {
		t.Fatal(names(roots))
	}
	// Fixed: nodes and approvals know images by these digests.
	if got := roots[0].Desc.Digest.String(); got != "sha256:af0de437b982dd8b5dedbee5c3b0b182e74e7f004048a66ec5ca609ab39f2c14" {
		t.Errorf("the digest of the first image is %s", got)
	}
	if roots[1].Desc.Digest != roots[2].Desc.Digest {
		t.Error("two names of one image have two digests")
	}
	one, err := Walk(t.Context(), roots[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Walk(t.Context(), roots[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if one.Nodes[2].Desc.Digest != digest.FromString(layerTar(t, "base")) || one.Nodes[2].Desc.Digest != two.Nodes[2].Desc.Digest || len(two.Nodes) != 4 {
		t.Errorf("layers: %+v, %+v", one.Nodes, two.Nodes)
	}
	for name, packed := range map[string]string{"a.tar.gz": gzipped(t, string(content)), "a.tar.zst": zstded(t, string(content))} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(packed), 0o600); err != nil {
			t.Fatal(err)
		}
		again := openDocker(t, path, "")
		for i := range again {
			if again[i].Name != roots[i].Name || again[i].Desc.Digest != roots[i].Desc.Digest {
				t.Errorf("%s: %s %s", name, again[i].Name, again[i].Desc.Digest)
			}
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("files stay: %v %v", left, err)
	}
	for tag, want := range map[string][]string{"v2": {"registry.example/app:v2"}, "pause:3.10": {"docker.io/library/pause:3.10"}} {
		if got := names(openDocker(t, plain, tag)); !slices.Equal(got, want) {
			t.Errorf("%s: %v", tag, got)
		}
	}
	if _, _, err := OpenDockerArchive(t.Context(), plain, "v3"); err == nil || !strings.Contains(err.Error(), `no image called "v3"; it has pause:3.10`) {
		t.Errorf("a tag that is not there: %v", err)
	}
}

// Other tools compress layers and name files another way.
func TestDockerArchiveOfOtherTools(t *testing.T) {
	t.Parallel()
	base, app := layerTar(t, "base"), layerTar(t, "app")
	config := configOf(t, base, app, base)
	gz := gzipped(t, base)
	path := archive(t, file("sha256:config", config), file("./a.tar.gz", gz), file("b.tar.zst", zstded(t, app)),
		tar.Header{Name: "c.tar", Typeflag: tar.TypeLink, Linkname: "./a.tar.gz"},
		manifestOf(t, dockerImage{"sha256:config", nil, []string{"a.tar.gz", "b.tar.zst", "c.tar"}}))
	roots := openDocker(t, path, "")
	if len(roots) != 1 || roots[0].Name != "" {
		t.Fatalf("%+v", roots)
	}
	b, err := Fetch(t.Context(), roots[0].Store, roots[0].Desc)
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range m.Layers {
		got = append(got, l.MediaType)
	}
	if diff := cmp.Diff([]string{ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd, ocispec.MediaTypeImageLayerGzip}, got); diff != "" || m.Layers[0].Digest != digest.FromString(gz) || m.Layers[2].Digest != m.Layers[0].Digest {
		t.Errorf("%s%+v", diff, m.Layers)
	}
}

// Newer versions of docker save write an OCI image layout: its digests stay.
func TestDockerArchiveWithALayout(t *testing.T) {
	t.Parallel()
	m := memory{}
	missing := memory{}.image(arm64, "of another platform")
	d := m.index(m.image(amd64, "layer"), missing)
	config := configOf(t)
	entries := func(annotations map[string]string) []tar.Header {
		d.Annotations = annotations
		b, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		out := []tar.Header{file("index.json", string(b)), file("config.json", config), manifestOf(t, dockerImage{"config.json", []string{"registry.example/by-manifest:1"}, nil})}
		for dg, content := range m {
			out = append(out, file("blobs/sha256/"+dg.Encoded(), string(content)))
		}
		return out
	}
	full := entries(map[string]string{annotationImageName: "registry.example/a:1", ocispec.AnnotationRefName: "1"})
	for sentence, list := range map[string][]tar.Header{"with manifest.json": full, "without": slices.Delete(slices.Clone(full), 2, 3)} {
		roots := openDocker(t, archive(t, list...), "")
		if len(roots) != 1 || roots[0].Name != "registry.example/a:1" || roots[0].Desc.Digest != d.Digest {
			t.Errorf("%s: %+v", sentence, roots)
		}
	}
	for sentence, annotations := range map[string]map[string]string{"a tag only": {ocispec.AnnotationRefName: "1"}, "no name": nil} {
		if got := names(openDocker(t, archive(t, entries(annotations)...), "")); !slices.Equal(got, []string{"registry.example/by-manifest:1"}) {
			t.Errorf("%s: %v", sentence, got)
		}
	}
}

func TestHostileDockerArchives(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := layerTar(t, "base")
	config := configOf(t, base)
	with := func(layers []string, more ...tar.Header) string {
		return archive(t, append(more, file("config", config), manifestOf(t, dockerImage{"config", []string{"a:1"}, layers}))...)
	}
	l := []string{"l"}
	written := func(content string) string {
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good, err := os.ReadFile(with(l, file("l", base)))
	if err != nil {
		t.Fatal(err)
	}
	openDocker(t, written(string(good)), "")
	many := make([]tar.Header, maxDockerEntries+1)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "")
	}
	for sentence, c := range map[string]struct{ path, err string }{
		"no manifest.json":              {archive(t, file("repositories", "{}")), "neither manifest.json nor index.json"},
		"manifest.json twice":           {archive(t, file("manifest.json", "[]"), file("./manifest.json", "[]")), "manifest.json is in the archive twice"},
		"index.json twice":              {archive(t, file("index.json", "{}"), file("index.json", "{}")), "index.json is in the archive twice"},
		"a huge manifest.json":          {archive(t, file("manifest.json", strings.Repeat(" ", maxDockerManifest+1))), "more than the"},
		"a manifest.json that is none":  {archive(t, file("manifest.json", "{}")), "not a list"},
		"a manifest.json that is deep":  {archive(t, file("manifest.json", `[{"x":`+strings.Repeat("[", 1<<20))), "manifest.json"},
		"a manifest.json that links":    {archive(t, tar.Header{Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: secret}), "neither"},
		"no images":                     {archive(t, file("manifest.json", "[]")), "has no images"},
		"a layer outside":               {with([]string{"../../" + filepath.Base(secret)}), "not the path of a file in the archive"},
		"an absolute layer":             {with([]string{secret}), "not the path of a file in the archive"},
		"a layer that is not there":     {with(l), `no file "l"`},
		"a layer that links outside":    {with(l, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../" + secret}), `no file "l"`},
		"a layer that links to a file":  {with(l, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: secret}), `no file "l"`},
		"a layer that is a hard link":   {with(l, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: secret}), `no file "l"`},
		"a layer that links to itself":  {with(l, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "l"}), "a link to a link"},
		"a layer that is a device":      {with(l, tar.Header{Name: "l", Typeflag: tar.TypeBlock, Devmajor: 8}), `no file "l"`},
		"a layer twice":                 {with(l, file("l", base), file("./l", "other")), `"l" is in the archive twice`},
		"fewer layers than the config":  {with(nil), "has 1 layers, manifest.json has 0"},
		"a compressed layer of another": {with(l, file("l", gzipped(t, "other"))), "the archive is damaged"},
		"a layer that does not unpack":  {with(l, file("l", gzipped(t, base)[:40])), "unpack: unexpected EOF"},
		"a layer of xz":                 {with(l, file("l", "\xfd7zXZ\x00")), "bzip2 or xz"},
		"a layer with a huge window":    {with(l, file("l", "\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00")), "zstd --long=27"},
		"one layer of two sizes": {archive(t, file("config", configOf(t, base, base)), file("l", base), file("m", base+base),
			manifestOf(t, dockerImage{"config", []string{"a:1"}, []string{"l", "m"}})), "elsewhere in the archive"},
		"a config of other bytes": {archive(t, file(strings.Repeat("a", 64)+".json", config), manifestOf(t, dockerImage{strings.Repeat("a", 64) + ".json", []string{"a:1"}, nil})), "has digest"},
		"a config that is none":   {archive(t, file("c", "x"), manifestOf(t, dockerImage{"c", []string{"a:1"}, nil})), "config c"},
		"a huge config":           {archive(t, file("c", strings.Repeat(" ", maxManifest+1)), manifestOf(t, dockerImage{"c", []string{"a:1"}, nil})), "more than the"},
		"a diffID that is none": {archive(t, file("c", `{"rootfs":{"diff_ids":["md5:x"]}}`), file("l", base),
			manifestOf(t, dockerImage{"c", []string{"a:1"}, l})), "digest"},
		"a name that is none":        {archive(t, file("c", "{}"), manifestOf(t, dockerImage{"c", []string{"A B"}, nil})), "image reference"},
		"a name with a digest":       {archive(t, file("c", "{}"), manifestOf(t, dockerImage{"c", []string{"a@" + digest.FromString("").String()}, nil})), "has a digest"},
		"two images, one without":    {archive(t, file("c", "{}"), manifestOf(t, dockerImage{"c", []string{"a:1"}, nil}, dockerImage{"c", nil, nil})), "has no tag"},
		"more entries than allowed":  {archive(t, many...), "more than 65536 entries"},
		"an archive cut off":         {written(string(good[:len(good)-2048])), "docker-archive"},
		"a gzip archive cut off":     {written(gzipped(t, string(good))[:100]), "unpack: unexpected EOF"},
		"a zstd archive cut off":     {written(zstded(t, string(good))[:60]), "unpack: "},
		"a zstd archive of a window": {written("\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00"), "zstd --long=27"},
		"an archive of xz":           {written("\xfd7zXZ\x00"), "bzip2 or xz"},
		"no tar":                     {secret, "read tar"},
		"no file":                    {secret + "x", "no such file"},
		"a directory":                {tmp, "not a regular file"},
	} {
		_, _, err := OpenDockerArchive(t.Context(), c.path, "")
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", sentence, err, c.err)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("a file was written: %q %v", b, err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("files stay: %v %v", left, err)
	}
}

// A member that expands to a lot costs no memory.
func TestUnpackingTakesLittleMemory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	zeros := make([]byte, 1<<20)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := OpenDockerArchive(t.Context(), path, "")
	runtime.ReadMemStats(&after)
	if err == nil || after.TotalAlloc-before.TotalAlloc > 8<<20 {
		t.Errorf("%d bytes allocated, %v", after.TotalAlloc-before.TotalAlloc, err)
	}
}

// Any manifest.json is an error, or names files inside the archive only, a bounded number of them.
func FuzzDockerManifest(f *testing.F) {
	f.Add([]byte(`[{"Config":"c.json","RepoTags":["a:1","<none>:<none>"],"Layers":["a/layer.tar"]}]`))
	f.Add([]byte(`[{"Config":"blobs/sha256/x","Layers":["../x","/x",""]},null,{}]`))
	f.Add([]byte(`[] []`))
	f.Fuzz(func(t *testing.T, b []byte) {
		images, err := parseDockerManifest(b)
		if err != nil {
			return
		}
		if len(images) > maxDockerImages {
			t.Fatal(len(images))
		}
		for _, i := range images {
			if len(i.Layers) > maxDockerLayers || len(i.tags()) > maxDockerLayers {
				t.Fatal(len(i.Layers), len(i.RepoTags))
			}
			for _, p := range append(slices.Clone(i.Layers), i.Config) {
				name, ok := entryName(p)
				if !ok || !filepath.IsLocal(name) {
					t.Fatalf("%q", p)
				}
			}
		}
	})
}

// Any archive results in an error, or in images that can be walked; no file stays.
func FuzzOpenDockerArchive(f *testing.F) {
	layer := layerTar(f, "base")
	config := configOf(f, layer)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range []tar.Header{file("l", layer), file("c", config), manifestOf(f, dockerImage{"c", []string{"a:1"}, []string{"l"}})} {
		content := e.PAXRecords["content"]
		if err := w.WriteHeader(&tar.Header{Name: e.Name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			f.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(gzipped(f, b.String())))
	f.Add([]byte(zstded(f, b.String())))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		path := filepath.Join(dir, "a.tar")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		roots, c, err := OpenDockerArchive(t.Context(), path, "")
		if err == nil {
			for _, r := range roots {
				walked(t, r, nil)
			}
			_ = c.Close()
		}
		if es, err := os.ReadDir(dir); err != nil || len(es) != 1 {
			t.Fatalf("%v, %v", es, err)
		}
	})
}
