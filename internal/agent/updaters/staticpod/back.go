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

func read(data []byte) (*manifest, error) {
	m := &manifest{}
	if err := sigsyaml.Unmarshal(data, m); err != nil || m.Kind != "Pod" {
		return nil, refuse("it is no manifest of a pod")
	}
	return m, nil
}

// kept is the manifest as it was before the step.
type kept struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// Ours is the digest of what the step writes: another one is somebody else's.
	Ours string `json:"ours"`
	// Images that it had, by container.
	Images map[string]string `json:"images"`
}

func keptFile(t updaters.Task) string { return filepath.Join(t.Rollback, t.Step.ID+".manifest.json") }

// keep what was there, once: what an earlier try kept is the older one, unless the
// manifest is another one now, that refit did not write.
func keep(t updaters.Task, k *kept) error {
	old, err := before(t)
	if err != nil || old != nil && old.Path == k.Path && old.Ours == k.Ours && model.DigestOf(old.Data) == model.DigestOf(k.Data) {
		return err
	}
	return fsutil.WriteJSON(keptFile(t), k)
}

// before is what was kept, nil if nothing was, because nothing was written.
func before(t updaters.Task) (*kept, error) {
	k := &kept{}
	ok, err := fsutil.ReadJSON(keptFile(t), k)
	if err != nil || !ok {
		return nil, err
	}
	return k, nil
}

// given is on disk while the old manifest is put back because the pod did not
// become ready.
type given struct {
	Why string `json:"why"`
}

func gaveUpFile(t updaters.Task) string {
	return filepath.Join(t.Dir, fmt.Sprintf("%s.%d.gaveup.json", t.Step.ID, t.Attempt))
}

// gaveUp is why this attempt's image was given up, "" if it was not.
func gaveUp(t updaters.Task) (string, error) {
	var g given
	_, err := fsutil.ReadJSON(gaveUpFile(t), &g)
	return g.Why, err
}

func giveUp(t updaters.Task, why string) error {
	err := fsutil.WriteJSON(gaveUpFile(t), given{why})
	failpoint.Here(failpoint.StaticPodGivenUp)
	return err
}

// giveBack puts the old manifest back and fails when its pod runs again, or does
// not come back either.
func (u *Updater) giveBack(ctx context.Context, t updaters.Task, why string) (updaters.Result, error) {
	says, theirs, err := u.back(ctx, t)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case theirs:
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; somebody else has changed its manifest since, and it is left so", why), nil
	case says == "":
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; its old manifest is back, and runs", why), nil
	case u.now().Sub(t.Started) > 2*u.limit(t):
		return updaters.Fail(v1alpha1.ReasonStaticPodNotReady, "%s; its old manifest is back, and does not run yet: %s", why, says), nil
	}
	r := updaters.Going(v1alpha1.ReasonUndoing, "its old manifest is back: %s", says)
	r.After = look
	return r, nil
}

// Undo puts the old manifest back.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	says, theirs, err := u.back(ctx, t)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case theirs:
		return updaters.Result{Done: true, Message: "the manifest is left as it is: somebody else has changed it since"}, nil
	case says == "":
		return updaters.Result{Done: true}, nil
	}
	r := updaters.Going(v1alpha1.ReasonUndoing, "its old manifest is back: %s", says)
	r.After = look
	return r, nil
}

// back writes the old manifest, if it is not there, and says what is missing
// until its pod runs, "" if nothing. theirs is true if the file is neither what
// was there nor what refit wrote: then it is not touched.
func (u *Updater) back(ctx context.Context, t updaters.Task) (says string, theirs bool, err error) {
	k, err := before(t)
	if err != nil || k == nil {
		return "", false, err
	}
	s, err := u.fs().Look(k.Path)
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
	return u.runs(ctx, &pod{namespace: p.Namespace, name: p.Pod, to: p.To}, k.Images), false, nil
}

// limit of a step, for the pod to become ready.
func (u *Updater) limit(t updaters.Task) time.Duration {
	p := model.StaticPodImages{}
	if err := p.Read(t.Step.Params); err != nil || p.ReadySeconds <= 0 {
		return usual
	}
	return time.Duration(p.ReadySeconds) * time.Second
}
