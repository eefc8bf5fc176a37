package osdriver

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// extract writes a tar below a folder. The root that is opened keeps every name,
// also one behind a link, inside.
func extract(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extractEntry(root, h, t); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func extractEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(strings.TrimSuffix(h.Name, "/"))
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeReg:
		if err := write(root, name, r); err != nil {
			return err
		}
	default:
		return nil
	}
	if err := root.Lchown(name, h.Uid, h.Gid); err != nil {
		return err
	}
	return root.Chmod(name, h.FileInfo().Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

func write(root *os.Root, name string, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
