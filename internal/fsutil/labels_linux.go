package fsutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// labelAttribute is the extended attribute with a file's SELinux label.
const labelAttribute = "security.selinux"

// HostContexts reads the policy of a host, by the root of its files. c is nil if its kernel does
// not use SELinux; enforcing says whether it refuses what the policy forbids.
func HostContexts(root string) (c *Contexts, enforcing bool, err error) {
	b, err := os.ReadFile(filepath.Join("/", root, "/sys/fs/selinux/enforce"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("SELinux of this host: %w", err)
	}
	enforcing = strings.TrimSpace(string(b)) == "1"
	c, err = cachedContexts(filepath.Join("/", root))
	if err != nil {
		return nil, enforcing, fmt.Errorf("SELinux policy of this host: %w", err)
	}
	return c, enforcing, nil
}

// policies that were read, by their directory. A package of the host may replace one.
var policies sync.Map

type readPolicy struct {
	at time.Time
	c  *Contexts
}

func cachedContexts(root string) (*Contexts, error) {
	dir := filepath.Join(root, "etc/selinux", PolicyName(os.ReadFile(filepath.Join(root, "etc/selinux/config"))), "contexts/files")
	st, err := os.Stat(filepath.Join(dir, "file_contexts"))
	if err != nil {
		return nil, err
	}
	if p, ok := policies.Load(dir); ok && p.(readPolicy).at.Equal(st.ModTime()) {
		return p.(readPolicy).c, nil
	}
	c, err := ReadContexts(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) })
	if err == nil {
		policies.Store(dir, readPolicy{st.ModTime(), c})
	}
	return c, err
}

// labelled is the root of the host whose files get labels by Replace and WriteFile, nil without.
var labelled atomic.Pointer[string]

// LabelFiles makes Replace and WriteFile give files the label that the policy of this host has for
// them. A program that writes files of the host calls it once.
func LabelFiles(root string) { labelled.Store(&root) }

// labelOpen labels a file that is to get a path.
func labelOpen(f *os.File, to string) error {
	root := labelled.Load()
	if root == nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(to))
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(filepath.Join(dir, filepath.Base(to)), strings.TrimSuffix(*root, "/"))
	return LabelAt(*root, unix.AT_FDCWD, f.Name(), name, 0)
}

// LabelAt gives a file, by its name in an open directory, the label that the policy of a host has
// for a path and kind. It does nothing where the kernel does not use SELinux, or the file system has
// no labels. An enforcing host that refuses is an error: its programs could not use the file.
func LabelAt(root string, dirfd int, name, as string, kind fs.FileMode) error {
	c, enforcing, err := HostContexts(root)
	label := ""
	if err == nil && c != nil {
		label, err = c.Label(as, kind)
	}
	if err == nil && label != "" {
		err = SetLabel(dirfd, name, label)
	}
	if err != nil && enforcing {
		return fmt.Errorf("SELinux label %q of %s: %w", label, as, err)
	}
	return nil
}

// LabelAs gives a file the label of another path of a host.
func LabelAs(root, file, as string) error { return LabelAt(root, unix.AT_FDCWD, file, as, 0) }

// SetLabel sets a label by the name of a file in an open directory. It follows no link.
func SetLabel(dirfd int, name, label string) error {
	if dirfd != unix.AT_FDCWD {
		name = fmt.Sprintf("/proc/self/fd/%d/%s", dirfd, name)
	}
	have := make([]byte, 256)
	if n, err := unix.Lgetxattr(name, labelAttribute, have); err == nil && strings.TrimRight(string(have[:n]), "\x00") == label {
		return nil
	}
	err := unix.Lsetxattr(name, labelAttribute, append([]byte(label), 0), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
