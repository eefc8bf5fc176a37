package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// recordStart records a start of kubeadm, and removes the result of the one before.
func recordStart(f files, n int) error {
	if err := os.Remove(f.result); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("result of kubeadm: %w", err)
	}
	return fsutil.WriteFile(f.count, []byte(fmt.Sprint(n)), 0o600)
}

// copyName names a copy of a certificate or key. The copies are in the rollback directory,
// readable by root only, and only until the step is done.
func copyName(t updaters.Task, name string, i int) string {
	return filepath.Join(t.Step.ID, fmt.Sprintf("%s-%d", name, i))
}

// copyOrRestore copies a usable certificate, or restores the copy of a broken one.
func (u *Updater) copyOrRestore(t updaters.Task, name string) error {
	_, _, err := u.host.Certificate(name)
	broken := errors.Is(err, kube.ErrBrokenCertificate)
	if err != nil && !broken {
		return err
	}
	for i, path := range u.host.CertificateFiles(name) {
		if broken {
			_, err = updaters.Restore(t, copyName(t, name, i), path)
		} else {
			err = updaters.BackUp(t, copyName(t, name, i), path)
		}
		if err != nil {
			return fmt.Errorf("copy of certificate %s: %w", name, err)
		}
	}
	return nil
}

// removeCopies removes the copies: an old key is of no use and must not stay on disk.
func (u *Updater) removeCopies(t updaters.Task) error {
	if err := os.RemoveAll(filepath.Join(t.Rollback, t.Step.ID)); err != nil {
		return fmt.Errorf("copies of certificates: %w", err)
	}
	return nil
}

// Undo is not possible for a renewal: the plan says so.
func (u *Updater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, fmt.Errorf("the old certificates and keys are not kept, and the new ones serve as well: %w", updaters.ErrNotReversible)
}

// Fields has, for every certificate in a configuration, the words of the requirement if it
// holds, else the certificate's dates. A certificate that the node does not have is skipped:
// a worker has none of kubeadm's.
func (u *Updater) Fields(_ context.Context, c *model.NodeConfig) map[string]string {
	out := map[string]string{}
	for _, w := range c.Certificates {
		v := w.Requirement()
		for _, name := range expandName(w.Name) {
			have, found, err := u.host.Certificate(name)
			switch {
			case errors.Is(err, kube.ErrBrokenCertificate):
				v = "0 broken: " + name // a digit: it sorts before the words of any requirement
			case err != nil:
				return out
			case found && !isYoungEnough(w, have, u.now()) && v == w.Requirement():
				v = have.Made.UTC().Format(time.DateOnly) + " to " + have.NotAfter.UTC().Format(time.DateOnly)
				if w.Name != name {
					v += " (" + name + ")"
				}
			}
		}
		out[model.FieldCertificate+w.Name] = v
	}
	return out
}
