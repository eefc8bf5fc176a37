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

func formats() map[string]Format { return map[string]Format{"FAT32": FAT32(), "exFAT": ExFAT()} }

// A stick has the bundle as a file, byte by byte, and a README whose sum is that of the file.
func TestAReadableMedium(t *testing.T) {
	src, h := mediumSource(t)
	for kind, format := range formats() {
		for name, dst := range map[string]func() string{
			"image file": func() string { return filepath.Join(t.TempDir(), "stick.img") },
			"device":     func() string { return loopDevice(t, 64<<20) },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				path := dst()
				got, err := WriteVolume(t.Context(), format, src, path, Readme{Contacts: []string{"Call +49 30 1234\x1b[2J"}}, nil)
				if err != nil || got.Digest != h.Digest {
					t.Fatal(err)
				}
				v := volumeOf(t, path)
				if v.Kind != kind || v.Label != "REFIT" {
					t.Errorf("%s %q", v.Kind, v.Label)
				}
				whole := mediumContents(t, src)
				if b, err := fs.ReadFile(v, "tiny-1.2.3.refit"); err != nil || !bytes.Equal(b, whole) {
					t.Fatalf("%d bytes, %v", len(b), err)
				}
				checkReadme(t, v, fmt.Sprintf("%x", sha256.Sum256(whole)), h.Digest, "tiny 1.2.3", "tiny-1.2.3.refit", "v1.36.3", "Call +49 30 1234")
				checkFileSystem(t, path)
			})
		}
	}
}

// checkReadme checks the README that a technician reads.
func checkReadme(t *testing.T, v *filesystem.Volume, want ...string) {
	t.Helper()
	readme, err := fs.ReadFile(v, readmeName)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !bytes.Contains(readme, []byte(w)) {
			t.Errorf("the README does not have %q:\n%s", w, readme)
		}
	}
	if bytes.ContainsRune(readme, 0x1b) {
		t.Error("the README has a control character")
	}
}

// A bundle of 4 GiB or more is in parts in FAT32, and one file in exFAT.
func TestFilesOfALargeBundle(t *testing.T) {
	_, h := mediumSource(t)
	for size, want := range map[int64]map[string]int{
		filesystem.MaxFAT32File: {"FAT32": 1, "exFAT": 1}, filesystem.MaxFAT32File + 1: {"FAT32": 2, "exFAT": 1}, 100 << 30: {"FAT32": 26, "exFAT": 1},
	} {
		for kind, format := range formats() {
			files, err := mediumFiles(h, size, format.maxFile)
			if err != nil || len(files) != want[kind] {
				t.Errorf("%d bytes in %s: %d files, %v", size, kind, len(files), err)
			}
			var sum int64
			for _, f := range files {
				sum += f.part.Length
			}
			if sum != size {
				t.Errorf("%d of %d bytes in %s", sum, size, kind)
			}
		}
	}
}

