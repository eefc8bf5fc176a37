package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Verbs of the step "control-plane".
const (
	// VerbTogether replaces all manifests and the kubelet in one stop and start of the
	// kubelet. The API server ends before etcd, so that no request of it is cut off.
	VerbTogether = "replace-together"
	// VerbPods replaces all manifests: for a node whose kubelet has the version already.
	VerbPods = "replace-pods"
)

// ControlPlaneHost is what the step "control-plane" asks of the node.
type ControlPlaneHost interface {
	Host
	SettleHost
	// Manifests is the directory of the static pods.
	Manifests() string
	// Kubelet and Kubectl are the paths of the programs; kubectl is "" if the node has none.
	Kubelet(ctx context.Context) (string, error)
	Kubectl() string
	// Running is the version of the kubelet's process, "" if it does not run, and
	// whether its file was replaced since it started.
	Running(ctx context.Context) (version string, replaced bool, err error)
	// ClusterConfiguration is kubeadm's, as the API server has it.
	ClusterConfiguration(ctx context.Context) (string, error)
	// APIVersion is the version that this node's own API server reports.
	APIVersion(ctx context.Context) (string, error)
	// ExchangeCommand is a command line that runs the Exchange in a file.
	ExchangeCommand(file string) []string
	// PodLog is the end of the log of a static pod's container.
	PodLog(pod string) string
}

const (
	// exchangeLimit is how long a replaced control plane may take until its API server
	// serves; then the old one is restored. kubeadm waits as long for each component.
	exchangeLimit = 5 * time.Minute
	// restoreLimit is how long the restored one may take before a person must act.
	restoreLimit = 10 * time.Minute
	// exchangeTries is how often an exchange that failed or was cut off is repeated.
	exchangeTries = 10
	// watchPause is the time between two checks while the API server is unavailable.
	watchPause = 250 * time.Millisecond
)

// ControlPlaneUpdater is the step "control-plane".
type ControlPlaneUpdater struct {
	host    ControlPlaneHost
	kubeadm *Updater
	now     func() time.Time
}

// NewControlPlane makes the updater.
func NewControlPlane(h ControlPlaneHost) *ControlPlaneUpdater {
	return &ControlPlaneUpdater{host: h, kubeadm: New(h), now: time.Now}
}

// Name is control-plane.
func (u *ControlPlaneUpdater) Name() string { return "control-plane" }

// replacedMarker holds the version to which this run has replaced the control plane: what
// the step "kubeadm" leaves out.
func replacedMarker(t updaters.Task) string { return filepath.Join(t.Dir, "control-plane.done") }

// replacedInRun reports whether this run has replaced the control plane already.
func replacedInRun(t updaters.Task) (bool, error) {
	b, err := os.ReadFile(replacedMarker(t))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("marker of the replaced control plane: %w", err)
	}
	return string(b) == t.Step.To, nil
}

func (u *ControlPlaneUpdater) dir(t updaters.Task) string {
	return filepath.Join(t.Dir, fmt.Sprintf("%s-%d", t.Step.ID, t.Attempt))
}

func (u *ControlPlaneUpdater) path(t updaters.Task, name string) string {
	return filepath.Join(u.dir(t), name)
}

// stages of an attempt, each with its file, so that a new process goes on.
const (
	exchangeRecord = "exchange-%d.json" // which files are replaced, and when
	servedMark     = "served"           // the new API server has served
	restoreRecord  = "restore.json"     // the decision to restore, with its reason
	restoredMark   = "restored"         // the old control plane serves again
)

// record is written before an exchange starts.
type record struct {
	Exchange Exchange                 `json:"exchange"`
	At       servicerestart.BootStamp `json:"at"`
	Tries    int                      `json:"tries"`
	Reason   string                   `json:"reason,omitempty"`
}

