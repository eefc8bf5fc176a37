package staticpod

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

func parseManifest(data []byte) (*manifest, error) {
	m := &manifest{}
	if err := sigsyaml.Unmarshal(data, m); err != nil || m.Kind != "Pod" {
		return nil, editError("it is no manifest of a pod")
	}
	return m, nil
}

// backup is the manifest before the step.
type backup struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// Ours is the digest of what the step writes: others wrote any other content.
	Ours string `json:"ours"`
	// Images of the manifest, by container.
	Images map[string]string `json:"images"`
}

func backupPath(t updaters.Task) string { return filepath.Join(t.Rollback, t.Step.ID+".manifest.json") }

// saveBackup saves the manifest, once. The backup of an earlier try is the older one and
// stays, unless others have replaced the manifest since.
func saveBackup(t updaters.Task, k *backup) error {
	old, err := loadBackup(t)
	if err != nil || old != nil && old.Path == k.Path && old.Ours == k.Ours && model.DigestOf(old.Data) == model.DigestOf(k.Data) {
		return err
	}
	return fsutil.WriteJSON(backupPath(t), k)
}

// loadBackup is nil if there is no backup, because nothing was written.
func loadBackup(t updaters.Task) (*backup, error) {
	k := &backup{}
	ok, err := fsutil.ReadJSON(backupPath(t), k)
	if err != nil || !ok {
		return nil, err
	}
	return k, nil
}

// giveUpRecord is on disk while the old manifest is restored because the pod did not become
// ready.
type giveUpRecord struct {
	Why string `json:"why"`
}

func giveUpPath(t updaters.Task) string {
	return filepath.Join(t.Dir, fmt.Sprintf("%s.%d.gaveup.json", t.Step.ID, t.Attempt))
}

// giveUpReason is why this attempt's image was given up, "" if it was not.
func giveUpReason(t updaters.Task) (string, error) {
	var g giveUpRecord
	_, err := fsutil.ReadJSON(giveUpPath(t), &g)
	return g.Why, err
}

func recordGiveUp(t updaters.Task, why string) error {
	err := fsutil.WriteJSON(giveUpPath(t), giveUpRecord{why})
	failpoint.Here(failpoint.StaticPodGivenUp)
	return err
}

// restoreAfterFailure restores the old manifest. It fails when the old pod runs again, or
// does not come back either.
func (u *Updater) restoreAfterFailure(ctx context.Context, t updaters.Task, why string) (updaters.Result, error) {
	says, theirs, err := u.restoreManifest(ctx, t)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case theirs:
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; its manifest is not restored, because others have changed it since", why), nil
	case says == "":
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; its old manifest is restored, and runs", why), nil
	case u.now().Sub(t.Started) > 2*u.readyLimit(t):
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; its old manifest is restored, but does not run yet: %s", why, says), nil
	}
	r := updaters.InProgress(v1alpha1.ReasonUndoing, "its old manifest is restored: %s", says)
	r.After = observeInterval
	return r, nil
}

// Undo restores the old manifest.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	says, theirs, err := u.restoreManifest(ctx, t)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case theirs:
		return updaters.Result{Done: true, Message: "the manifest is not restored, because others have changed it since"}, nil
	case says == "":
		return updaters.Result{Done: true}, nil
	}
	r := updaters.InProgress(v1alpha1.ReasonUndoing, "its old manifest is restored: %s", says)
	r.After = observeInterval
	return r, nil
}

// restoreManifest writes the old manifest, unless it is in place, and says what is missing
// until its pod runs, "" if nothing. theirs is true if the file is neither the old one nor
// refit's, so that it is not touched.
func (u *Updater) restoreManifest(ctx context.Context, t updaters.Task) (says string, theirs bool, err error) {
	k, err := loadBackup(t)
	if err != nil || k == nil {
		return "", false, err
	}
	s, err := u.fs().Inspect(k.Path)
	if err != nil {
		return "", false, err
	}
	switch s.Digest {
	case model.DigestOf(k.Data):
	case k.Ours:
		if err := u.fs().Write(k.Path, k.Data, k.Mode, int(k.UID), int(k.GID)); err != nil {
			return "", false, err
		}
		failpoint.Here(failpoint.StaticPodBack)
	default:
		return "", true, nil
	}
	p := model.StaticPodImages{}
	if err := p.Read(t.Step.Params); err != nil {
		return "", false, err
	}
	return u.findPodProblem(ctx, &pod{namespace: p.Namespace, name: p.Pod, to: p.To}, k.Images), false, nil
}

// readyLimit is how long the pod of a step may take to become ready.
func (u *Updater) readyLimit(t updaters.Task) time.Duration {
	p := model.StaticPodImages{}
	if err := p.Read(t.Step.Params); err != nil || p.ReadySeconds <= 0 {
		return defaultReadyLimit
	}
	return time.Duration(p.ReadySeconds) * time.Second
}
