package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// mediumBundle is the size of the bundle on each medium, mediumRuns how often each is read, in
// turns; the least time counts.
const (
	mediumBundle = 1 << 30
	mediumRuns   = 6
)

// blkflsbuf is BLKFLSBUF of linux/fs.h: it drops what the kernel keeps of a block device.
const blkflsbuf = 0x1261

// mediumFormats make an image with the standard tools that has one file, "release.bundle".
// The names are those of filesystem.Volume.
var mediumFormats = map[string]func(t *testing.T, image, file string){
	"FAT32": func(t *testing.T, image, file string) {
		mediumTool(t, "truncate", "-s", fmt.Sprint(mediumBundle+64<<20), image)
		mediumTool(t, "mkfs.vfat", "-F", "32", image)
		mediumTool(t, "mcopy", "-i", image, file, "::/release.bundle")
	},
	"exFAT": func(t *testing.T, image, file string) {
		mediumTool(t, "truncate", "-s", fmt.Sprint(mediumBundle+64<<20), image)
		mediumTool(t, "mkfs.exfat", image)
		device, mount := loopDevice(t, image), t.TempDir()
		mediumTool(t, "mount.exfat-fuse", device, mount)
		out, err := exec.Command("cp", file, filepath.Join(mount, "release.bundle")).CombinedOutput()
		mediumTool(t, "umount", mount)
		if err != nil {
			t.Fatalf("copy the bundle: %v: %s", err, out)
		}
	},
	"ISO 9660": func(t *testing.T, image, file string) {
		mediumTool(t, "genisoimage", "-quiet", "-r", "-J", "-o", image, "-graft-points", "release.bundle="+file)
	},
	"ext4": func(t *testing.T, image, file string) {
		dir := filepath.Join(filepath.Dir(image), "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(file, filepath.Join(dir, "release.bundle")); err != nil {
			t.Fatal(err)
		}
		mediumTool(t, "truncate", "-s", fmt.Sprint(mediumBundle+128<<20), image)
		mediumTool(t, "mke2fs", "-t", "ext4", "-q", "-F", "-d", dir, image)
	},
}

