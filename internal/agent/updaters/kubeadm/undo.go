package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Undo is not possible on a control plane. On a worker kubeadm changed only the kubelet's
// configuration: Undo restores the old one, and the kubelet loads it.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	pods, err := u.host.StaticPods()
	if err != nil {
		return updaters.Result{}, err
	}
	if kube.Find(pods, kube.APIServer) != nil {
		return updaters.Result{}, fmt.Errorf("kubeadm cannot downgrade a control plane: %w", updaters.ErrNotReversible)
	}
	runs, err := u.host.DetachedRuns(ctx, unitName(t))
	if err != nil {
		return updaters.Result{}, err
	}
	if runs { // never interrupt it: half of its work is worse than all of it
		return updaters.InProgress(v1alpha1.ReasonUndoing, "waiting for kubeadm, which still runs: %s", lastLine(attemptFiles(t).log)), nil
	}
	if err := os.Remove(attemptFiles(t).marker); err != nil && !errors.Is(err, os.ErrNotExist) {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.KubeadmUnmarked)
	if err := u.restoreFiles(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	return u.restartKubelet(ctx, t)
}

// restartKubelet ends when the kubelet has loaded the restored configuration.
func (u *Updater) restartKubelet(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	s, err := servicerestart.AdvanceRestart(ctx, u.host.KubeletService(), t, time.Now())
	if err != nil {
		return updaters.Result{}, err
	}
	if !s.Done {
		return updaters.InProgress(v1alpha1.ReasonUndoing, "restoring the kubelet's old configuration: %s", s.Message), nil
	}
	if err := servicerestart.ClearRestart(t); err != nil {
		return updaters.Result{}, err
	}
	// If the step runs again it starts anew: these files are of the undone attempt.
	if err := os.RemoveAll(attemptFiles(t).dir); err != nil {
		return updaters.Result{}, fmt.Errorf("kubeadm's files: %w", err)
	}
	return updaters.Result{Done: true}, nil
}

// restoreFiles restores kubeadm itself and the files it changed.
func (u *Updater) restoreFiles(ctx context.Context, t updaters.Task) error {
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return err
	}
	if _, err := updaters.Restore(t, "kubeadm", path); err != nil {
		return err
	}
	if u.configDiffers(t) { // recorded first: a kill after the restore must not lose the restart
		if err := servicerestart.RequireRestart(ctx, u.host.KubeletService(), t); err != nil {
			return err
		}
	}
	for _, c := range u.host.ConfigFiles() {
		if _, err := updaters.Restore(t, configBackup(c), c); err != nil {
			return err
		}
	}
	return nil
}

// configDiffers reports whether the configuration differs from its backup.
func (u *Updater) configDiffers(t updaters.Task) bool {
	for _, c := range u.host.ConfigFiles() {
		kept, err := fsutil.Digest(filepath.Join(t.Rollback, configBackup(c)))
		if err != nil {
			continue // no backup: it was not changed
		}
		if have, err := fsutil.Digest(c); err != nil || have != kept {
			return true
		}
	}
	return false
}
