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

// startOf notes a start of kubeadm, and removes the end of the one before.
func startOf(f files, n int) error {
	if err := os.Remove(f.result); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("result of kubeadm: %w", err)
	}
	return fsutil.WriteFile(f.count, []byte(fmt.Sprint(n)), 0o600)
}

// copies of certificates and keys are in the rollback directory, readable by root
// only, and only until the step is done.
func copyName(t updaters.Task, name string, i int) string {
	return filepath.Join(t.Step.ID, fmt.Sprintf("%s-%d", name, i))
}

// save keeps a copy of a certificate that can be used, or puts the copy back
// where it cannot.
func (u *Updater) save(t updaters.Task, name string) error {
	_, _, err := u.host.Certificate(name)
	broken := errors.Is(err, kube.ErrBrokenCertificate)
	if err != nil && !broken {
		return err
	}
	for i, path := range u.host.CertificateFiles(name) {
		if broken {
			_, err = updaters.Restore(t, copyName(t, name, i), path)
		} else {
			err = updaters.Keep(t, copyName(t, name, i), path)
		}
		if err != nil {
			return fmt.Errorf("copy of certificate %s: %w", name, err)
		}
	}
	return nil
}

// forget removes the copies: an old key is of no use and should not lie about.
func (u *Updater) forget(t updaters.Task) error {
	if err := os.RemoveAll(filepath.Join(t.Rollback, t.Step.ID)); err != nil {
		return fmt.Errorf("copies of certificates: %w", err)
	}
	return nil
}

// Undo cannot take a renewal back: the plan says so.
func (u *Updater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, fmt.Errorf("the old certificates and keys are not kept, and the new ones serve as well: %w", updaters.ErrNotReversible)
}

// Fields are, for every certificate that a configuration asks about, the words of
// the demand if it is so, else its days. One that the node does not have is passed
// over: a worker has none of kubeadm's.
func (u *Updater) Fields(_ context.Context, c *model.NodeConfig) map[string]string {
	out := map[string]string{}
	for _, w := range c.Certificates {
		v := w.Wants()
		for _, name := range expand(w.Name) {
			have, found, err := u.host.Certificate(name)
			switch {
			case errors.Is(err, kube.ErrBrokenCertificate):
				v = "0 broken: " + name // a digit: it comes before the words of any demand
			case err != nil:
				return out
			case found && !fits(w, have, u.now()) && v == w.Wants():
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
