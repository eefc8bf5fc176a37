package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// Host is what the updater asks of the node.
type Host interface {
	// Kubelet and Kubectl are the paths of the programs; kubectl is "" if the node has none.
	Kubelet(ctx context.Context) (string, error)
	Kubectl() string
	// RestartKubelet stops the kubelet if it runs, starts it, and waits. It is one order:
	// systemd carries it out even if the caller dies, so that no crash of the agent
	// leaves a node without a kubelet.
	RestartKubelet(ctx context.Context) error
	// Running describes the kubelet's process: the version that it reports, and whether
	// its file was replaced since it started. version is "" if it does not run.
	Running(ctx context.Context) (version string, replaced bool, err error)
	KubeletHealthy(ctx context.Context) error
	// Log is the end of the kubelet's log.
	Log(ctx context.Context) string
}

// limit is how long a kubelet may take to become healthy before the step fails.
const limit = 5 * time.Minute

// startRetry is how long systemd may take to restart a kubelet that does not run, before the
// updater starts it.
const startRetry = 10 * time.Second

// Updater is the step "kubelet".
type Updater struct {
	host    Host
	now     func() time.Time
	started time.Time // when this updater started the kubelet last
	// payload is the name of the program in bundles, what is it for people.
	payload, what string
	digests       nodefiles.Digests
}

// New makes the updater.
func New(h Host) *Updater {
	return &Updater{host: h, now: time.Now, payload: "kubelet", what: "the kubelet"}
}

// Name is kubelet.
func (u *Updater) Name() string { return "kubelet" }

// Observe reports whether the new file is in place, runs, and is healthy.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	placed, err := u.placed(t, path)
	if err != nil {
		return updaters.Observation{}, err
	}
	if !placed {
		return updaters.Observation{Detail: fmt.Sprintf("%s is not the %s of the bundle", path, u.payload)}, nil
	}
	version, replaced, err := u.host.Running(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	switch {
	case version == "":
		return updaters.Observation{Detail: u.what + " does not run"}, nil
	case replaced || version != t.Step.To:
		return updaters.Observation{Detail: fmt.Sprintf("the running %s is %s, %s is wanted", u.payload, version, t.Step.To)}, nil
	}
	return healthObservation(u.host.KubeletHealthy(ctx)), nil
}

func healthObservation(sick error) updaters.Observation {
	if sick != nil {
		return updaters.Observation{Detail: sick.Error()}
	}
	return updaters.Observation{Done: true}
}

// placed reports whether the program is the one of the bundle.
func (u *Updater) placed(t updaters.Task, path string) (bool, error) {
	p, err := t.Payload(u.payload)
	if err != nil {
		return false, err
	}
	have, err := u.digests.DigestOf(path)
	return err == nil && have == p.Digest, nil
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
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%s is not healthy within %s: %s\n%s", u.what, limit, o.Detail, u.host.Log(ctx)), nil
	}
	if err := u.replacePrograms(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	version, replaced, err := u.host.Running(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := u.restartIfNeeded(ctx, version, replaced); err != nil {
		return updaters.Result{}, err
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "%s is being replaced: %s", u.what, o.Detail)
	r.After = 250 * time.Millisecond
	return r, nil
}

// LogTail is the end of the kubelet's log: it shows a flag that the new version no longer
// knows.
func (u *Updater) LogTail(ctx context.Context) string { return u.host.Log(ctx) }

// restartIfNeeded restarts a kubelet that does not run the file in place, and starts one
// that systemd has not restarted in its time.
func (u *Updater) restartIfNeeded(ctx context.Context, version string, replaced bool) error {
	old := version != "" && replaced
	if !old && (version != "" || u.now().Sub(u.started) <= startRetry) {
		return nil
	}
	u.started = u.now()
	err := u.host.RestartKubelet(ctx)
	failpoint.Here(failpoint.KubeletRestarted)
	return err
}

// replacePrograms replaces the files. The old kubelet continues to run: no failure here (a
// full disk, a corrupt payload) takes it from the node.
func (u *Updater) replacePrograms(ctx context.Context, t updaters.Task) error {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return err
	}
	placed, err := u.placed(t, path)
	if err != nil {
		return err
	}
	if !placed {
		if _, err := updaters.Swap(t, u.payload, path); err != nil {
			return err
		}
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

// Undo restores the old files, and ends when the kubelet runs the old file and is healthy.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if _, err := updaters.Restore(t, u.payload, path); err != nil {
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
	sick := errors.New("the running " + u.payload + " is not the restored one")
	switch {
	case version == "":
		sick = errors.New(u.what + " does not run")
	case !replaced:
		sick = u.host.KubeletHealthy(ctx)
	}
	if sick == nil {
		return updaters.Result{Done: true}, nil
	}
	if u.now().Sub(t.Started) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the restored %s is not healthy within %s: %v\n%s", u.payload, limit, sick, u.host.Log(ctx)), nil
	}
	if err := u.restartIfNeeded(ctx, version, replaced); err != nil {
		return updaters.Result{}, err
	}
	return updaters.InProgress(v1alpha1.ReasonUndoing, "restoring the old %s: %v", u.payload, sick), nil
}