// Observe reports whether the manifests are the target's and, where the step replaces the
// kubelet too, whether the new kubelet runs.
func (u *ControlPlaneUpdater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	done, err := replacedInRun(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	if !done {
		return updaters.Observation{Detail: "the control plane was not replaced in this run"}, nil
	}
	staged, err := checkStaged(u.host.Manifests(), controlPlanePods, t.Step.To)
	if err != nil {
		return updaters.Observation{}, err
	}
	if staged != "" {
		return updaters.Observation{Detail: staged}, nil
	}
	if t.Step.Verb != VerbTogether {
		return updaters.Observation{Done: true}, nil
	}
	return u.observeKubelet(ctx, t.Step.To)
}

func (u *ControlPlaneUpdater) observeKubelet(ctx context.Context, want string) (updaters.Observation, error) {
	version, replaced, err := u.host.Running(ctx)
	switch {
	case err != nil:
		return updaters.Observation{}, err
	case version == "":
		return updaters.Observation{Detail: "the kubelet does not run"}, nil
	case replaced || version != want:
		return updaters.Observation{Detail: fmt.Sprintf("the running kubelet is %s, %s is wanted", version, want)}, nil
	}
	if err := u.host.KubeletHealthy(ctx); err != nil {
		return updaters.Observation{Detail: err.Error()}, nil //nolint:nilerr // the error is the answer
	}
	return updaters.Observation{Done: true}, nil
}

// Update prepares everything while the old control plane serves, exchanges the files, and
// restores the old ones if the new API server does not serve in time.
func (u *ControlPlaneUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	if err != nil || o.Done {
		return updaters.Result{Done: o.Done}, err
	}
	restoring, err := u.exists(t, restoreRecord)
	if err != nil {
		return updaters.Result{}, err
	}
	if restoring {
		return u.restoreOld(ctx, t)
	}
	plan, r, err := u.prepare(ctx, t)
	if plan == nil || err != nil {
		return r, err
	}
	for i, x := range plan {
		r, ok, err := u.advance(ctx, t, i, x)
		if !ok || err != nil {
			return r, err
		}
	}
	if err := fsutil.WriteFile(replacedMarker(t), []byte(t.Step.To), 0o600); err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.ControlPlaneReplaced)
	o, err = u.Observe(ctx, t)
	return updaters.Result{Done: o.Done, Reason: v1alpha1.ReasonUpdating, Message: o.Detail}, err
}

