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

// Undo takes nothing back on a control plane. On a worker kubeadm changed the
// kubelet's configuration only: the old one is put back, and the kubelet reads it.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	pods, err := u.host.StaticPods()
	if err != nil {
		return updaters.Result{}, err
	}
	if kube.Find(pods, kube.APIServer) != nil {
		return updaters.Result{}, fmt.Errorf("kubeadm does not take a control plane back: %w", updaters.ErrNotReversible)
	}
	runs, err := u.host.DetachedRuns(ctx, unit(t))
	if err != nil {
		return updaters.Result{}, err
	}
	if runs { // it is never cut off: what it leaves half done is worse than what it does
		return updaters.Going(v1alpha1.ReasonUndoing, "kubeadm still runs and is waited for: %s", lastWords(filesOf(t).log)), nil
	}
	if err := os.Remove(filesOf(t).marker); err != nil && !errors.Is(err, os.ErrNotExist) {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.KubeadmUnmarked)
	if err := u.restore(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	return u.reread(ctx, t)
}

// reread ends when the kubelet has read the configuration that was put back.
func (u *Updater) reread(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	s, err := servicerestart.AdvanceRestart(ctx, u.host.KubeletService(), t, time.Now())
	if err != nil {
		return updaters.Result{}, err
	}
	if !s.Over {
		return updaters.Going(v1alpha1.ReasonUndoing, "the kubelet's old configuration is put back: %s", s.Says), nil
	}
	if err := servicerestart.ClearRestart(t); err != nil {
		return updaters.Result{}, err
	}
	// Done again it begins anew: this attempt's end and count are those of before.
	if err := os.RemoveAll(filesOf(t).dir); err != nil {
		return updaters.Result{}, fmt.Errorf("kubeadm's files: %w", err)
	}
	return updaters.Result{Done: true}, nil
}

// restore puts kubeadm itself and what it changed back.
func (u *Updater) restore(ctx context.Context, t updaters.Task) error {
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return err
	}
	if _, err := updaters.Restore(t, "kubeadm", path); err != nil {
		return err
	}
	if u.differs(t) { // noted first: a kill after the files are back forgets no restart
		if err := servicerestart.RequireRestart(ctx, u.host.KubeletService(), t); err != nil {
			return err
		}
	}
	for _, c := range u.host.ConfigFiles() {
		if _, err := updaters.Restore(t, configName(c), c); err != nil {
			return err
		}
	}
	return nil
}

// differs reports whether the configuration is another one than was kept.
func (u *Updater) differs(t updaters.Task) bool {
	for _, c := range u.host.ConfigFiles() {
		kept, err := fsutil.Digest(filepath.Join(t.Rollback, configName(c)))
		if err != nil {
			continue // none was kept: it was not changed
		}
		if have, err := fsutil.Digest(c); err != nil || have != kept {
			return true
		}
	}
	return false
}
