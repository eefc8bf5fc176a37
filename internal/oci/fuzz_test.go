package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// walked walks an image and says what must hold of every walk that succeeds.
func walked(t *testing.T, root Root, platforms []string) {
	t.Helper()
	g, err := Walk(context.Background(), root, platforms)
	if err != nil {
		return
	}
	seen := map[digest.Digest]bool{}
	for _, n := range g.Nodes {
		if seen[n.Desc.Digest] || n.Desc.Size < 0 || n.Desc.Digest.Validate() != nil || n.Desc.Digest.Algorithm() != digest.SHA256 {
			t.Fatalf("node %+v", n)
		}
		seen[n.Desc.Digest] = true
	}
	if len(g.Nodes) == 0 || g.Nodes[0].Desc.Digest != root.Desc.Digest {
		t.Fatalf("%+v", g.Nodes)
	}
}

const fuzzManifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}`

// For any indexes and manifests the walk ends, and names each blob once.
func FuzzWalk(f *testing.F) {
	m := digest.FromString(fuzzManifest)
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+m.String()+`","size":300,"platform":{"os":"linux","architecture":"amd64"}}]}`), []byte(fuzzManifest), true)
	f.Add([]byte(fuzzManifest), []byte(`{}`), false)
	f.Fuzz(func(t *testing.T, top, below []byte, index bool) {
		kind := ocispec.MediaTypeImageManifest
		if index {
			kind = ocispec.MediaTypeImageIndex
		}
		// Both refer to themselves and each other if they say so.
		s := memory{digest.FromBytes(top): top, digest.FromBytes(below): below, digest.FromString("{}"): []byte("{}"), digest.FromString(fuzzManifest): []byte(fuzzManifest)}
		root := Root{Name: "r.example/a:1", Desc: ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(top), Size: int64(len(top))}, Store: s}
		walked(t, root, nil)
		walked(t, root, []string{"linux/amd64"})
	})
}

// Any archive results in an error, or in images that can be walked; nothing is written to
// disk.
func FuzzOpenArchive(f *testing.F) {
	archive := func(files map[string]string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{"oci-layout", "index.json", "blobs/sha256/" + digest.FromString(fuzzManifest).Encoded(), "../escaped"} {
			text := files[name]
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
				f.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	m := digest.FromString(fuzzManifest)
	f.Add(archive(map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "blobs/sha256/" + m.Encoded(): fuzzManifest,
		"index.json": `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + m.String() + `","size":276,"annotations":{"org.opencontainers.image.ref.name":"r.example/a:1"}}]}`}))
	f.Add([]byte("not a tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "a.tar")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		roots, c, err := OpenArchive(file, "")
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