func (u *ControlPlaneUpdater) exists(t updaters.Task, name string) (bool, error) {
	_, err := os.Stat(u.path(t, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("state of step %s: %w", t.Step.ID, err)
	}
	return err == nil, nil
}

// advance starts one exchange and waits until what it replaced runs. ok is true then.
func (u *ControlPlaneUpdater) advance(ctx context.Context, t updaters.Task, i int, x Exchange) (r updaters.Result, ok bool, err error) {
	name := fmt.Sprintf(exchangeRecord, i)
	rec, r, ok, err := u.exchange(ctx, t, name, x)
	if err != nil {
		return r, false, err
	}
	if r.Failed {
		return u.decideRestore(t, r.Message)
	}
	if !ok {
		return r, false, nil
	}
	problems := u.missing(ctx, t, x)
	if len(problems) == 0 {
		return updaters.Result{}, true, nil
	}
	served, err := u.markServed(ctx, t)
	if err != nil {
		return updaters.Result{}, false, err
	}
	waited, err := u.since(rec.At)
	if err != nil {
		return updaters.Result{}, false, err
	}
	if waited > exchangeLimit {
		return u.giveUp(t, x, problems, served)
	}
	r = updaters.InProgress(v1alpha1.ReasonUpdating, "the control plane of %s starts: %s", t.Step.To, strings.Join(problems, "; "))
	r.After = watchPause
	return r, false, nil
}

// markServed records that the new API server has served: it may have stored what the old
// one cannot read.
func (u *ControlPlaneUpdater) markServed(ctx context.Context, t updaters.Task) (served bool, err error) {
	if served, err = u.exists(t, servedMark); served || err != nil {
		return served, err
	}
	if v, err := u.host.APIVersion(ctx); err != nil || v != t.Step.To || u.host.APIReady(ctx) != nil {
		return false, nil //nolint:nilerr // an API server that does not answer has not served
	}
	return true, fsutil.WriteFile(u.path(t, servedMark), nil, 0o600)
}

// giveUp ends the wait for a control plane: the old one is restored if the new API server
// has never served.
func (u *ControlPlaneUpdater) giveUp(t updaters.Task, x Exchange, problems []string, served bool) (updaters.Result, bool, error) {
	why := strings.Join(problems, "; ") + u.logs(x)
	if !served {
		return u.decideRestore(t, fmt.Sprintf("it did not serve within %s: %s", exchangeLimit, why))
	}
	return updaters.Fail(v1alpha1.ReasonControlPlaneUnhealthy, "the API server of %s has served, so the old control plane is not restored; the node is not well within %s: %s", t.Step.To, exchangeLimit, why), false, nil
}

// stamp is when the wait for an exchange began: now, if it began in no boot or an earlier
// one.
func (u *ControlPlaneUpdater) stamp(at servicerestart.BootStamp) (servicerestart.BootStamp, error) {
	now, err := servicerestart.StampAt(u.now())
	if err != nil {
		return at, err
	}
	if _, same := now.Since(at); !same {
		return now, nil
	}
	return at, nil
}

// since is the time from a moment until now, without the time of other boots.
func (u *ControlPlaneUpdater) since(at servicerestart.BootStamp) (time.Duration, error) {
	now, err := servicerestart.StampAt(u.now())
	if err != nil {
		return 0, err
	}
	d, _ := now.Since(at)
	return d, nil
}

// exchange runs an Exchange in a unit of its own. ok is true when it has ended well.
func (u *ControlPlaneUpdater) exchange(ctx context.Context, t updaters.Task, name string, x Exchange) (rec record, out updaters.Result, ok bool, err error) {
	rec, known, err := u.readRecord(t, name, x)
	if err != nil {
		return rec, out, false, err
	}
	var r updaters.Result
	c := command{name: strings.TrimSuffix(name, ".json"), about: "refit: replace the control plane", argv: u.host.ExchangeCommand(u.path(t, name))}
	if known {
		r, ok, err = u.finished(ctx, t, c)
		if ok && err == nil {
			err = fsutil.WriteJSON(u.path(t, name), rec) // the time counts anew after a restart of the machine
		}
		if ok || err != nil || inProgress(r) {
			return rec, r, ok, err
		}
	}
	out, err = u.startExchange(ctx, t, name, c, &rec, r)
	return rec, out, false, err
}

// readRecord reads the record of an exchange, or makes a new one. known is false then.
func (u *ControlPlaneUpdater) readRecord(t updaters.Task, name string, x Exchange) (rec record, known bool, err error) {
	if known, err = fsutil.ReadJSON(u.path(t, name), &rec); err != nil {
		return rec, known, err
	}
	if rec.Exchange.Files == nil {
		rec.Exchange = x
	}
	rec.At, err = u.stamp(rec.At)
	return rec, known, err
}

// startExchange starts an exchange, or fails if it failed too often.
func (u *ControlPlaneUpdater) startExchange(ctx context.Context, t updaters.Task, name string, c command, rec *record, failed updaters.Result) (updaters.Result, error) {
	switch {
	case rec.Tries >= exchangeTries && failed.Failed:
		return failed, nil
	case rec.Tries >= exchangeTries:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the exchange of files was cut off %d times", exchangeTries), nil
	}
	rec.Tries++
	if err := fsutil.WriteJSON(u.path(t, name), rec); err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.ExchangeRecorded)
	if err := u.start(ctx, t, c); err != nil {
		return updaters.Result{}, err
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "the control plane is being replaced")
	r.After = watchPause
	return r, nil
}

// missing lists what an exchange replaced and does not run yet.
func (u *ControlPlaneUpdater) missing(ctx context.Context, t updaters.Task, x Exchange) []string {
	problems, _, err := StaticPods(ctx, u.host)
	if err != nil {
		return []string{err.Error()}
	}
	if x.replaces(u.host.Manifests(), kube.APIServer) {
		if v, err := u.host.APIVersion(ctx); err != nil {
			problems = append(problems, err.Error())
		} else if v != t.Step.To {
			problems = append(problems, fmt.Sprintf("the API server reports %s", v))
		}
	}
	if err := u.host.APIReady(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	if t.Step.Verb == VerbTogether {
		if o, err := u.observeKubelet(ctx, t.Step.To); err != nil {
			problems = append(problems, err.Error())
		} else if !o.Done {
			problems = append(problems, o.Detail)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

func (x *Exchange) replaces(manifests, pod string) bool {
	return slices.ContainsFunc(x.Files, func(f ExchangedFile) bool { return f.To == manifestPath(manifests, pod) })
}

// logs are the last lines of the pods that an exchange replaced.
func (u *ControlPlaneUpdater) logs(x Exchange) string {
	var out strings.Builder
	for _, pod := range append([]string{etcdPod}, controlPlanePods[:1]...) {
		if !x.replaces(u.host.Manifests(), pod) {
			continue
		}
		if text := u.host.PodLog(pod); text != "" {
			fmt.Fprintf(&out, "\n%s:\n%s", pod, text)
		}
	}
	return out.String()
}

// inProgress reports whether a command runs: a Result without words says that it does not.
func inProgress(r updaters.Result) bool { return !r.Failed && r.Message != "" }
