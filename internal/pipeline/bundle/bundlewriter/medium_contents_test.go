package bundlewriter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What writing to a device would erase is named; nothing is named for a new one, or for a bundle.
func TestDeviceContents(t *testing.T) {
	src, h := mediumSource(t)
	run := func(name string, arg ...string) {
		t.Helper()
		cmd := exec.Command(name, arg...)
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	file := filepath.Join(t.TempDir(), "photo")
	if err := os.WriteFile(file, []byte("a photo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fill func(t *testing.T, dev string)
		want string
	}{
		"a new device": {func(*testing.T, string) {}, ""},
		"a bundle": {func(t *testing.T, dev string) {
			t.Helper()
			if _, err := WriteMedium(t.Context(), src, dev, nil); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"photos": {func(_ *testing.T, dev string) {
			run("mkfs.vfat", "-F", "32", "-n", "PHOTOS", dev)
			run("mcopy", "-i", dev, file, "::one.jpg")
		}, `FAT32 "PHOTOS", 1 entry`},
		"refit's own stick": {func(t *testing.T, dev string) {
			t.Helper()
			if _, err := WriteVolume(t.Context(), FAT32(), src, dev, Readme{}, nil); err != nil {
				t.Fatal(err)
			}
		}, "partition 1 (FAT32 "},
		"ext4":             {func(_ *testing.T, dev string) { run("mkfs.ext4", "-q", "-L", "data", dev) }, `ext4 "data", 1 entry`},
		"encryption":       {func(t *testing.T, dev string) { t.Helper(); put(t, dev, 0, "LUKS\xba\xbe") }, "LUKS encryption"},
		"something":        {func(t *testing.T, dev string) { t.Helper(); put(t, dev, 4000, "something") }, "unknown data"},
		"something behind": {func(t *testing.T, dev string) { t.Helper(); put(t, dev, 64<<20-512, "EFI PART") }, "unknown data"},
	} {
		t.Run(name, func(t *testing.T) {
			dev := loopDevice(t, max(64<<20, h.FileSize()))
			c.fill(t, dev)
			got, err := ReadDeviceContents(dev)
			if err != nil || c.want == "" && got.What != "" || !strings.HasPrefix(got.What, c.want) {
				t.Errorf("%+v, %v; want %s", got, err, c.want)
			}
			if got.What != "" && got.Size != 64<<20 {
				t.Errorf("%d bytes", got.Size)
			}
		})
	}
	if got, err := ReadDeviceContents(file); err != nil || got.What != "" {
		t.Errorf("a file: %+v, %v", got, err)
	}
}

func put(t *testing.T, path string, at int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
