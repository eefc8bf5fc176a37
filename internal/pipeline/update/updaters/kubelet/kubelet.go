package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/host/disk"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
)

// Host is what the updater asks of the node.
type Host interface {
	// Paths of the programs; kubectl is "" if the node has none.
	Kubelet(ctx context.Context) (string, error)
	Kubectl() string
	// Start and Stop the kubelet's unit and wait.
	StartKubelet(ctx context.Context) error
	StopKubelet(ctx context.Context) error
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
	have, err := disk.Digest(path)
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
	switch {
	case version != "" && replaced: // the old process, by whatever means
		err = u.restart(ctx)
	case version == "" && u.now().Sub(u.started) > startAgain:
		err = u.start(ctx)
	}
	if err != nil {
		return updaters.Result{}, err
	}
	r := updaters.Going(v1alpha1.ReasonUpdating, "the kubelet is being replaced: %s", o.Detail)
	r.After = 250 * time.Millisecond
	return r, nil
}

// restart ends the old process. Once it is stopped a kubelet is started, also
// when the agent is told to end meanwhile: nobody else would.
func (u *Updater) restart(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := u.host.StopKubelet(ctx); err != nil {
		return errors.Join(err, u.start(ctx))
	}
	failpoint.Here(failpoint.KubeletStopped)
	return u.start(ctx)
}

func (u *Updater) start(ctx context.Context) error {
	u.started = u.now()
	return u.host.StartKubelet(ctx)
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

// Undo puts the old files back.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if _, err := updaters.Restore(t, "kubelet", path); err != nil {
		return updaters.Result{}, err
	}
	if kubectl := u.host.Kubectl(); kubectl != "" {
		if _, err := updaters.Restore(t, "kubectl", kubectl); err != nil {
			return updaters.Result{}, err
		}
	}
	if err := u.restart(ctx); err != nil {
		return updaters.Result{}, err
	}
	return updaters.Result{Done: true}, nil
}
