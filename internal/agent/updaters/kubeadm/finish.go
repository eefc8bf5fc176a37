package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/fsutil"
)

// skipPhases are the phases of `kubeadm upgrade` that the step "control-plane" of the same
// run has done.
func (u *Updater) skipPhases(t updaters.Task) ([]string, error) {
	replaced, err := replacedInRun(t)
	if !replaced || err != nil {
		return nil, err
	}
	return []string{"preflight", "control-plane"}, nil
}

func configRecord(t updaters.Task) string {
	return filepath.Join(attemptFiles(t).dir, "config-before.json")
}

// recordConfig records what the kubelet's configuration is before kubeadm writes it, where
// the new kubelet runs already: no later step restarts it.
func (u *Updater) recordConfig(t updaters.Task) error {
	replaced, err := replacedInRun(t)
	if !replaced || err != nil {
		return err
	}
	if _, err := os.Stat(configRecord(t)); err == nil {
		return nil
	}
	digests, err := u.configDigests()
	if err != nil {
		return err
	}
	return fsutil.WriteJSON(configRecord(t), digests)
}

func (u *Updater) configDigests() (map[string]string, error) {
	out := map[string]string{}
	for _, c := range u.host.ConfigFiles() {
		d, err := fsutil.Digest(c)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the kubelet's configuration: %w", err)
		}
		out[c] = d
	}
	return out, nil
}

// restartForConfig restarts the kubelet if kubeadm has changed its configuration since
// recordConfig. over is true when the kubelet runs with the new one.
func (u *Updater) restartForConfig(ctx context.Context, t updaters.Task) (r updaters.Result, over bool, err error) {
	var before map[string]string
	known, err := fsutil.ReadJSON(configRecord(t), &before)
	if !known || err != nil {
		return r, err == nil, err
	}
	required := filepath.Join(attemptFiles(t).dir, "restart-required")
	if _, err := os.Stat(required); errors.Is(err, os.ErrNotExist) {
		now, err := u.configDigests()
		if err != nil {
			return r, false, err
		}
		for path, digest := range now {
			if digest == before[path] {
				continue
			}
			if err := servicerestart.RequireRestart(ctx, u.host.KubeletService(), t); err != nil {
				return r, false, err
			}
			break
		}
		if err := fsutil.WriteFile(required, nil, 0o600); err != nil {
			return r, false, err
		}
	}
	s, err := servicerestart.AdvanceRestart(ctx, u.host.KubeletService(), t, time.Now())
	if err != nil || s.Done {
		return r, s.Done, err
	}
	return updaters.InProgress(v1alpha1.ReasonUpdating, "the kubelet restarts with its new configuration: %s", s.Message), false, nil
}
