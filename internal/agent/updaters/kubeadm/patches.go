package kubeadm

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// patchesDirectory is the directory with kubeadm's patches that a step names, "" for none.
// Patches change what runs as root: only root may be able to write them.
func patchesDirectory(s v1alpha1.UpdateStep) (string, error) {
	dir := s.Params[model.ParamPatches]
	if dir == "" {
		return "", nil
	}
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return "", fmt.Errorf("kubeadm patches: %q is not an absolute path in its shortest form", dir)
	}
	if err := onlyRootWrites(dir); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("kubeadm patches: %w", err)
	}
	for _, e := range entries {
		if err := onlyRootWrites(filepath.Join(dir, e.Name())); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// onlyRootWrites refuses links too: their targets may belong to others.
func onlyRootWrites(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("kubeadm patches: %w", err)
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case st.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("kubeadm patches: %s is a symbolic link", path)
	case ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("kubeadm patches: %s belongs to user %d, not to root", path, owner.Uid)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("kubeadm patches: %s can be written by others than root", path)
	}
	return nil
}
