package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// packed is one file of an archive: from a file, or with a text.
type packed struct {
	name, from string
	text       []byte
	mode       int64
}

// archive makes the archive of a product: zip for Windows, tar.gz elsewhere.
func (r *release) archive(p platform, product product) error {
	files := []packed{{name: "LICENSE", from: "LICENSE", mode: 0o644}, {name: "README.md", from: "README.md", mode: 0o644}}
	for _, name := range product.programs {
		files = append(files, packed{name: name, from: filepath.Join(r.binaries, p.dir(), name), mode: 0o755})
	}
	files = append(files, product.pages...)
	pack := tarGzip
	if p.os == "windows" {
		pack = zipped
	}
	return writeFile(filepath.Join(r.output, r.archiveName(p, product.name)), func(w io.Writer) error { return pack(w, files, r.date) })
}

func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// open returns the content of a file and its size.
func (f packed) open() (io.ReadCloser, int64, error) {
	if f.from == "" {
		return io.NopCloser(bytes.NewReader(f.text)), int64(len(f.text)), nil
	}
	in, err := os.Open(f.from)
	if err != nil {
		return nil, 0, err
	}
	st, err := in.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, in.Close())
	}
	return in, st.Size(), nil
}

// tarGzip writes files with fixed headers.
func tarGzip(w io.Writer, files []packed, date time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(tarPlain(z, files, date), z.Close())
}

func tarPlain(w io.Writer, files []packed, date time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := addToTar(t, f, date); err != nil {
			return err
		}
	}
	return t.Close()
}

func addToTar(t *tar.Writer, f packed, date time.Time) error {
	in, size, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: size, ModTime: date, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(t, in)
	return err
}

func zipped(w io.Writer, files []packed, date time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		if err := addToZip(z, f, date); err != nil {
			return err
		}
	}
	return z.Close()
}

func addToZip(z *zip.Writer, f packed, date time.Time) error {
	in, _, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	h := &zip.FileHeader{Name: path.Clean(f.name), Method: zip.Deflate, Modified: date}
	h.SetMode(os.FileMode(f.mode))
	out, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
