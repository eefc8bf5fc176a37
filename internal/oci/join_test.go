package oci

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// savedFor is an archive of docker save with the image pause for a platform.
func savedFor(t *testing.T, p ocispec.Platform, content string) []Root {
	t.Helper()
	layer := layerTar(t, content)
	b, err := json.Marshal(ocispec.Image{Platform: p, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString(layer)}}})
	if err != nil {
		t.Fatal(err)
	}
	config := digest.FromBytes(b).Encoded() + ".json"
	return openDocker(t, archive(t, file(config, string(b)), file("layer.tar", layer), manifestOf(t, dockerImage{config, []string{"pause:3.10"}, []string{"layer.tar"}})), "")
}

// layoutFor is an archive with a whole index, but the blobs of some of its manifests only.
func layoutFor(t *testing.T, m memory, index ocispec.Descriptor, keep ...ocispec.Descriptor) []Root {
	t.Helper()
	entries := []tar.Header{file("blobs/sha256/"+index.Digest.Encoded(), string(m[index.Digest]))}
	for _, d := range keep {
		entries = append(entries, file("blobs/sha256/"+d.Digest.Encoded(), string(m[d.Digest])))
		var manifest ocispec.Manifest
		if err := json.Unmarshal(m[d.Digest], &manifest); err != nil {
			t.Fatal(err)
		}
		for _, b := range append(manifest.Layers, manifest.Config) {
			entries = append(entries, file("blobs/sha256/"+b.Digest.Encoded(), string(m[b.Digest])))
		}
	}
	index.Annotations = map[string]string{ocispec.AnnotationRefName: "docker.io/library/pause:3.10"}
	top := m.index(index)
	roots, c, err := OpenDockerArchive(t.Context(), archive(t, append(entries, file("index.json", string(m[top.Digest])))...), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return roots
}

func TestJoinPlatforms(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	arm := ocispec.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	one, two := savedFor(t, amd64, "amd64"), savedFor(t, arm, "arm64")
	joined, err := JoinPlatforms(t.Context(), []Root{two[0], one[0]})
	if err != nil {
		t.Fatal(err)
	}
	again, err := JoinPlatforms(t.Context(), []Root{one[0], two[0], one[0]})
	if err != nil || again.Desc.Digest != joined.Desc.Digest {
		t.Errorf("another order makes another image: %s, %s, %v", joined.Desc.Digest, again.Desc.Digest, err)
	}
	for _, c := range []struct {
		platforms []string
		blobs     int
		want      string
	}{{nil, 7, "linux/amd64 linux/arm64/v8"}, {[]string{"linux/amd64", "linux/arm64"}, 7, "linux/amd64 linux/arm64/v8"}, {[]string{"linux/arm64"}, 4, "linux/arm64/v8"}} {
		g, err := Walk(t.Context(), joined, c.platforms)
		if err != nil || len(g.Nodes) != c.blobs || strings.Join(g.Platforms, " ") != c.want {
			t.Errorf("%v: %d blobs for %v, %v", c.platforms, len(g.Nodes), g.Platforms, err)
		}
		for _, n := range g.Nodes {
			if _, err := Fetch(t.Context(), joined.Store, n.Desc); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := joined.Store.Open(t.Context(), ocispec.Descriptor{Digest: digest.FromString("none")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a blob that is not there: %v", err)
	}
	other := savedFor(t, amd64, "other")
	if _, err := JoinPlatforms(t.Context(), []Root{one[0], two[0], other[0]}); err == nil || !strings.Contains(err.Error(), "for linux/amd64 is "+one[0].Desc.Digest.String()) || !strings.Contains(err.Error(), "a bundle can hold only one of them") {
		t.Errorf("two images for one platform: %v", err)
	}
	alone, err := JoinPlatforms(t.Context(), one)
	if err != nil || alone.Desc.Digest != one[0].Desc.Digest || alone.Store != one[0].Store {
		t.Errorf("one image: %+v, %v", alone, err)
	}
}

// Archives that share an index keep its digest, and each has a part of its manifests.
func TestJoinPlatformsOfOneIndex(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m := memory{}
	arm := ocispec.Platform{OS: "linux", Architecture: "arm64"}
	a, b := m.image(amd64, "amd64"), m.image(arm, "arm64")
	index := m.index(a, b)
	one, two := layoutFor(t, m, index, a), layoutFor(t, m, index, b)
	joined, err := JoinPlatforms(t.Context(), []Root{one[0], two[0]})
	if err != nil || joined.Desc.Digest != index.Digest {
		t.Fatalf("%s, want %s: %v", joined.Desc.Digest, index.Digest, err)
	}
	if g, err := Walk(t.Context(), joined, []string{"linux/amd64", "linux/arm64"}); err != nil || len(g.Nodes) != 7 {
		t.Errorf("%d blobs, %v", len(g.Nodes), err)
	}
	// An index with one of them next to an archive without an index.
	mixed, err := JoinPlatforms(t.Context(), []Root{one[0], savedFor(t, arm, "saved")[0]})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := Walk(t.Context(), mixed, nil); err != nil || strings.Join(g.Platforms, " ") != "linux/amd64 linux/arm64" {
		t.Errorf("platforms %v, %v", g.Platforms, err)
	}
}
