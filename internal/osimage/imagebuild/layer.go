package imagebuild

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/refit-dev/refit/internal/osimage"
)

// layerOf is the tar of entries, and the same as gzip.
func layerOf(entries []osimage.LayerEntry) (plain, zipped []byte, err error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b osimage.LayerEntry) int { return strings.Compare(a.Path, b.Path) })
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, e := range entries {
		if i > 0 && entries[i-1].Path == e.Path {
			return nil, nil, fmt.Errorf("%s is there twice", e.Path)
		}
		if err := checkPath(e.Path); err != nil {
			return nil, nil, err
		}
		if err := w.WriteHeader(header(e)); err != nil {
			return nil, nil, fmt.Errorf("entry %s: %w", e.Path, err)
		}
		if e.Link == "" && !e.Removed {
			if _, err := w.Write(e.Data); err != nil {
				return nil, nil, fmt.Errorf("entry %s: %w", e.Path, err)
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), gzipStored(b.Bytes()), nil
}

func checkPath(p string) error {
	if p == "" || path.Clean("/"+p) != "/"+p || strings.HasPrefix(path.Base(p), ".wh.") {
		return errors.New("entry " + p + " has no clean path")
	}
	return nil
}

func header(e osimage.LayerEntry) *tar.Header {
	h := &tar.Header{Name: e.Path, ModTime: time.Unix(0, 0), Uid: e.UID, Gid: e.GID}
	switch {
	case e.Removed:
		h.Name = path.Join(path.Dir(e.Path), ".wh."+path.Base(e.Path))
		h.Typeflag = tar.TypeReg
	case e.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Link, 0o777
	default:
		h.Typeflag, h.Mode, h.Size = tar.TypeReg, int64(e.Mode), int64(len(e.Data))
	}
	return h
}

// storedBlock is the longest block of deflate that is not compressed.
const storedBlock = 0xffff

// gzipStored is gzip without compression. Every compressor may change with its
// version, and the digest with it; a configuration is small.
func gzipStored(data []byte) []byte {
	out := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}
	for rest := data; ; {
		n := min(len(rest), storedBlock)
		last := byte(0)
		if n == len(rest) {
			last = 1
		}
		out = append(out, last)
		out = binary.LittleEndian.AppendUint16(out, uint16(n))
		out = binary.LittleEndian.AppendUint16(out, ^uint16(n))
		out = append(out, rest[:n]...)
		if rest = rest[n:]; last == 1 {
			break
		}
	}
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(data))
	return binary.LittleEndian.AppendUint32(out, uint32(len(data)))
}

func digestOf(b []byte) string { return digest.FromBytes(b).String() }
