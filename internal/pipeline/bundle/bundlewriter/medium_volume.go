package bundlewriter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

const (
	readmeName = "README.TXT"
	// clearedHead is what is cleared first: partition tables and headers of what was there.
	clearedHead = 1 << 20
	// clearedTail has the copy of a GPT.
	clearedTail = 33 * 512
	// volumeSlack is the room of a new image file next to the bundle.
	volumeSlack = 8 << 20
)

// Readme is what the technician reads on the medium.
type Readme struct {
	// Contacts are lines about whom to call.
	Contacts []string
}

// Format is a file system that refit makes on media.
type Format struct {
	// maxFile is the size of the largest file, minDisk that of the smallest disk.
	maxFile, minDisk int64
	plan             func(size int64, label string, serial uint32, files []filesystem.NewFile) (newVolume, error)
}

// newVolume is a planned disk. Its file system is there after WriteStart.
type newVolume interface {
	Offset(file int) int64
	WriteTables(w io.WriterAt) error
	WriteStart(w io.WriterAt) error
}

// FAT32 is read by every computer. A bundle that is larger than its files may be is written in parts.
func FAT32() Format {
	return Format{maxFile: filesystem.MaxFAT32File, minDisk: filesystem.MinFAT32Disk, plan: func(size int64, label string, serial uint32, files []filesystem.NewFile) (newVolume, error) {
		return filesystem.NewFAT32(size, label, serial, files)
	}}
}

// ExFAT has a bundle of any size in one file.
func ExFAT() Format {
	return Format{maxFile: math.MaxInt64, minDisk: filesystem.MinExFATDisk, plan: func(size int64, label string, serial uint32, files []filesystem.NewFile) (newVolume, error) {
		return filesystem.NewExFAT(size, label, serial, files)
	}}
}

// WriteVolume makes a medium with one file system on a block device, or in an image file. It has the
// bundle as a file, or in parts, and README.TXT, and is read back. The partition table is written last:
// until then the medium has no file system and no bundle. It refuses what WriteMedium refuses.
func WriteVolume(ctx context.Context, format Format, src, dst string, readme Readme, progress func(done, total int64)) (*bundle.Header, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	from, err := openSource(src, dst)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	size := from.Header().FileSize()
	files, err := mediumFiles(from.Header(), size, format.maxFile)
	if err != nil {
		return nil, err
	}
	to, err := openMedium(dst, format.imageSize(size))
	if err != nil {
		return nil, err
	}
	defer to.Close()
	if to.Name() != dst {
		defer os.Remove(to.Name()) // gone if it got its name
	}
	w := volumeWriter{format: format, from: from, to: to, files: files, readme: readme}
	if err := w.write(ctx, func(done int64) { progress(done, 2*size) }); err != nil {
		return nil, fmt.Errorf("write %s to %s: %w", src, dst, err)
	}
	if err := to.Close(); err != nil {
		return nil, fmt.Errorf("write %s to %s: %w", src, dst, err)
	}
	h, err := readBackPath(ctx, from.Header(), to.Name(), func(done int64) { progress(size+done, 2*size) })
	if err != nil || to.Name() == dst {
		return h, err
	}
	return h, renameComplete(to.Name(), dst)
}

// mediumFile is the whole bundle, or a part of it.
type mediumFile struct {
	name string
	// part has no digest yet; the whole bundle is a part without a header.
	part   bundle.Part
	header int64 // bytes
}

// mediumFiles returns the files of a medium: one, or parts of at most limit bytes.
func mediumFiles(h *bundle.Header, size, limit int64) ([]mediumFile, error) {
	if size <= limit {
		return []mediumFile{{name: mediumName(h.Metadata) + ".refit", part: bundle.Part{Length: size}}}, nil
	}
	parts, err := bundle.SplitParts(h.Digest, size, (limit-bundle.PartHeaderSize)/bundle.BlockSize*bundle.BlockSize)
	if err != nil {
		return nil, &InputError{err}
	}
	var out []mediumFile
	for _, p := range parts {
		out = append(out, mediumFile{name: partName(mediumName(h.Metadata), p), part: p, header: bundle.PartHeaderSize})
	}
	return out, nil
}

// disk is what volumeWriter writes to; tests record it.
type disk interface {
	io.WriterAt
	Sync() error
}

type volumeWriter struct {
	format Format
	from   *bundlereader.File
	to     *os.File
	files  []mediumFile
	readme Readme
}

// mediumName is NAME-VERSION, without characters that FAT does not have.
func mediumName(m *bundle.Metadata) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`"*/:<>?\|`, r) || r < ' ' {
			return '_'
		}
		return r
	}, m.Name+"-"+m.Version)
	return text.Truncate(clean, 120)
}