// mediumRead is one way to read a bundle and what it took at best.
type mediumRead struct {
	Seconds     float64 `json:"seconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	MiBInSecond float64 `json:"mibInSecond"`
	// OfRaw is the throughput against that of reading the same device without a file system.
	OfRaw float64 `json:"ofRaw"`
}

// TestMedia reads a bundle of one gibibyte from real loop devices: from the file systems of ordinary
// sticks, made by the standard tools, and the same devices as they are. It also checks the bundle,
// against one pass of SHA-256 over the file.
func TestMedia(t *testing.T) {
	resultsDir(t)
	file := makeBundle(t, mediumBundle)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	want := sumOf(t, file, info.Size())
	formats := map[string]map[string]mediumRead{}
	for kind, create := range mediumFormats {
		formats[kind] = readMedium(t, kind, create, file, info.Size(), want)
		if got := formats[kind]["file"].OfRaw; got < 0.8 {
			t.Errorf("%s gives %.2f of the throughput of its device, the promise is 0.8", kind, got)
		}
	}
	verify, pass := readVerified(t, file, info.Size())
	ratios := map[string]float64{"wall": verify.Seconds / pass.Seconds, "cpu": verify.CPUSeconds / pass.CPUSeconds}
	for of, got := range ratios {
		if got > 1.4 {
			t.Errorf("a check takes %.2f of the %s time of one hash pass, the promise is 1.4", got, of)
		}
	}
	writeResult(t, "media.json", map[string]any{
		"machine": thisMachine(), "load": load(), "bytes": info.Size(), "runs": mediumRuns, "formats": formats,
		"verify": map[string]any{"refit": verify, "sha256": pass, "ratios": ratios},
		"what": "a bundle read from loop devices, as a file of a file system that the standard tools made (file). raw is the same number of bytes of the device itself. " +
			"The bytes are compared, and the kernel's cache is empty before each run. verify: the whole bundle checked against one pass of SHA-256 over its file, which has one core; a check hashes chunks on all of them. The least time of all runs counts (make bench-site)",
	})
}

// readMedium reads the bundle on a new medium of this kind, and the medium itself.
func readMedium(t *testing.T, kind string, create func(t *testing.T, image, file string), file string, size int64, want string) map[string]mediumRead {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(file), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	image := filepath.Join(dir, "image")
	create(t, image, file)
	mediumTool(t, "sync", image)
	device := loopDevice(t, image)
	if got := sumOfBundle(t, device, size); got != want {
		t.Fatalf("%s: the bundle on the medium has other bytes", kind)
	}
	best := map[string]mediumRead{}
	for range mediumRuns {
		keep(best, "raw", size, timed(t, func() { forgetMedium(t, device, image) }, func() error { return readRaw(device, size, io.Discard) }))
		keep(best, "file", size, timed(t, func() { forgetMedium(t, device, image) }, func() error { return readBundle(device, size, io.Discard) }))
	}
	f := best["file"]
	f.OfRaw = f.MiBInSecond / best["raw"].MiBInSecond
	best["file"] = f
	t.Logf("%s: %.0f MiB a second, %.2f of the device", kind, f.MiBInSecond, f.OfRaw)
	return best
}

// readVerified checks the bundle, and hashes its file, from the kernel's cache: both are bound by the processor.
func readVerified(t *testing.T, file string, size int64) (verify, pass mediumRead) {
	t.Helper()
	best := map[string]mediumRead{}
	for range mediumRuns {
		keep(best, "sha256", size, timed(t, nil, func() error { return readRaw(file, size, sha256.New()) }))
		keep(best, "refit", size, timed(t, nil, func() error {
			f, err := bundlereader.OpenPath(file)
			if err != nil {
				return err
			}
			defer f.Close()
			return bundlereader.Verify(context.Background(), f, nil)
		}))
	}
	return best["refit"], best["sha256"]
}

func keep(best map[string]mediumRead, name string, size int64, r mediumRead) {
	if b, ok := best[name]; ok {
		r.Seconds, r.CPUSeconds = min(r.Seconds, b.Seconds), min(r.CPUSeconds, b.CPUSeconds)
	}
	r.MiBInSecond = float64(size) / (1 << 20) / r.Seconds
	best[name] = r
}

// timed is what a function of this process takes, after what must be done before.
func timed(t *testing.T, before func(), f func() error) mediumRead {
	t.Helper()
	if before != nil {
		before()
	}
	cpu, began := ownCPU(t), time.Now()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return mediumRead{Seconds: time.Since(began).Seconds(), CPUSeconds: (ownCPU(t) - cpu).Seconds()}
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readRaw reads the first bytes of a device or a file.
func readRaw(path string, size int64, to io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return copyExactly(to, f, size)
}

// readBundle reads the bundle of a medium as agents copy it, without checking it.
func readBundle(device string, size int64, to io.Writer) error {
	f, err := bundlereader.OpenPath(device)
	if err != nil {
		return err
	}
	defer f.Close()
	return copyExactly(to, io.NewSectionReader(f.Unverified(), 0, size), size)
}

func copyExactly(to io.Writer, from io.Reader, size int64) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{io.LimitReader(from, size)}, make([]byte, 1<<20))
	if err == nil && n != size {
		return fmt.Errorf("read %d of %d bytes", n, size)
	}
	return err
}

func sumOf(t *testing.T, path string, size int64) string {
	t.Helper()
	return summed(t, func(h hash.Hash) error { return readRaw(path, size, h) })
}

func sumOfBundle(t *testing.T, device string, size int64) string {
	t.Helper()
	return summed(t, func(h hash.Hash) error { return readBundle(device, size, h) })
}

func summed(t *testing.T, read func(hash.Hash) error) string {
	t.Helper()
	h := sha256.New()
	if err := read(h); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// forgetMedium empties the kernel's cache of a loop device and of its file.
func forgetMedium(t *testing.T, device, image string) {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), blkflsbuf, 0); err != nil {
		t.Fatal(err)
	}
	dropFileCache(t, image)
}

// loopDevice attaches a file until the test ends.
func loopDevice(t *testing.T, image string) string {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup %s: %v: %s", image, err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { mediumTool(t, "losetup", "--detach", device) })
	return device
}

// mediumTool runs a program of the packages that `make deps` installs.
func mediumTool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		path = "/usr/sbin/" + name
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		t.FailNow()
	}
}