// A bundle that is too large for one file of FAT32 is on the stick in parts.
func TestAReadableMediumInParts(t *testing.T) {
	src, h := mediumSource(t)
	dev := loopDevice(t, 64<<20)
	format := FAT32()
	format.maxFile = h.FileSize()/2 + bundle.PartHeaderSize
	got, err := WriteVolume(t.Context(), format, src, dev, Readme{}, nil)
	if err != nil || got.Digest != h.Digest {
		t.Fatal(err)
	}
	v := volumeOf(t, dev)
	dir := t.TempDir()
	names, err := fs.Glob(v.FS, "*.part-*")
	if err != nil || len(names) < 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		b, err := fs.ReadFile(v, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil || int64(len(b)) > format.maxFile {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		checkReadme(t, v, "File:       "+name)
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
	checkFileSystem(t, dev)
}

// checkFileSystem checks the partition with the standard tool through a loop device.
func checkFileSystem(t *testing.T, disk string) {
	t.Helper()
	fsck, err := exec.LookPath(map[string]string{"FAT32": "fsck.fat", "exFAT": "fsck.exfat"}[volumeOf(t, disk).Kind])
	if err != nil || os.Getuid() != 0 {
		t.Log("not checked by fsck: it is not installed, or the test does not run as root")
		return
	}
	out, err := exec.Command("losetup", "--find", "--show", "--read-only", "--offset", fmt.Sprint(1<<20), disk).Output() // warnings are no part of the name
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	part := strings.TrimSpace(string(out))
	defer func() { _ = exec.Command("losetup", "--detach", part).Run() }()
	if out, err := exec.Command(fsck, "-n", part).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", fsck, err, out)
	}
}

func TestAMediumIsRefused(t *testing.T) {
	src, h := mediumSource(t)
	for kind, format := range formats() {
		if _, err := WriteVolume(t.Context(), format, src, src, Readme{}, nil); err == nil || !strings.Contains(err.Error(), "same file") {
			t.Errorf("%s onto itself: %v", kind, err)
		}
		dev := loopDevice(t, h.FileSize()/bundle.BlockSize*bundle.BlockSize+1<<20)
		before := mediumContents(t, dev)
		var space *SpaceError
		if _, err := WriteVolume(t.Context(), format, src, dev, Readme{}, nil); !errors.As(err, &space) {
			t.Errorf("%s on a small device: %v", kind, err)
		}
		if !bytes.Equal(before, mediumContents(t, dev)) {
			t.Errorf("the small device was written to (%s)", kind)
		}
	}
}

// A cancelled run leaves a medium without a bundle, also where a stick with one was.
func TestAnInterruptedMediumHasNoBundle(t *testing.T) {
	src, _ := mediumSource(t)
	dev := loopDevice(t, 64<<20)
	for kind, format := range formats() {
		if _, err := WriteVolume(t.Context(), ExFAT(), src, dev, Readme{}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := WriteVolume(ctx, format, src, dev, Readme{}, func(done, _ int64) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if found, err := bundlereader.ListPath(dev); !errors.Is(err, bundle.ErrNotBundle) {
			t.Errorf("%s: found %+v, %v", kind, found, err)
		}
	}
}

// cutDisk loses its power after some writes, in the middle of one.
type cutDisk struct {
	*os.File
	left int
}

var errCut = errors.New("power cut")

func (c *cutDisk) WriteAt(p []byte, at int64) (int, error) {
	if c.left--; c.left < 0 {
		_, _ = c.File.WriteAt(p[:len(p)/2/512*512], at)
		return 0, errCut
	}
	return c.File.WriteAt(p, at)
}

// However many writes reach a stick that had a bundle, it has no bundle, or the whole new one.
func TestPowerCutsOfAMedium(t *testing.T) {
	src, h := mediumSource(t)
	old := filepath.Join(t.TempDir(), "old")
	if _, err := WriteVolume(t.Context(), FAT32(), src, old, Readme{}, nil); err != nil {
		t.Fatal(err)
	}
	before, whole := mediumContents(t, old), mediumContents(t, src)
	for kind, format := range formats() {
		d, err := format.plan(int64(len(before)), "REFIT", 1, []filesystem.NewFile{{Name: "b.refit", Size: h.FileSize()}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "disk")
		for n, finished := 0, false; !finished; n++ {
			if err := os.WriteFile(path, before, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			err = writeAll(&cutDisk{f, n}, d, int64(len(before)), whole)
			f.Close()
			found, listed := bundlereader.ListPath(path)
			finished = err == nil
			switch {
			case finished && (listed != nil || len(found) != 1 || found[0].Header == nil || found[0].Header.Digest != h.Digest || found[0].Err != nil):
				t.Fatalf("%s: the finished disk: %+v, %v", kind, found, listed)
			case !finished && !errors.Is(listed, bundle.ErrNotBundle):
				t.Fatalf("%s: after %d writes: %+v, %v", kind, n, found, listed)
			case finished && n < 8:
				t.Errorf("%s: only %d writes", kind, n)
			}
		}
	}
}

// writeAll writes a medium in the order of volumeWriter, the bundle in four pieces.
func writeAll(to disk, d newVolume, size int64, whole []byte) error {
	if err := clearDisk(to, size); err != nil {
		return err
	}
	for at, piece := 0, len(whole)/4+1; at < len(whole); at += piece {
		if _, err := to.WriteAt(whole[at:min(len(whole), at+piece)], d.Offset(0)+int64(at)); err != nil {
			return err
		}
	}
	return finishVolume(to, d)
}
