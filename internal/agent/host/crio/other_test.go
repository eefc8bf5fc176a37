package crio

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri/critest"
)

// otherImages is the image service of a runtime that is neither containerd nor CRI-O. It reads its
// registries from /etc/containers, as libraries do that many runtimes share, pulls over HTTP and
// verifies digests. It has no pins.
type otherImages struct {
	runtime.UnimplementedImageServiceServer
	dir string
	// deaf: it read its configuration before we came, and does not again.
	deaf bool

	mu     sync.Mutex
	images []*runtime.Image
}

type otherRuntime struct {
	runtime.UnimplementedRuntimeServiceServer
	*otherImages
}

func (otherRuntime) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{Version: "0.1.0", RuntimeName: "other", RuntimeVersion: "7.8.9", RuntimeApiVersion: "v1"}, nil
}

func (o *otherImages) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &runtime.ListImagesResponse{Images: slices.Clone(o.images)}, nil
}

func (o *otherImages) ImageStatus(_ context.Context, q *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &runtime.ImageStatusResponse{Image: critest.Find(o.images, q.GetImage().GetImage())}, nil
}

func (o *otherImages) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return &runtime.ImageFsInfoResponse{ImageFilesystems: []*runtime.FilesystemUsage{{FsId: &runtime.FilesystemIdentifier{Mountpoint: o.dir}}}}, nil
}

// place is where a name is pulled from.
func (o *otherImages) place(name string) string {
	files, _ := filepath.Glob(filepath.Join(o.dir, "etc/containers/registries.conf.d/*.conf"))
	if o.deaf {
		files = nil
	}
	for _, f := range files {
		var c struct {
			Registry []struct{ Prefix, Location string }
		}
		if _, err := toml.DecodeFile(f, &c); err != nil {
			continue
		}
		for _, r := range c.Registry {
			if rest, ok := strings.CutPrefix(name, r.Prefix); ok && strings.ContainsAny(rest[:1], ":@/") {
				return r.Location + rest
			}
		}
	}
	return name
}

func get(host, path string) ([]byte, error) {
	res, err := http.Get("http://" + host + "/v2/" + path)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return io.ReadAll(res.Body)
}

func (o *otherImages) PullImage(_ context.Context, q *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	name := q.GetImage().GetImage()
	host, path, _ := strings.Cut(o.place(name), "/")
	sep, cut := "@", strings.IndexByte(path, '@')
	if cut < 0 {
		sep, cut = ":", strings.LastIndexByte(path, ':')
	}
	repo, ref := path[:cut], path[cut+1:]
	manifest, err := get(host, repo+"/manifests/"+ref)
	if err != nil {
		return nil, err
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(manifest))
	if sep == "@" && ref != digest {
		return nil, fmt.Errorf("%s is %s", name, digest)
	}
	var m struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	for _, l := range slices.Concat(m.Layers, []struct{ Digest string }{m.Config}) {
		b, err := get(host, repo+"/blobs/"+l.Digest)
		if err != nil {
			return nil, err
		}
		if fmt.Sprintf("sha256:%x", sha256.Sum256(b)) != l.Digest {
			return nil, fmt.Errorf("%s is rotten", l.Digest)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	img := critest.Find(o.images, m.Config.Digest)
	if img == nil {
		img = &runtime.Image{Id: m.Config.Digest}
		o.images = append(o.images, img)
	}
	if sep == ":" {
		img.RepoTags = append(img.RepoTags, name)
	}
	img.RepoDigests = []string{strings.TrimSuffix(name, sep+ref) + "@" + digest}
	return &runtime.PullImageResponse{ImageRef: img.Id}, nil
}

// Another CRI runtime loads images the same way; the agent reports that it has no pins.
func TestAnyOtherRuntime(t *testing.T) {
	open := func(t *testing.T, o *otherImages) *Client {
		t.Helper()
		c, err := Open(critest.Listen(t, otherRuntime{otherImages: o}), Places{Root: o.dir}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	left := func(t *testing.T, c *Client) {
		t.Helper()
		if _, err := os.Stat(c.places.Mirror()); err == nil {
			t.Error("the mirror's file is left")
		}
		if c.mirror != nil {
			t.Error("the mirror is left")
		}
	}
	t.Run("one that reads its registries for every pull takes images; that it pins none is seen over CRI", func(t *testing.T) {
		c := open(t, &otherImages{dir: t.TempDir()})
		blobs := blobMap{}
		img := makeImage(blobs, "example.test:5000/a/b:1", "one", false)
		names, err := c.Load(t.Context(), img, blobs)
		if err != nil || !slices.Equal(names, c.Names(img)) {
			t.Fatalf("%v %v", names, err)
		}
		left(t, c)
		if !held(t, c, img, false)() {
			t.Fatal("it is not there under both names, or is called pinned")
		}
		if _, ok, err := c.Pin(t.Context(), img); !ok || err != nil {
			t.Fatalf("pin: %v %v", ok, err)
		}
		if held(t, c, img, true)() {
			t.Fatal("called pinned by a runtime that pins nothing")
		}
	})
	t.Run("one that does not: nothing is loaded, it is named, and nothing is left", func(t *testing.T) {
		c := open(t, &otherImages{dir: t.TempDir(), deaf: true})
		c.take = time.Second
		blobs := blobMap{}
		_, err := c.Load(t.Context(), makeImage(blobs, "example.test/a:1", "one", false), blobs)
		if err == nil || !strings.Contains(err.Error(), "other 7.8.9 is not CRI-O and gets no signal") {
			t.Fatalf("%v", err)
		}
		left(t, c)
		if all, err := c.CRI().Images(t.Context()); err != nil || len(all) > 0 {
			t.Fatalf("%v %v", all, err)
		}
	})
}
