package bundlewriter

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// DeviceContents is what a block device would lose.
type DeviceContents struct {
	// Name is the vendor and the model of the disk, "" if it says none.
	Name string
	// Size in bytes.
	Size int64
	// What is there: partition 1 (FAT32 "PHOTOS", 12 entries). It is "" for a device that has a bundle,
	// or only zeros at its beginning and its end.
	What string
}

// ReadDeviceContents reads what writing to path would erase. It is empty for a target that is no
// block device.
func ReadDeviceContents(path string) (c DeviceContents, err error) {
	st, err := os.Stat(path)
	if err != nil || st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0 {
		return c, nil // WriteMedium says what is wrong with it
	}
	if b, err := bundlereader.OpenRaw(path); err == nil {
		return c, b.Close()
	}
	f, err := os.Open(path)
	if err != nil {
		return c, inputf("target: %w", err)
	}
	defer f.Close()
	c.Name = deviceName(st)
	if c.Size, err = f.Seek(0, io.SeekEnd); err != nil {
		return c, fmt.Errorf("target %s: %w", path, err)
	}
	c.What = describe(f, c.Size)
	return c, nil
}

// describe names partitions and file systems; "" for a blank device. What cannot be read may be data
// too, and is named.
func describe(r io.ReaderAt, size int64) string {
	list, err := filesystem.Partitions(r, size)
	if errors.Is(err, filesystem.ErrUnknown) {
		return describeVolume(r, size)
	}
	if err != nil {
		return "a damaged partition table"
	}
	var out []string
	for _, p := range list {
		what := describeVolume(io.NewSectionReader(r, p.Start, p.Size), p.Size)
		out = append(out, fmt.Sprintf("partition %d (%s)", p.Number, cmp.Or(what, "empty")))
	}
	return cmp.Or(strings.Join(out, ", "), "an empty partition table")
}

func describeVolume(r io.ReaderAt, size int64) string {
	v, err := filesystem.Open(r, size)
	var other *filesystem.UnsupportedError
	switch {
	case errors.As(err, &other):
		return other.Kind
	case errors.Is(err, filesystem.ErrUnknown) && isBlank(r, size):
		return ""
	case errors.Is(err, filesystem.ErrUnknown):
		return "unknown data"
	case err != nil:
		return "a damaged file system"
	}
	name := v.Kind
	if v.Label != "" {
		name += fmt.Sprintf(" %q", v.Label)
	}
	entries, err := v.ReadDir(".")
	if err != nil {
		return name + ", damaged"
	}
	return name + ", " + text.Count(len(entries), "entry")
}

// isBlank reports whether a device has zeros where partition tables and headers of file systems are.
func isBlank(r io.ReaderAt, size int64) bool {
	for _, part := range []struct{ at, length int64 }{{0, min(size, clearedHead)}, {max(0, size-clearedTail), min(size, clearedTail)}} {
		b := make([]byte, part.length)
		if n, _ := r.ReadAt(b, part.at); n < len(b) || len(bytes.Trim(b, "\x00")) > 0 {
			return false
		}
	}
	return true
}

// deviceName is the vendor and the model of a disk, "" if it says none.
func deviceName(st os.FileInfo) string {
	dir := sysfsPath(st)
	if dir == "" {
		return ""
	}
	var words []string
	for _, part := range []string{"vendor", "model"} {
		for _, at := range []string{dir, filepath.Dir(dir)} { // a partition is in its disk
			b, err := os.ReadFile(filepath.Join(at, "device", part))
			if word := strings.TrimSpace(string(b)); err == nil && word != "" {
				words = append(words, word)
				break
			}
		}
	}
	return strings.Join(words, " ")
}
