package nodefiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// FS is the node's file system.
type FS struct {
	// Root that all paths are below; empty is the node's own.
	Root string
	// Refuse says why a path may not be changed, "" if it may. It is asked about
	// the path behind symbolic links. nil refuses nothing.
	Refuse func(path string) string
}

// ErrRefused says that a path may not be changed.
var ErrRefused = errors.New("this path is not changed")

// State of a path.
type State struct {
	// Exists is false for what is not there; then the rest is empty.
	Exists bool
	// Link is where a symbolic link points; Regular is false for anything that is
	// no file.
	Link    string
	Regular bool
	Digest  string
	Mode    uint32
	UID     uint32
	GID     uint32
	Size    int64
}

// maxRead bounds what Read takes into memory, in bytes.
const maxRead = model.MaxFile

// ErrTooLarge says that a file is too large to be kept.
var ErrTooLarge = fmt.Errorf("the file is larger than %d bytes", maxRead)

// Inspect returns what is at a path, with the digest of a regular file.
func (f FS) Inspect(path string) (State, error) {
	s, file, err := f.open(path)
	if err != nil || file == nil {
		return s, err
	}
	defer file.Close()
	s.Digest, err = digestOf(file)
	return s, err
}

// Read is Look with the content of a regular file.
func (f FS) Read(path string) ([]byte, State, error) {
	s, file, err := f.open(path)
	if err != nil || file == nil {
		return nil, s, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err != nil {
		return nil, s, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxRead {
		return nil, s, fmt.Errorf("read %s: %w", path, ErrTooLarge)
	}
	s.Digest = model.DigestOf(b)
	return b, s, nil
}

// open opens and inspects a path; file is nil if it is not a regular file.
func (f FS) open(path string) (State, *os.File, error) {
	d, err := f.dir(path, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return State{}, nil, nil
	}
	if err != nil {
		return State{}, nil, err
	}
	defer d.close()
	var st unix.Stat_t
	err = unix.Fstatat(d.fd, d.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return State{}, nil, nil
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("inspect %s: %w", path, err)
	}
	s := State{Exists: true, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Size: st.Size, Regular: st.Mode&unix.S_IFMT == unix.S_IFREG}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		buf := make([]byte, 4096)
		if n, err := unix.Readlinkat(d.fd, d.base, buf); err == nil {
			s.Link = string(buf[:n])
		}
	}
	if !s.Regular {
		return s, nil, nil
	}
	fd, err := unix.Openat(d.fd, d.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return State{}, nil, fmt.Errorf("inspect %s: %w", path, err)
	}
	return s, os.NewFile(uintptr(fd), path), nil
}

// Write puts a file in its place, with its directories, in one stroke.
func (f FS) Write(path string, data []byte, mode uint32, uid, gid int) error {
	d, err := f.dir(path, true)
	if err != nil {
		return err
	}
	defer d.close()
	temporary := "." + d.base + ".refit~"
	_ = unix.Unlinkat(d.fd, temporary, 0) // of a try that was cut off
	if err := d.writeTemporary(f.Root, temporary, data, mode, uid, gid); err != nil {
		_ = unix.Unlinkat(d.fd, temporary, 0)
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := unix.Renameat(d.fd, temporary, d.fd, d.base); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := unix.Fsync(d.fd); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (d *dir) writeTemporary(root, name string, data []byte, mode uint32, uid, gid int) error {
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	w := os.NewFile(uintptr(fd), name)
	_, err = w.Write(data)
	if err == nil {
		err = w.Chown(uid, gid)
	}
	if err == nil {
		err = unix.Fchmod(fd, mode&0o7777)
	}
	if err == nil {
		err = fsutil.LabelAt(root, d.fd, name, filepath.Join(d.logical, d.base), 0)
	}
	if err == nil {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}

// Remove takes a file away; one that is not there is gone already.
func (f FS) Remove(path string) error {
	d, err := f.dir(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if err := unix.Unlinkat(d.fd, d.base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := unix.Fsync(d.fd); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// dir is an open directory and the name of a file in it. logical is its path on the node.
type dir struct {
	fd            int
	base, logical string
}

func (d *dir) close() { _ = unix.Close(d.fd) }

// dir opens the directory of a path: resolved, asked about, then opened without
// following any link, so that what was asked about is what is opened.
func (f FS) dir(path string, create bool) (*dir, error) {
	real, logical, missing, err := f.place(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case missing && !create:
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	case missing:
		if err := f.makeDirs(real, logical); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	fd, err := openDir(real)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &dir{fd: fd, base: filepath.Base(path), logical: logical}, nil
}

// makeDirs makes the directories that are missing, with the labels that they have on the node.
func (f FS) makeDirs(real, logical string) error {
	var made []string
	for at := real; at != "/"; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(real, 0o755); err != nil {
		return err
	}
	for _, at := range made {
		if err := fsutil.LabelAt(f.Root, unix.AT_FDCWD, at, logical, fs.ModeDir); err != nil {
			return err
		}
		logical = filepath.Dir(logical)
	}
	return nil
}

// place is the directory behind a path's links, if it may be changed, and its path on the node.
func (f FS) place(path string) (real, logical string, missing bool, err error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return "", "", false, fmt.Errorf("%w: it is not a clean absolute path", ErrRefused)
	}
	root, err := filepath.EvalSymlinks(filepath.Join("/", f.Root))
	if err != nil {
		return "", "", false, err
	}
	if real, missing, err = resolve(filepath.Join(root, filepath.Dir(path))); err != nil {
		return "", "", false, err
	}
	logical = real
	if root != "/" {
		if real != root && !strings.HasPrefix(real, root+"/") {
			return "", "", false, fmt.Errorf("%w: a symbolic link leads out to %s", ErrRefused, real)
		}
		logical = "/" + strings.TrimPrefix(strings.TrimPrefix(real, root), "/")
	}
	if f.Refuse != nil {
		if why := f.Refuse(filepath.Join(logical, filepath.Base(path))); why != "" {
			return "", "", false, fmt.Errorf("%w: %s", ErrRefused, why)
		}
	}
	return real, logical, missing, nil
}

// resolve follows the links of a directory that may not be there yet.
func resolve(path string) (real string, missing bool, err error) {
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		real, err = filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), rest != "", nil
		}
		// A link that leads nowhere is not a directory that is to be made.
		if _, lerr := os.Lstat(at); lerr == nil || !errors.Is(err, fs.ErrNotExist) || at == "/" {
			return "", false, err
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func openDir(path string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a filter that does not know it
		return unix.Open(path, flags, 0)
	}
	return fd, err
}
