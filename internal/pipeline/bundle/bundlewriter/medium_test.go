package bundlewriter

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
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// mediumSource is a bundle of some megabytes in a file.
func mediumSource(t *testing.T) (string, *bundle.Header) {
	t.Helper()
	s := bundletest.Tiny()
	s.ChunkSize = 1 << 20
	s.Payloads = append(s.Payloads, bundletest.Payload{Name: "large", Content: bytes.Repeat([]byte("some bytes"), 1<<20)})
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, bundletest.Bytes(t, s, bundletest.Key(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return path, f.Header()
}

func mediumContents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A bundle is written and read back.
func TestABundleIsWrittenToAFile(t *testing.T) {
	src, h := mediumSource(t)
	dst := filepath.Join(t.TempDir(), "copy")
	var last, total int64
	got, err := WriteMedium(t.Context(), src, dst, func(d, n int64) { last, total = d, n })
	if err != nil || got.Digest != h.Digest {
		t.Fatal(err)
	}
	if !bytes.Equal(mediumContents(t, src), mediumContents(t, dst)) {
		t.Error("the copy differs")
	}
	if last != total || total != 2*h.FileSize() {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	if _, err := WriteMedium(t.Context(), src, src, nil); err == nil || !strings.Contains(err.Error(), "same file") {
		t.Errorf("onto itself: %v", err)
	}
	if !bytes.Equal(mediumContents(t, src), mediumContents(t, dst)) {
		t.Error("the source was damaged")
	}
	for target, want := range map[string]string{"/dev/null": "neither a block device", "/dev/refit-test-no-device": "no such file", t.TempDir(): "neither"} {
		if _, err := WriteMedium(t.Context(), src, target, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// An interrupted copy does not pass for a bundle on a device, also where one was before.
func TestAnInterruptedCopyIsNoBundle(t *testing.T) {
	src, h := mediumSource(t)
	dev := loopDevice(t, h.FileSize()+1<<20)
	if _, err := WriteMedium(t.Context(), src, dev, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := WriteMedium(ctx, src, dev, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := bundlereader.OpenPath(dev); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("the unfinished copy: %v", err)
	}
}

// A file gets its name when it is whole: an interrupted copy leaves what was there.
func TestAnInterruptedCopyLeavesAFile(t *testing.T) {
	src, _ := mediumSource(t)
	dir := t.TempDir()
	dst := filepath.Join(dir, "copy")
	if err := os.WriteFile(dst, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, to := range []string{dst, filepath.Join(dir, "new")} {
		if _, err := WriteMedium(ctx, src, to, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	if got := mediumContents(t, dst); string(got) != "old" {
		t.Errorf("the file that was there has %d bytes", len(got))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left next to it: %v %v", left, err)
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
	src, h := mediumSource(t)
	dev := loopDevice(t, h.FileSize()/bundle.BlockSize*bundle.BlockSize+1<<20)
	if _, err := WriteMedium(t.Context(), src, dev, nil); err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := bundlereader.Verify(t.Context(), f, nil); err != nil || f.Header().Digest != h.Digest {
		t.Errorf("the device holds %s: %v", f.Header().Digest, err)
	}
	if _, err := Sign(dev, bundletest.Key(2)); err != nil {
		t.Errorf("signing on the device: %v", err)
	}
	// and a bundle on a device is a source and can be copied on
	if got, err := WriteMedium(t.Context(), dev, filepath.Join(t.TempDir(), "back"), nil); err != nil || got.Digest != h.Digest {
		t.Errorf("from the device: %v", err)
	}
}

func TestADeviceThatIsTooSmallIsRefused(t *testing.T) {
	src, h := mediumSource(t)
	dev := loopDevice(t, h.FileSize()/2/bundle.BlockSize*bundle.BlockSize)
	before := mediumContents(t, dev)
	_, err := WriteMedium(t.Context(), src, dev, nil)
	var space *SpaceError
	if !errors.As(err, &space) || space.Needed != h.FileSize() {
		t.Errorf("got %v", err)
	}
	if !bytes.Equal(before, mediumContents(t, dev)) {
		t.Error("something was written all the same")
	}
}

func TestAMountedDeviceIsRefused(t *testing.T) {
	src, _ := mediumSource(t)
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
	_, err := WriteMedium(t.Context(), src, dev, nil)
	var busy *BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want the mount point %s", err, dir)
	}
}

// A bundle in a partition is not written over its own device.
func TestSameDevice(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/sys/block/sdb", "/sys/block/sdb/sdb1", true}, {"/sys/block/sdb/sdb1", "/sys/block/sdb", true}, {"/sys/block/sdb", "/sys/block/sdb", true},
		{"/sys/block/sdb/sdb1", "/sys/block/sdb/sdb2", false}, {"/sys/block/sda", "/sys/block/sdaa", false}, {"", "", false}, {"", "/sys/block/sda", false},
	} {
		if got := sameDevice(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
	device := loopDevice(t, 1<<20)
	st, err := os.Stat(device)
	if err != nil {
		t.Fatal(err)
	}
	if dir := sysfsPath(st); filepath.Base(dir) != filepath.Base(device) {
		t.Errorf("%s is %q in sysfs", device, dir)
	}
}
