package bundlewriter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// volumeOf opens the only partition of a disk.
func volumeOf(t *testing.T, path string) *filesystem.Volume {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	p, err := filesystem.Partitions(f, size)
	if err != nil || len(p) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	v, err := filesystem.Open(io.NewSectionReader(f, p[0].Start, p[0].Size), p[0].Size)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A stick has the bundle as a file, byte by byte, and a README whose sum is that of the file.
func TestAReadableMedium(t *testing.T) {
	src, h := mediumSource(t)
	for name, dst := range map[string]func() string{
		"image file": func() string { return filepath.Join(t.TempDir(), "stick.img") },
		"device":     func() string { return loopDevice(t, 64<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			path := dst()
			got, err := WriteFAT32(t.Context(), src, path, Readme{Contacts: []string{"Call +49 30 1234\x1b[2J"}}, nil)
			if err != nil || got.Digest != h.Digest {
				t.Fatal(err)
			}
			v := volumeOf(t, path)
			whole := mediumContents(t, src)
			if b, err := fs.ReadFile(v, "tiny-1.2.3.refit"); err != nil || !bytes.Equal(b, whole) {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			readme, err := fs.ReadFile(v, readmeName)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{fmt.Sprintf("%x", sha256.Sum256(whole)), h.Digest, "tiny 1.2.3", "tiny-1.2.3.refit", "v1.36.3", "Call +49 30 1234"} {
				if !bytes.Contains(readme, []byte(want)) {
					t.Errorf("the README does not have %q:\n%s", want, readme)
				}
			}
			if bytes.ContainsRune(readme, 0x1b) {
				t.Error("the README has a control character")
			}
			checkFAT(t, path)
		})
	}
}

// A bundle that is too large for one file of FAT32 is on the stick in parts.
func TestAReadableMediumInParts(t *testing.T) {
	src, h := mediumSource(t)
	dev := loopDevice(t, 64<<20)
	limit := h.FileSize()/2 + bundle.PartHeaderSize
	got, err := writeFAT32(t.Context(), src, dev, Readme{}, limit, nil)
	if err != nil || got.Digest != h.Digest {
		t.Fatal(err)
	}
	v := volumeOf(t, dev)
	dir := t.TempDir()
	readme, err := fs.ReadFile(v, readmeName)
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(v.FS, "*.part-*")
	if err != nil || len(names) < 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		b, err := fs.ReadFile(v, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil || int64(len(b)) > limit || !bytes.Contains(readme, []byte("File:       "+name)) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	for _, path := range []string{dir, dev} {
		b, err := bundlereader.OpenPath(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := errors.Join(bundlereader.Verify(t.Context(), b, nil), b.Close()); err != nil || b.Header().Digest != h.Digest {
			t.Errorf("%s has %s: %v", path, b.Header().Digest, err)
		}
	}
	checkFAT(t, dev)
}

// checkFAT checks the partition with fsck.fat through a loop device.
func checkFAT(t *testing.T, disk string) {
	t.Helper()
	fsck, err := exec.LookPath("fsck.fat")
	if err != nil || os.Getuid() != 0 {
		t.Log("not checked by fsck.fat: it is not installed, or the test does not run as root")
		return
	}
	out, err := exec.Command("losetup", "--find", "--show", "--read-only", "--offset", fmt.Sprint(1<<20), disk).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	part := strings.TrimSpace(string(out))
	defer func() { _ = exec.Command("losetup", "--detach", part).Run() }()
	if out, err := exec.Command(fsck, "-n", "-v", part).CombinedOutput(); err != nil {
		t.Errorf("fsck.fat: %v\n%s", err, out)
	}
}

func TestAMediumIsRefused(t *testing.T) {
	src, _ := mediumSource(t)
	if _, err := WriteFAT32(t.Context(), src, src, Readme{}, nil); err == nil || !strings.Contains(err.Error(), "same file") {
		t.Errorf("onto itself: %v", err)
	}
	dev := loopDevice(t, 20<<20)
	before := mediumContents(t, dev)
	var space *SpaceError
	if _, err := WriteFAT32(t.Context(), src, dev, Readme{}, nil); !errors.As(err, &space) {
		t.Errorf("a small device: %v", err)
	}
	if !bytes.Equal(before, mediumContents(t, dev)) {
		t.Error("the small device was written to")
	}
}

// A cancelled run leaves a medium without a bundle, also where a stick with one was.
func TestAnInterruptedMediumHasNoBundle(t *testing.T) {
	src, _ := mediumSource(t)
	dev := loopDevice(t, 64<<20)
	if _, err := WriteFAT32(t.Context(), src, dev, Readme{}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := WriteFAT32(ctx, src, dev, Readme{}, func(done, _ int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if found, err := bundlereader.ListPath(dev); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("found %+v, %v", found, err)
	}
}

// cutDisk loses its power after some writes.
type cutDisk struct {
	*os.File
	left int
}

var errCut = errors.New("power cut")

func (c *cutDisk) WriteAt(p []byte, at int64) (int, error) {
	if c.left--; c.left < 0 {
		return 0, errCut
	}
	return c.File.WriteAt(p, at)
}

// However many of the last writes reach the disk, it has no bundle, or the whole one.
func TestPowerCutsOfAMedium(t *testing.T) {
	src, h := mediumSource(t)
	from, err := bundlereader.OpenPath(src)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	const size = 64 << 20
	d, err := filesystem.NewFAT32(size, "REFIT", 1, []filesystem.NewFile{{Name: "b.refit", Size: h.FileSize()}})
	if err != nil {
		t.Fatal(err)
	}
	whole := mediumContents(t, src)
	for n := 0; ; n++ {
		path := filepath.Join(t.TempDir(), "disk")
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(whole, d.Offset(0))
		if err != nil {
			t.Fatal(err)
		}
		err = finishVolume(&cutDisk{f, n}, d)
		f.Close()
		found, listed := bundlereader.ListPath(path)
		if err == nil {
			if listed != nil || len(found) != 1 || found[0].Header == nil || found[0].Header.Digest != h.Digest {
				t.Fatalf("the finished disk: %+v, %v", found, listed)
			}
			return
		}
		if !errors.Is(listed, bundle.ErrNotBundle) {
			t.Fatalf("after %d writes: %+v, %v", n, found, listed)
		}
	}
}
