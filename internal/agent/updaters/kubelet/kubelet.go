package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Host is what the updater asks of the node.
type Host interface {
	// Paths of the programs; kubectl is "" if the node has none.
	Kubelet(ctx context.Context) (string, error)
	Kubectl() string
	// RestartKubelet ends the kubelet if it runs, starts it, and waits. It is one
	// order: once it is given it is carried out to its end, whatever becomes of the
	// caller, so that no crash of ours leaves a node without a kubelet.
	RestartKubelet(ctx context.Context) error
	// Running describes the kubelet's process: the version it says itself, and
	// whether its file was replaced since it was started. version is "" if it
	// does not run.
	Running(ctx context.Context) (version string, replaced bool, err error)
	KubeletHealthy(ctx context.Context) error
	// Log is the end of the kubelet's log.
	Log(ctx context.Context) string
}

// limit is after how long a kubelet that does not become healthy has failed.
const limit = 5 * time.Minute

// startAgain is how long a kubelet that does not run is left to its unit, which
// starts it again by itself, before it is started once more.
const startAgain = 10 * time.Second

// Updater is the step "kubelet".
type Updater struct {
	host    Host
	now     func() time.Time
	started time.Time // when the kubelet was started by us last
}

// New makes the updater.
func New(h Host) *Updater { return &Updater{host: h, now: time.Now} }

// Name is kubelet.
func (u *Updater) Name() string { return "kubelet" }

// Observe sees whether the new file is there, runs, and is healthy.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	p, err := t.Payload("kubelet")
	if err != nil {
		return updaters.Observation{}, err
	}
	if !isFile(path, p.Digest) {
		return updaters.Observation{Detail: fmt.Sprintf("%s is not the kubelet of the bundle", path)}, nil
	}
	version, replaced, err := u.host.Running(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	switch {
	case version == "":
		return updaters.Observation{Detail: "the kubelet does not run"}, nil
	case replaced || version != t.Step.To:
		return updaters.Observation{Detail: fmt.Sprintf("the running kubelet is %s, %s is wanted", version, t.Step.To)}, nil
	}
	return healthy(u.host.KubeletHealthy(ctx)), nil
}

func healthy(sick error) updaters.Observation {
	if sick != nil {
		return updaters.Observation{Detail: sick.Error()}
	}
	return updaters.Observation{Done: true}
}

// isFile: a file that is not there is not it either.
func isFile(path, digest string) bool {
	have, err := fsutil.Digest(path)
	return err == nil && have == digest
}

// Update does the next thing that is missing.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	if o.Done {
		return updaters.Result{Done: true}, nil
	}
	if u.now().Sub(t.Started) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the kubelet is not healthy within %s: %s\n%s", limit, o.Detail, u.host.Log(ctx)), nil
	}
	if err := u.replace(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	version, replaced, err := u.host.Running(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := u.onlyOurs(ctx, version, replaced); err != nil {
		return updaters.Result{}, err
	}
	r := updaters.Going(v1alpha1.ReasonUpdating, "the kubelet is being replaced: %s", o.Detail)
	r.After = 250 * time.Millisecond
	return r, nil
}

// LastWords are the end of the kubelet's log: a flag that the new one no longer
// knows stands there.
func (u *Updater) LastWords(ctx context.Context) string { return u.host.Log(ctx) }

// onlyOurs restarts a kubelet that is not the file in its place, and starts one
// that does not run for longer than its unit takes to start it again.
func (u *Updater) onlyOurs(ctx context.Context, version string, replaced bool) error {
	old := version != "" && replaced
	if !old && (version != "" || u.now().Sub(u.started) <= startAgain) {
		return nil
	}
	u.started = u.now()
	err := u.host.RestartKubelet(ctx)
	failpoint.Here(failpoint.KubeletRestarted)
	return err
}

// replace puts the new files in their places. The old kubelet runs on: whatever
// goes wrong here (a full disk, a payload that rotted) leaves the node with it.
func (u *Updater) replace(ctx context.Context, t updaters.Task) error {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return err
	}
	swapped, err := updaters.Swap(t, "kubelet", path)
	if err != nil {
		return err
	}
	if swapped {
		failpoint.Here(failpoint.KubeletReplaced)
	}
	if kubectl := u.host.Kubectl(); kubectl != "" {
		_, err = updaters.Swap(t, "kubectl", kubectl)
	}
	if errors.Is(err, updaters.ErrNoPayload) {
		return nil // nothing depends on kubectl
	}
	return err
}

// Undo puts the old files back, and ends when the kubelet that runs is the old
// file and healthy.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if _, err := updaters.Restore(t, "kubelet", path); err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.KubeletRestored)
	if kubectl := u.host.Kubectl(); kubectl != "" {
		if _, err := updaters.Restore(t, "kubectl", kubectl); err != nil {
			return updaters.Result{}, err
		}
	}
	version, replaced, err := u.host.Running(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	sick := errors.New("the kubelet that runs is not the one that was put back")
	switch {
	case version == "":
		sick = errors.New("the kubelet does not run")
	case !replaced:
		sick = u.host.KubeletHealthy(ctx)
	}
	if sick == nil {
		return updaters.Result{Done: true}, nil
	}
	if u.now().Sub(t.Started) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the kubelet that was put back is not healthy within %s: %v\n%s", limit, sick, u.host.Log(ctx)), nil
	}
	if err := u.onlyOurs(ctx, version, replaced); err != nil {
		return updaters.Result{}, err
	}
	return updaters.Going(v1alpha1.ReasonUndoing, "the old kubelet is put back: %v", sick), nil
}
