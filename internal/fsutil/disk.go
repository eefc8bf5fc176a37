package fsutil

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Replace writes a file that must have the digest (sha256:<hex>) from r, renames it
// to path, and syncs the directory. The temporary file next to it always has the same
// name, so the next try overwrites one that a kill left behind. Callers replace one path
// one at a time.
func Replace(path string, r io.Reader, digest string, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), ".refit-"+filepath.Base(path))
	if err := writeTemp(temp, path, r, digest, mode); err != nil {
		_ = os.Remove(temp) // the error above says more
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return SyncDir(filepath.Dir(path))
}

func writeTemp(temp, path string, r io.Reader, digest string, mode fs.FileMode) error {
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|noFollow, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("what was read has digest %s, %s was expected; the old file stays", got, digest)
	}
	if err := f.Chmod(mode); err != nil { // with any umask
		return err
	}
	if err := labelOpen(f, path); err != nil {
		return err
	}
	return f.Sync()
}

// Digest is sha256:<hex> of a file.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	d, err := DigestOf(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// DigestOf is sha256:<hex> of what is left to read.
func DigestOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// WriteFile replaces a small file in one stroke and syncs its directory.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := replaceSmall(path, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDir(filepath.Dir(path))
}

// Lock takes a lock that ends with the process. unlock lets go of it.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := LockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() {
		// Not by closing alone: a process that is being started shares the open file for a moment.
		unlockFile(f)
		_ = f.Close()
	}, nil
}

// IsFull reports whether an error says that a file system, or a quota of it, has no space or
// no inodes left. Container runtimes report it in words only.
func IsFull(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	return strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), syscall.EDQUOT.Error())
}
