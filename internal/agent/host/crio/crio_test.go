package crio

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// programs finds the directory of crio and pinns: REFIT_LAB_BIN, or the lab's cache.
func programs(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a real CRI-O is started")
	}
	var dirs []string
	if d := os.Getenv("REFIT_LAB_BIN"); d != "" {
		dirs = append(dirs, d)
	}
	if c, err := os.UserCacheDir(); err == nil {
		m, _ := filepath.Glob(filepath.Join(c, "refit", "lab", "bin", "crio-*"))
		dirs = append(dirs, m...)
	}
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "crio")); err == nil {
			if _, err := os.Stat("/usr/bin/conmon"); err == nil {
				return d
			}
		}
	}
	t.Skip("no CRI-O: set REFIT_LAB_BIN to a directory that has crio and pinns, or run `refit-lab up --runtime crio` once; conmon is needed too")
	return ""
}

// daemon is one real CRI-O with a configuration and a store of its own. It sees
// its own /etc/containers; it has no network at all but loopback.
type daemon struct {
	t    *testing.T
	bin  string
	dir  string
	proc *exec.Cmd
}

func startDaemon(t *testing.T) *daemon {
	d := &daemon{t: t, bin: programs(t), dir: t.TempDir()}
	put(t, d.dir, "/etc/crio/policy.json", `{"default": [{"type": "insecureAcceptAnything"}]}`)
	put(t, d.dir, "/etc/containers/registries.conf", "")
	put(t, d.dir, "/cni/none", "")
	put(t, d.dir, "/etc/crio/crio.conf.d/50-foreign.conf", "[crio.image]\npinned_images = [\"example.test/foreign*\"]\n")
	put(t, d.dir, "/etc/crio/crio.conf", fmt.Sprintf(`[crio]
root = "%[1]s/root"
runroot = "%[1]s/runroot"
storage_driver = "vfs"
log_dir = "%[1]s/logs"
version_file = "%[1]s/version"
clean_shutdown_file = ""
[crio.api]
listen = "%[1]s/c.sock"
[crio.image]
pause_image = "example.test/pause:1"
signature_policy = "%[1]s/etc/crio/policy.json"
[crio.network]
network_dir = "%[1]s/cni"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
pinns_path = "%[2]s/pinns"
namespaces_dir = "%[1]s/ns"
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
`, d.dir, d.bin))
	t.Cleanup(d.stop)
	d.start()
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
	script := fmt.Sprintf("mkdir -p /etc/containers && mount --bind %[1]s/etc/containers /etc/containers && exec %[2]s/crio --config %[1]s/etc/crio/crio.conf --config-dir %[1]s/etc/crio/crio.conf.d", d.dir, d.bin)
	d.proc = exec.Command("/bin/sh", "-c", script)
	d.proc.Stdout, d.proc.Stderr = log, log
	d.proc.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := d.proc.Start(); err != nil {
		d.t.Fatal(err)
	}
	c := d.client()
	for range 300 {
		if _, _, err := c.Version(d.t.Context()); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.t.Fatalf("CRI-O does not answer; its log ends:\n%s", d.log())
}

func (d *daemon) log() string {
	text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	return string(text[max(0, len(text)-4000):])
}

func (d *daemon) stop() {
	if d.proc == nil || d.proc.Process == nil {
		return
	}
	_ = d.proc.Process.Signal(syscall.SIGKILL)
	_ = d.proc.Wait()
}

func (d *daemon) client() *Client {
	d.t.Helper()
	c, err := Open(d.socket(), Places{Root: d.dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
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
func makeImage(m blobMap, name, text string, sparse bool) cri.Target {
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
	img := cri.Target{Name: name, Digest: md, MediaType: ociManifest, Size: int64(ms)}
	if !sparse {
		return img
	}
	idx, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []any{
		map[string]any{"mediaType": ociManifest, "digest": "sha256:" + strings.Repeat("a", 64), "size": 500, "platform": map[string]any{"os": "linux", "architecture": "s390x"}},
		map[string]any{"mediaType": ociManifest, "digest": md, "size": ms, "platform": map[string]any{"os": "linux", "architecture": runtime.GOARCH}},
	}})
	id, is := m.put(idx)
	return cri.Target{Name: name, Digest: id, MediaType: ociIndex, Size: int64(is)}
}

// held: CRI has the image under tag and digest, and calls it pinned or not.
func held(t *testing.T, c *Client, img cri.Target, pin bool) func() bool {
	return func() bool {
		all, err := c.CRI().Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(i cri.Image) bool {
			return slices.Contains(i.Tags, img.Name) && slices.Contains(i.Digests, img.ByDigest()) && i.Pinned == pin
		})
	}
}

func (d *daemon) eventually(what string, ok func() bool) {
	d.t.Helper()
	for range 300 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.t.Fatalf("never: %s; the log ends:\n%s", what, d.log())
}

// nothingLeft: no file of a mirror, and CRI-O knows none.
func (d *daemon) nothingLeft(t *testing.T, c *Client, address string) {
	t.Helper()
	if _, err := os.Stat(c.places.Mirror()); err == nil {
		t.Error("the mirror's file is left")
	}
	if address == "" {
		return
	}
	if _, err := http.Get("http://" + address + "/v2/"); err == nil {
		t.Error("the mirror still listens")
	}
}

// A real CRI-O gets images through a mirror that is gone
// afterwards, has them under their names and digests, and pins them.
func TestLoadAndPin(t *testing.T) {
	d := startDaemon(t)
	c := d.client()
	blobs := blobMap{}
	t.Run("a pass: several images, an index of which one platform is there among them", func(t *testing.T) {
		one := makeImage(blobs, "registry.k8s.io/pause:3.10.2", "one", false)
		two := makeImage(blobs, "example.test:5000/a/b/c/sparse:1", "two", true)
		end, err := c.Prepare(t.Context(), slices.Concat(c.Names(one), c.Names(two)), []cri.Target{one, two}, blobs)
		if err != nil {
			t.Fatalf("%v\n%s", err, d.log())
		}
		address := c.mirror.addr
		for _, img := range []cri.Target{one, two} {
			names, err := c.Load(t.Context(), img, blobs)
			if err != nil {
				t.Fatalf("%v\n%s", err, d.log())
			}
			if !slices.Equal(names, c.Names(img)) {
				t.Errorf("names %v", names)
			}
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.nothingLeft(t, c, address)
		for _, img := range []cri.Target{one, two} {
			d.eventually("held and pinned per CRI: "+img.Name, held(t, c, img, true))
		}
	})
	t.Run("one image without a pass", func(t *testing.T) {
		img := makeImage(blobs, "example.test/single:1", "three", false)
		if _, err := c.Load(t.Context(), img, blobs); err != nil {
			t.Fatal(err)
		}
		d.nothingLeft(t, c, "")
		d.eventually("held", held(t, c, img, true))
	})
	t.Run("a tag that moves to another digest is moved", func(t *testing.T) {
		for _, text := range []string{"old", "new"} {
			img := makeImage(blobs, "example.test/moves:1", text, false)
			if _, err := c.Load(t.Context(), img, blobs); err != nil {
				t.Fatal(err)
			}
			d.eventually("held "+text, held(t, c, img, true))
		}
	})
	t.Run("what others pin stays pinned, and ours is let go", func(t *testing.T) {
		theirs := makeImage(blobs, "example.test/foreign/x:1", "four", false)
		ours := makeImage(blobs, "example.test/ours:1", "five", false)
		for _, img := range []cri.Target{theirs, ours} {
			names, err := c.Load(t.Context(), img, blobs)
			if err != nil {
				t.Fatal(err)
			}
			d.eventually("held", held(t, c, img, true))
			if err := c.Unpin(t.Context(), names); err != nil {
				t.Fatal(err)
			}
		}
		d.eventually("ours is not pinned any more", held(t, c, ours, false))
		d.eventually("theirs is", held(t, c, theirs, true))
		if _, ok, err := c.Pin(t.Context(), ours); !ok || err != nil {
			t.Fatalf("pin of what is there: %v %v", ok, err)
		}
		d.eventually("ours is pinned without a load", held(t, c, ours, true))
	})
	t.Run("an image that is not there, or only under its tag's older digest, is not pinned but wanted", func(t *testing.T) {
		for _, name := range []string{"example.test/absent:1", "example.test/moves:1"} {
			img := makeImage(blobMap{}, name, "never loaded", false)
			if _, ok, err := c.Pin(t.Context(), img); ok || err != nil {
				t.Errorf("%s: %v %v", name, ok, err)
			}
		}
	})
	t.Run("a rotten blob makes no image", func(t *testing.T) {
		rotten := blobMap{}
		img := makeImage(rotten, "example.test/rotten:1", "eight", false)
		for dg, b := range rotten {
			if !bytes.HasPrefix(b, []byte("{")) {
				rotten[dg] = append(bytes.Clone(b), 1)
			}
		}
		if _, err := c.Load(t.Context(), img, rotten); err == nil {
			t.Fatal("loaded with a rotten layer")
		}
		d.nothingLeft(t, c, "")
		if held(t, c, img, true)() {
			t.Fatal("it is held")
		}
	})
	t.Run("what a load that was cut off left is taken away", func(t *testing.T) {
		put(t, d.dir, "/etc/containers/registries.conf.d/"+mirrorFile, "[[registry]]\nprefix = \"example.test\"\nlocation = \"127.0.0.1:2\"\n")
		if err := d.client().Clean(); err != nil {
			t.Fatal(err)
		}
		d.nothingLeft(t, c, "")
	})
	t.Run("a restart keeps images and pins", func(t *testing.T) {
		d.stop()
		d.start()
		img := makeImage(blobs, "registry.k8s.io/pause:3.10.2", "one", false)
		d.eventually("held and pinned", held(t, c, img, true))
	})
	t.Run("a configuration that CRI-O refuses is an error, and leaves nothing", func(t *testing.T) {
		c := d.client()
		c.take = 2 * time.Second
		put(t, d.dir, "/etc/crio/crio.conf.d/60-bad.conf", "[crio.runtime]\nlog_level = \"loud\"\n")
		img := makeImage(blobs, "example.test/refused:1", "nine", false)
		_, err := c.Load(t.Context(), img, blobs)
		if err == nil || !strings.Contains(err.Error(), "Unable to reload") {
			t.Fatalf("want the advice to look for a mistake, got %v", err)
		}
		d.nothingLeft(t, c, "")
	})
}

// Only CRI-O is signalled: the signal ends a program that does not expect it.
func TestNoOtherProcessIsSignalled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("asks the kernel who listens")
	}
	socket := filepath.Join(t.TempDir(), "s")
	l := listen(t, socket)
	defer l.Close()
	c, err := Open(socket, Places{Root: t.TempDir()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if pid, err := listener(socket); err != nil || pid != os.Getpid() {
		t.Fatalf("listener: %d %v", pid, err)
	}
	if pid, err := c.process(); err != nil || pid != 0 {
		t.Fatalf("this test is taken for CRI-O: %d %v", pid, err)
	}
	if err := c.hangUp(); err != nil { // were it signalled, this test would end here
		t.Fatal(err)
	}
}
