package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// decideRestore records that the new control plane did not serve; from then on the old one
// is restored, even if the new one serves later.
func (u *ControlPlaneUpdater) decideRestore(t updaters.Task, reason string) (updaters.Result, bool, error) {
	if err := fsutil.WriteJSON(u.path(t, restoreRecord), record{Reason: reason}); err != nil {
		return updaters.Result{}, false, err
	}
	failpoint.Here(failpoint.ControlPlaneGivenUp)
	return updaters.InProgress(v1alpha1.ReasonUndoing, "the old control plane is being restored: %s", reason), false, nil
}

// restoreOld puts the old files back in one exchange and ends in a failure that says
// whether the old control plane serves again.
func (u *ControlPlaneUpdater) restoreOld(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	x, err := u.restoreExchange(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	rec, r, ok, err := u.exchange(ctx, t, restoreRecord, x)
	if err != nil || !ok && !r.Failed {
		return r, err
	}
	if r.Failed {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the control plane of %s was given up (%s), and the old one cannot be restored: %s", t.Step.To, rec.Reason, r.Message), nil
	}
	return u.awaitOld(ctx, t, rec)
}

// restoreExchange is the exchange that restores the old files. It is decided once, and on
// disk before it starts.
func (u *ControlPlaneUpdater) restoreExchange(ctx context.Context, t updaters.Task) (Exchange, error) {
	var rec record
	if _, err := fsutil.ReadJSON(u.path(t, restoreRecord), &rec); err != nil || len(rec.Exchange.Files) > 0 {
		return rec.Exchange, err
	}
	x, err := u.oldFiles(ctx, t)
	if err != nil {
		return x, err
	}
	rec.Exchange = x
	return x, fsutil.WriteJSON(u.path(t, restoreRecord), rec)
}

// awaitOld ends in a failure when the old control plane serves, or does not in time.
func (u *ControlPlaneUpdater) awaitOld(ctx context.Context, t updaters.Task, rec record) (updaters.Result, error) {
	problems := u.oldProblems(ctx)
	if len(problems) == 0 {
		if err := fsutil.WriteFile(u.path(t, restoredMark), nil, 0o600); err != nil {
			return updaters.Result{}, err
		}
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the old control plane was restored and serves: that of %s was given up, %s", t.Step.To, rec.Reason), nil
	}
	waited, err := u.since(rec.At)
	if err != nil {
		return updaters.Result{}, err
	}
	if waited > restoreLimit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the control plane of %s was given up (%s); the old one is in place and does not serve within %s: %s%s",
			t.Step.To, rec.Reason, restoreLimit, strings.Join(problems, "; "), u.logs(rec.Exchange)), nil
	}
	r := updaters.InProgress(v1alpha1.ReasonUndoing, "the old control plane starts: %s", strings.Join(problems, "; "))
	r.After = watchPause
	return r, nil
}

func (u *ControlPlaneUpdater) oldProblems(ctx context.Context) []string {
	problems, _, err := StaticPods(ctx, u.host)
	if err != nil {
		problems = append(problems, err.Error())
	}
	if err := u.host.APIReady(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return problems
}

// oldFiles is the exchange that restores what the attempt replaced. A newer etcd that
// answers stays: an older one may not read its data, and the old API server works with
// it, as after a failed `kubeadm upgrade`.
func (u *ControlPlaneUpdater) oldFiles(ctx context.Context, t updaters.Task) (Exchange, error) {
	var plan []Exchange
	if _, err := fsutil.ReadJSON(u.path(t, planFile), &plan); err != nil {
		return Exchange{}, err
	}
	var out Exchange
	stays := u.etcdAnswers(ctx)
	for _, x := range plan {
		if x.Unit != "" {
			out.Unit = x.Unit
		}
		for _, f := range x.Files {
			kept := filepath.Join(t.Rollback, filepath.Base(f.To))
			if filepath.Dir(f.To) == u.host.Manifests() {
				if stays && f.To == manifestPath(u.host.Manifests(), etcdPod) {
					continue
				}
				kept = filepath.Join(t.Rollback, "manifests", filepath.Base(f.To))
			}
			digest, err := fsutil.Digest(kept)
			if errors.Is(err, os.ErrNotExist) {
				continue // there was none
			}
			if err != nil {
				return Exchange{}, err
			}
			out.Files = append(out.Files, ExchangedFile{From: kept, To: f.To, Digest: digest, Mode: f.Mode})
		}
	}
	if out.Unit != "" {
		out.Pods = u.endedPods(func(pod string) bool { return out.replaces(u.host.Manifests(), pod) }, graceAlone)
	}
	return out, nil
}

// etcdAnswers reports whether the member of this node runs what its manifest says.
func (u *ControlPlaneUpdater) etcdAnswers(ctx context.Context) bool {
	e, err := u.host.Etcd(ctx)
	if err != nil || e == nil {
		return false
	}
	if _, err := e.Size(ctx); err != nil {
		return false
	}
	pods, err := u.host.StaticPods()
	if err != nil {
		return false
	}
	containers, err := u.host.Containers(ctx)
	p := kube.Find(pods, etcdPod)
	if err != nil || p == nil {
		return false
	}
	want, err := u.host.ImageID(ctx, p.Containers[0].Image)
	if err != nil {
		return false
	}
	_, problem := runsManifest(containers, *p, p.Containers[0], u.host.Node(), want)
	return problem == ""
}

// Undo restores the programs and files of a step that has replaced nothing yet, or whose
// old control plane was restored. What has served is not undone: the plan said so.
func (u *ControlPlaneUpdater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	restored, err := u.exists(t, restoredMark)
	if err != nil {
		return updaters.Result{}, err
	}
	started, err := u.exists(t, fmt.Sprintf(exchangeRecord, 0))
	if err != nil {
		return updaters.Result{}, err
	}
	if done, err := replacedInRun(t); err != nil || done || started && !restored {
		return updaters.Result{}, errors.Join(err, fmt.Errorf("a control plane that was replaced is not rolled back: %w", updaters.ErrNotReversible))
	}
	if err := u.restorePrepared(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	return updaters.Result{Done: true}, os.RemoveAll(u.dir(t))
}

// restorePrepared restores what prepare changed.
func (u *ControlPlaneUpdater) restorePrepared(ctx context.Context, t updaters.Task) error {
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return err
	}
	if _, err := updaters.Restore(t, "kubeadm", path); err != nil {
		return err
	}
	for _, c := range u.host.ConfigFiles() { // the running kubelet has read the old ones, or reads them when it starts
		if _, err := updaters.Restore(t, configBackup(c), c); err != nil {
			return err
		}
	}
	var plan []Exchange
	if _, err := fsutil.ReadJSON(u.path(t, planFile), &plan); err != nil {
		return err
	}
	for _, x := range plan {
		if err := x.removePrepared(); err != nil {
			return err
		}
	}
	return nil
}
