package write

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/read"
)

// R0.38: a bundle is written and read back.
func TestABundleIsWrittenToAFile(t *testing.T) {
	src, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	dst := filepath.Join(t.TempDir(), "copy")
	var last, total int64
	got, err := ToMedium(t.Context(), src, dst, func(d, n int64) { last, total = d, n })
	if err != nil || got.Digest != h.Digest {
		t.Fatal(err)
	}
	if !bytes.Equal(contents(t, src), contents(t, dst)) {
		t.Error("the copy differs")
	}
	if last != total || total != 2*h.FileSize() {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	if _, err := ToMedium(t.Context(), src, src, nil); err == nil || !strings.Contains(err.Error(), "same file") {
		t.Errorf("onto itself: %v", err)
	}
	if !bytes.Equal(contents(t, src), contents(t, dst)) {
		t.Error("the source was damaged")
	}
	for target, want := range map[string]string{"/dev/null": "neither a block device", "/dev/refit-test-no-device": "no such file", t.TempDir(): "neither"} {
		if _, err := ToMedium(t.Context(), src, target, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// An interrupted copy does not pass for a bundle, also where one was before.
func TestAnInterruptedCopyIsNoBundle(t *testing.T) {
	src, _ := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	dst := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(dst, contents(t, src), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ToMedium(ctx, src, dst, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := read.OpenPath(dst); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("the unfinished copy: %v", err)
	}
}

// loopDevice makes a block device of size bytes.
func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make a loop device")
	}
	img := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", img).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", dev, err, out)
		}
	})
	return dev
}

func TestABundleIsWrittenToADevice(t *testing.T) {
	src, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	dev := loopDevice(t, h.FileSize()/bundle.BlockSize*bundle.BlockSize+1<<20)
	if _, err := ToMedium(t.Context(), src, dev, nil); err != nil {
		t.Fatal(err)
	}
	verify(t, dev, h.Digest)
	if _, err := Sign(dev, make([]byte, 64)); err != nil {
		t.Errorf("signing on the device: %v", err)
	}
	// and a bundle on a device is a source and can be copied on
	if got, err := ToMedium(t.Context(), dev, filepath.Join(t.TempDir(), "back"), nil); err != nil || got.Digest != h.Digest {
		t.Errorf("from the device: %v", err)
	}
}

func TestADeviceThatIsTooSmallIsRefused(t *testing.T) {
	src, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	dev := loopDevice(t, h.FileSize()/2/bundle.BlockSize*bundle.BlockSize)
	before := contents(t, dev)
	_, err := ToMedium(t.Context(), src, dev, nil)
	var space *SpaceError
	if !errors.As(err, &space) || space.Needed != h.FileSize() {
		t.Errorf("got %v", err)
	}
	if !bytes.Equal(before, contents(t, dev)) {
		t.Error("something was written all the same")
	}
}

func TestAMountedDeviceIsRefused(t *testing.T) {
	src, _ := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	dev := loopDevice(t, 16<<20)
	if out, err := exec.Command("mkfs.ext4", "-q", dev).CombinedOutput(); err != nil {
		t.Skipf("no ext4 here: %v: %s", err, out)
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", dev, dir).CombinedOutput(); err != nil {
		t.Skipf("no mounting here: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	_, err := ToMedium(t.Context(), src, dev, nil)
	var busy *BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want the mount point %s", err, dir)
	}
}
