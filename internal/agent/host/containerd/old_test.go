package containerd

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri/critest"
)

var update = flag.Bool("update", false, "write what the runtime answers to testdata")

// containerd 1.6, which Debian 12 has, takes our pins and does not report them: its
// kubelet collects what is pinned. Everything else works as with later ones. What
// it answers is kept for tests that have none (internal/agent).
func TestOldContainerdTakesImagesAndIgnoresPins(t *testing.T) {
	dir := os.Getenv("REFIT_CONTAINERD_16")
	if dir == "" || os.Geteuid() != 0 {
		t.Skip("set REFIT_CONTAINERD_16 to a directory with containerd 1.6, as root: a real one is started")
	}
	d := &daemon{t: t, bin: filepath.Join(dir, "containerd"), dir: t.TempDir()}
	conf := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.internal.v1.opt\"]\n[grpc]\naddress = %q\n",
		filepath.Join(d.dir, "root"), filepath.Join(d.dir, "state"), d.socket())
	if err := os.WriteFile(filepath.Join(d.dir, "config.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	t.Cleanup(d.stop)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blobs := blobMap{}
	img := makeImage(blobs, "registry.k8s.io/pause:3.10.2", "one", true)
	if _, err := c.Load(t.Context(), img, blobs); err != nil {
		t.Fatal(err)
	}
	if names, ok, err := c.Pin(t.Context(), img); !ok || err != nil {
		t.Fatalf("%v %v %v", names, ok, err)
	}
	eventually(t, "held per CRI", func() bool { tag, digest, _ := report(t, c, img); return tag && digest })
	time.Sleep(time.Second) // a pin would have been seen
	if _, _, pinned := report(t, c, img); pinned {
		t.Fatal("it reports the pin: this is no containerd that ignores them")
	}
	if *update {
		r, err := critest.Capture(t.Context(), d.socket())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Places.GetImageFilesystems() {
			p.FsId.Mountpoint = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
		}
		if err := r.Write("../cri/critest/testdata/containerd-1.6.json"); err != nil {
			t.Fatal(err)
		}
	}
}