func (w *volumeWriter) write(ctx context.Context, progress func(int64)) error {
	total, err := w.diskSize()
	if err != nil {
		return err
	}
	h := w.from.Header()
	readme := w.readme.text(w.files, h, strings.Repeat("0", 2*sha256.Size))
	var list []filesystem.NewFile
	for _, f := range w.files {
		list = append(list, filesystem.NewFile{Name: f.name, Size: f.header + f.part.Length})
	}
	list = append(list, filesystem.NewFile{Name: readmeName, Size: int64(len(readme))})
	d, err := w.format.plan(total, "REFIT", crc32.ChecksumIEEE([]byte(h.Digest)), list)
	if err != nil {
		return err
	}
	if err := clearDisk(w.to, total); err != nil {
		return err
	}
	var sum string
	for i, f := range w.files {
		if sum, err = w.copyFile(ctx, f, d.Offset(i), progress); err != nil {
			return err
		}
	}
	if _, err := w.to.WriteAt([]byte(w.readme.text(w.files, h, sum)), d.Offset(len(w.files))); err != nil {
		return err
	}
	if err := finishVolume(w.to, d); err != nil {
		return err
	}
	return fsutil.DropCache(w.to)
}

// diskSize is the size of the device; a new image file gets the size that it needs.
func (w *volumeWriter) diskSize() (int64, error) {
	st, err := w.to.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() {
		return w.to.Seek(0, io.SeekEnd)
	}
	total := w.format.imageSize(w.from.Header().FileSize())
	return total, w.to.Truncate(total)
}

// clearDisk removes what was on the disk: nothing of it may be found after an interruption.
func clearDisk(to disk, total int64) error {
	if _, err := to.WriteAt(make([]byte, clearedHead), 0); err != nil {
		return err
	}
	if _, err := to.WriteAt(make([]byte, clearedTail), total-clearedTail); err != nil {
		return err
	}
	// The boot sector of the partition, which is the first thing after the head.
	if _, err := to.WriteAt(make([]byte, 64<<10), clearedHead); err != nil {
		return err
	}
	return to.Sync()
}

// imageSize is the size of a new image file for a bundle, a multiple of 1 MiB.
func (f Format) imageSize(bundle int64) int64 {
	return max(f.minDisk, (bundle+bundle/256+volumeSlack)>>20<<20)
}

// finishVolume makes the disk readable after the contents are on it.
func finishVolume(to disk, d newVolume) error {
	err := d.WriteTables(to)
	if err == nil {
		err = to.Sync()
	}
	if err == nil {
		err = d.WriteStart(to)
	}
	return errors.Join(err, to.Sync())
}

// copyFile copies in aligned pieces and returns the SHA-256 of what the file has of the bundle.
func (w *volumeWriter) copyFile(ctx context.Context, f mediumFile, at int64, progress func(int64)) (sum string, err error) {
	in, hash := w.from.Unverified(), sha256.New()
	buf := make([]byte, copySize)
	for done := int64(0); done < f.part.Length; {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		n := min(int64(len(buf)), f.part.Length-done)
		if got, err := in.ReadAt(buf[:n], f.part.Offset+done); int64(got) < n {
			return "", fmt.Errorf("read the bundle: %w", err)
		}
		hash.Write(buf[:n])
		if _, err := w.to.WriteAt(buf[:n], at+f.header+done); err != nil {
			return "", err
		}
		fsutil.WriteOut(w.to, at+f.header+done, n)
		done += n
		progress(f.part.Offset + done)
	}
	digest := [sha256.Size]byte(hash.Sum(nil))
	if f.header > 0 {
		f.part.Digest = bundle.FormatDigest(digest)
		if _, err := w.to.WriteAt(f.part.Header(), at); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(digest[:]), w.to.Sync()
}

// text is README.TXT. Its length does not depend on the sum, which is that of a whole bundle.
func (r Readme) text(files []mediumFile, h *bundle.Header, sum string) string {
	m := h.Metadata
	lines := []string{
		"This stick updates a Kubernetes cluster with refit.",
		"",
		"Release:    " + m.Name + " " + m.Version,
	}
	if m.KubernetesVersion != "" {
		lines = append(lines, "Kubernetes: "+m.KubernetesVersion)
	}
	for _, f := range files {
		lines = append(lines, "File:       "+f.name)
	}
	lines = append(lines,
		"Digest:     "+h.Digest,
		"",
		"What to do",
		"1. Plug the stick into one node of the cluster. Any node will do. Mount nothing, copy nothing.",
		"2. Leave it there. The node reads it and passes it on to the other nodes.",
		"   The console of the node, if it is set up, or the status page shows how far it is,",
		"   and when you may take the stick out.",
		"3. Nothing is installed before an administrator approves the digest above.",
		"",
	)
	if len(files) == 1 {
		lines = append(lines,
			"To check the file on another computer, compare its SHA-256",
			"(sha256sum FILE, or on Windows: certutil -hashfile FILE SHA256):",
			sum,
			"The administrator compares the digest: refit bundle verify FILE --digest DIGEST.",
		)
	} else {
		lines = append(lines, "The files are parts of one bundle. The administrator checks all of them:", "refit bundle verify FOLDER --digest DIGEST.")
	}
	if len(r.Contacts) > 0 {
		lines = append(lines, "", "Contact")
		for _, c := range r.Contacts {
			lines = append(lines, text.CleanLine(c))
		}
	}
	return strings.Join(append(lines, ""), "\r\n")
}

// readBackPath verifies the bundle in the file system of a medium.
func readBackPath(ctx context.Context, want *bundle.Header, dst string, progress func(int64)) (*bundle.Header, error) {
	b, err := bundlereader.OpenPath(dst)
	if err != nil {
		return nil, fmt.Errorf("read back: %w", err)
	}
	return verifyCopy(ctx, want, b, dst, progress)
}
