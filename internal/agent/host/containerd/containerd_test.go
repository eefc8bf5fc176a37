package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/failpoint"
)

// binary finds containerd: REFIT_LAB_BIN, the lab's cache, the path.
func binary(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a real containerd is started")
	}
	var places []string
	if d := os.Getenv("REFIT_LAB_BIN"); d != "" {
		places = append(places, filepath.Join(d, "containerd"))
	}
	if c, err := os.UserCacheDir(); err == nil {
		m, _ := filepath.Glob(filepath.Join(c, "refit", "lab", "bin", "*", "containerd"))
		places = append(places, m...)
	}
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 {
			return p
		}
	}
	t.Skip("no containerd 2.x: set REFIT_LAB_BIN to a directory that has it, or run `refit-lab up` once")
	return ""
}

// daemon is one real containerd on a root of its own.
type daemon struct {
	t    *testing.T
	bin  string
	dir  string
	proc *exec.Cmd
}

func startDaemon(t *testing.T) *daemon {
	d := &daemon{t: t, bin: binary(t), dir: t.TempDir()}
	conf := fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = %q
[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = %q
`, filepath.Join(d.dir, "root"), filepath.Join(d.dir, "state"), d.socket(), filepath.Join(d.dir, "cni"))
	if err := os.WriteFile(filepath.Join(d.dir, "config.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "c.sock") }

func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.proc = exec.Command(d.bin, "--config", filepath.Join(d.dir, "config.toml"))
	d.proc.Stdout, d.proc.Stderr = log, log
	d.proc.Env = append(os.Environ(), "PATH="+filepath.Dir(d.bin)+":"+os.Getenv("PATH"))
	if err := d.proc.Start(); err != nil {
		d.t.Fatal(err)
	}
	c, err := Open(d.socket())
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	for range 300 {
		if _, _, err := c.CRI().Version(d.t.Context()); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	d.t.Fatalf("containerd does not answer; its log ends:\n%s", text[max(0, len(text)-3000):])
}

// officialClient is containerd's own client: what it writes and sees is what counts.
func officialClient(t *testing.T, d *daemon) *client.Client {
	t.Helper()
	c, err := client.New(d.socket(), client.WithDefaultNamespace(Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (d *daemon) stop() {
	_ = d.proc.Process.Signal(syscall.SIGKILL)
	_ = d.proc.Wait()
}

// blobMap is a source of blobs in memory.
type blobMap map[string][]byte

func (m blobMap) Open(digest string) (io.ReadCloser, error) {
	b, ok := m[digest]
	if !ok {
		return nil, fmt.Errorf("%s: %w", digest, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m blobMap) put(b []byte) (digest string, size int) {
	s := sha256.Sum256(b)
	d := "sha256:" + hex.EncodeToString(s[:])
	m[d] = b
	return d, len(b)
}

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
)

// makeImage writes a one-layer image; sparse wraps it in an index that also
// names a platform whose blobs are nowhere.
func makeImage(m blobMap, name, text string, sparse bool) Image {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	_ = tw.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(text))})
	_, _ = tw.Write([]byte(text))
	_ = tw.Close()
	ld, ls := m.put(layer.Bytes())
	config, _ := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{ld}}})
	cd, csz := m.put(config)
	man, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociManifest,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": cd, "size": csz},
		"layers": []any{map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": ld, "size": ls}}})
	md, ms := m.put(man)
	img := Image{Name: name, Digest: md, MediaType: ociManifest, Size: int64(ms)}
	if !sparse {
		return img
	}
	idx, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []any{
		map[string]any{"mediaType": ociManifest, "digest": "sha256:" + strings.Repeat("a", 64), "size": 500, "platform": map[string]any{"os": "linux", "architecture": "s390x"}},
		map[string]any{"mediaType": ociManifest, "digest": md, "size": ms, "platform": map[string]any{"os": "linux", "architecture": runtime.GOARCH}},
	}})
	id, is := m.put(idx)
	return Image{Name: name, Digest: id, MediaType: ociIndex, Size: int64(is)}
}

// report is what CRI says of an image; that alone is what the kubelet sees.
func report(t *testing.T, c *Client, img Image) (tag, digest, pinned bool) {
	t.Helper()
	all, err := c.CRI().Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if slices.Contains(i.Tags, img.Name) {
			return true, slices.Contains(i.Digests, repository(img.Name)+"@"+img.Digest), i.Pinned
		}
	}
	return false, false, false
}

// eventually waits for what the runtime does on its own after an event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 100 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func held(t *testing.T, c *Client, img Image) func() bool {
	return func() bool { tag, digest, pinned := report(t, c, img); return tag && digest && pinned }
}

// Loaded from blobs, under its names, pinned as CRI sees it.
func TestLoadAndPin(t *testing.T) {
	d := startDaemon(t)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	official := officialClient(t, d)
	blobs := blobMap{}
	ctx := t.Context()
	load := func(t *testing.T, img Image) []string {
		t.Helper()
		names, err := c.Load(ctx, img, blobs)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "image held and pinned per CRI", held(t, c, img))
		return names
	}
	t.Run("an image is there by tag and digest, pinned", func(t *testing.T) {
		load(t, makeImage(blobs, "registry.k8s.io/pause:3.10.2", "one", false))
	})
	t.Run("of an index only this platform is needed", func(t *testing.T) {
		names := load(t, makeImage(blobs, "example.test:5000/a/b/c/sparse:1", "two", true))
		if len(names) != 4 {
			t.Fatalf("want tag, index digest, manifest digest and ID, got %v", names)
		}
	})
	t.Run("the garbage collector keeps every blob and file of a loaded image", func(t *testing.T) {
		img := makeImage(blobs, "example.test/collected:1", "collected", true)
		load(t, img)
		l, err := official.LeasesService().Create(ctx, leases.WithRandomID())
		if err == nil {
			err = official.LeasesService().Delete(ctx, l, leases.SynchronousDelete) // returns after a collection
		}
		if err != nil {
			t.Fatal(err)
		}
		record, err := official.GetImage(ctx, img.Name)
		if err != nil {
			t.Fatal(err)
		}
		if ok, _, _, missing, err := images.Check(ctx, official.ContentStore(), record.Target(), record.Platform()); !ok || err != nil || len(missing) > 0 {
			t.Errorf("missing %v: %v", missing, err)
		}
		if ok, err := record.IsUnpacked(ctx, "overlayfs"); !ok || err != nil {
			t.Errorf("its files: %v %v", ok, err)
		}
	})
	t.Run("loading twice is loading once", func(t *testing.T) {
		img := makeImage(blobs, "example.test/twice:1", "three", false)
		if a, b := load(t, img), load(t, img); !slices.Equal(a, b) {
			t.Fatalf("%v, then %v", a, b)
		}
	})
	t.Run("a tag that moves to another digest is moved", func(t *testing.T) {
		load(t, makeImage(blobs, "example.test/moves:1", "old", false))
		load(t, makeImage(blobs, "example.test/moves:1", "new", false))
	})
	t.Run("a removed pin is restored without a load", func(t *testing.T) {
		img := makeImage(blobs, "example.test/unpinned:1", "four", false)
		names := load(t, img)
		if err := c.Unpin(ctx, names); err != nil {
			t.Fatal(err)
		}
		eventually(t, "unpinned per CRI", func() bool { _, _, p := report(t, c, img); return !p })
		if _, ok, err := c.Pin(ctx, img); err != nil || !ok {
			t.Fatalf("pin: %v %v", ok, err)
		}
		eventually(t, "pinned again", held(t, c, img))
	})
	t.Run("a pin that others made stays when ours goes", func(t *testing.T) {
		img := makeImage(blobs, "example.test/theirs:1", "theirs", false)
		names := load(t, img)
		// As if others had imported and pinned it before us.
		is := official.ImageService()
		for _, n := range names {
			if err := is.Delete(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		theirs := images.Image{Name: img.Name, Target: ocispec.Descriptor{MediaType: img.MediaType, Digest: digest.Digest(img.Digest), Size: img.Size},
			Labels: map[string]string{pinLabel: pinValue, "theirs": "too"}}
		if _, err := c.Load(ctx, makeImage(blobs, "example.test/keeps-the-blobs:1", "theirs", false), blobs); err != nil {
			t.Fatal(err)
		}
		if _, err := is.Create(ctx, theirs); err != nil {
			t.Fatal(err)
		}
		for name, pin := range map[string]func() ([]string, error){
			"pin":  func() ([]string, error) { n, _, err := c.Pin(ctx, img); return n, err },
			"load": func() ([]string, error) { return c.Load(ctx, img, blobs) },
		} {
			names, err := pin()
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "held", held(t, c, img))
			if err := c.Unpin(ctx, names); err != nil {
				t.Fatal(err)
			}
			have, err := is.Get(ctx, img.Name)
			if err != nil || have.Labels[pinLabel] != pinValue || have.Labels["theirs"] != "too" {
				t.Errorf("after %s was unpinned: %v %v", name, have.Labels, err)
			}
		}
	})
	t.Run("a name imported by others gets its digest name and pin", func(t *testing.T) {
		img := makeImage(blobs, "example.test/foreign:1", "five", false)
		names := load(t, img)
		if err := official.ImageService().Delete(ctx, names[1]); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := c.Pin(ctx, img); err != nil || !ok {
			t.Fatalf("pin: %v %v", ok, err)
		}
		eventually(t, "held by digest", held(t, c, img))
	})
	t.Run("an image that is not there is not pinned but wanted", func(t *testing.T) {
		img := makeImage(blobs, "example.test/absent:1", "six", false)
		if _, ok, err := c.Pin(ctx, img); ok || err != nil {
			t.Fatalf("pin of an absent image: %v %v", ok, err)
		}
	})
	t.Run("a rotten blob makes no name, and does not stand in the way of the good one", func(t *testing.T) {
		rotten := blobMap{}
		img := makeImage(rotten, "example.test/rotten:1", "eight", false)
		good := blobMap{}
		for d, b := range rotten {
			good[d] = b
			if !bytes.HasPrefix(b, []byte("{")) {
				bad := bytes.Clone(b)
				bad[len(bad)/2] ^= 1
				rotten[d] = bad
			}
		}
		if _, err := c.Load(ctx, img, rotten); err == nil {
			t.Fatal("loaded with a rotten layer")
		}
		if _, err := c.Load(ctx, img, good); err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", held(t, c, img))
	})
	t.Run("a record whose content is not all there is loaded, not pinned as it is", func(t *testing.T) {
		all := blobMap{}
		img := makeImage(all, "example.test/hollow:1", "nine", false)
		// What an import that was cut off, or that skips what is missing, leaves.
		lctx, done, err := official.WithLease(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = done(ctx) }()
		for d, b := range all {
			if bytes.HasPrefix(b, []byte("{")) {
				desc := ocispec.Descriptor{Digest: digest.Digest(d), Size: int64(len(b))}
				if err := content.WriteBlob(lctx, official.ContentStore(), d, bytes.NewReader(b), desc); err != nil {
					t.Fatal(err)
				}
			}
		}
		target := ocispec.Descriptor{MediaType: img.MediaType, Digest: digest.Digest(img.Digest), Size: img.Size}
		if _, err := official.ImageService().Create(lctx, images.Image{Name: img.Name, Target: target}); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := c.Pin(ctx, img); ok || err != nil {
			t.Fatalf("an image without its layer was pinned: %v %v", ok, err)
		}
		if _, err := c.Load(ctx, img, all); err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", held(t, c, img))
		if _, ok, err := c.Pin(ctx, img); !ok || err != nil {
			t.Fatalf("pin of the whole image: %v %v", ok, err)
		}
	})
	t.Run("a blob that is missing in the store makes no name", func(t *testing.T) {
		partial := blobMap{}
		img := makeImage(partial, "example.test/partial:1", "seven", false)
		for d, b := range partial {
			if !bytes.HasPrefix(b, []byte("{")) {
				delete(partial, d) // the layer
			}
		}
		if _, err := c.Load(ctx, img, partial); err == nil {
			t.Fatal("loaded without its layer")
		}
		if _, err := official.ImageService().Get(ctx, img.Name); !errdefs.IsNotFound(err) {
			t.Fatalf("a name of a half image: %v", err)
		}
	})
}

// Cut off at any point, the next try ends in the same; pins
// outlive the runtime's restart; a deletion is noticed.
func TestLoadSurvives(t *testing.T) {
	d := startDaemon(t)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	official := officialClient(t, d)
	blobs := blobMap{}
	for _, point := range []string{failpoint.LoadContent, failpoint.LoadUnpack, failpoint.LoadDone, failpoint.PinLabel} {
		t.Run("cut off at "+point, func(t *testing.T) {
			img := makeImage(blobs, "example.test/cut:"+strings.ReplaceAll(point, ".", "-"), point, false)
			type cut struct{}
			restore := failpoint.OnHit(func(n string) {
				if n == point {
					panic(cut{})
				}
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = c.Load(t.Context(), img, blobs)
			}()
			restore()
			if tag, _, pinned := report(t, c, img); tag && !pinned {
				t.Fatal("a name without a pin is visible")
			}
			if _, err := c.Load(t.Context(), img, blobs); err != nil {
				t.Fatal(err)
			}
			eventually(t, "held", held(t, c, img))
		})
	}
	img := makeImage(blobs, "example.test/stays:1", "stays", false)
	names, err := c.Load(t.Context(), img, blobs)
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Watch(ctx, func() { changed <- struct{}{} }); close(ended) }()
	t.Run("pins outlive a kill of the runtime, and its return is noticed", func(t *testing.T) {
		d.stop()
		d.start()
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			t.Fatal("the return of the runtime was not noticed")
		}
		eventually(t, "held after the restart", held(t, c, img))
	})
	t.Run("a deletion is noticed", func(t *testing.T) {
		time.Sleep(200 * time.Millisecond) // the new subscription
		for _, n := range names {
			if err := official.ImageService().Delete(t.Context(), n, images.SynchronousDelete()); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("not noticed")
		}
		if _, ok, _ := c.Pin(t.Context(), img); ok {
			t.Fatal("pinned though it is gone")
		}
		if _, err := c.Load(t.Context(), img, blobs); err != nil {
			t.Fatal(err)
		}
		eventually(t, "held again", held(t, c, img))
	})
	cancel()
	<-ended
}
