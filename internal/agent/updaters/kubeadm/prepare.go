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

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// planFile holds the exchanges of an attempt, once all is prepared.
const planFile = "exchanges.json"

// prepare does all that needs no exchange and returns the exchanges. It returns nil with a
// Result while something is missing.
func (u *ControlPlaneUpdater) prepare(ctx context.Context, t updaters.Task) ([]Exchange, updaters.Result, error) {
	var plan []Exchange
	if known, err := fsutil.ReadJSON(u.path(t, planFile), &plan); known || err != nil {
		return plan, updaters.Result{}, err
	}
	if r, ok, err := u.mayStart(ctx, t); !ok || err != nil {
		return nil, r, err
	}
	if r, ok, err := u.runCommands(ctx, t); !ok || err != nil {
		return nil, r, err
	}
	plan, r, err := u.planExchanges(ctx, t)
	if r.Failed || err != nil {
		return nil, r, err
	}
	if err := fsutil.WriteJSON(u.path(t, planFile), plan); err != nil {
		return nil, r, err
	}
	failpoint.Here(failpoint.ControlPlanePrepared)
	return plan, updaters.Result{}, nil
}

// planExchanges checks the new manifests and returns what replaces the old files.
func (u *ControlPlaneUpdater) planExchanges(ctx context.Context, t updaters.Task) ([]Exchange, updaters.Result, error) {
	names, err := u.podNames()
	if err != nil {
		return nil, updaters.Result{}, err
	}
	if r, err := u.checkManifests(ctx, t, names); r.Failed || err != nil {
		return nil, r, err
	}
	plan, err := u.exchanges(ctx, t, names)
	return plan, updaters.Result{}, err
}

// runCommands runs the commands that prepare the exchange. ok is true when all succeeded.
func (u *ControlPlaneUpdater) runCommands(ctx context.Context, t updaters.Task) (r updaters.Result, ok bool, err error) {
	commands, err := u.commands(ctx, t)
	if err != nil {
		return r, false, err
	}
	for _, c := range commands {
		if r, ok, err := u.run(ctx, t, c); !ok || err != nil {
			return r, ok, err
		}
	}
	return r, true, nil
}

// mayStart reports whether the node may be prepared: it is settled, an API server answers,
// and etcd has a snapshot and keeps its quorum.
func (u *ControlPlaneUpdater) mayStart(ctx context.Context, t updaters.Task) (r updaters.Result, ok bool, err error) {
	problems, err := u.host.Unsettled(ctx)
	if err != nil {
		return r, false, err
	}
	if len(problems) > 0 {
		return updaters.InProgress(v1alpha1.ReasonControlPlaneUnhealthy, "the control plane is replaced when the node is settled: %s", strings.Join(problems, "; ")), false, nil
	}
	if err := u.host.APIAnswers(ctx); err != nil {
		return updaters.InProgress(v1alpha1.ReasonAPIServerUnavailable, "the control plane is replaced when the API server answers: %v", err), false, nil
	}
	return u.kubeadm.prepareEtcd(ctx, t)
}

// staged is where kubeadm writes the new manifests.
func (u *ControlPlaneUpdater) staged(t updaters.Task) string { return u.path(t, "manifests") }

// podNames are the static pods of this node that kubeadm writes.
func (u *ControlPlaneUpdater) podNames() ([]string, error) {
	pods, err := u.host.StaticPods()
	if err != nil {
		return nil, err
	}
	if kube.Find(pods, etcdPod) != nil {
		return append([]string{etcdPod}, controlPlanePods...), nil
	}
	return controlPlanePods, nil
}

// commands of kubeadm that prepare the exchange, in their order. None of them stops a
// part of the control plane.
func (u *ControlPlaneUpdater) commands(ctx context.Context, t updaters.Task) ([]command, error) {
	path, err := u.placeKubeadm(ctx, t)
	if err != nil {
		return nil, err
	}
	upgradeFile, initFile := u.path(t, "upgrade.yaml"), u.path(t, "init.yaml")
	if err := u.writeConfigurations(ctx, t, upgradeFile, initFile); err != nil {
		return nil, err
	}
	names, err := u.podNames()
	if err != nil {
		return nil, err
	}
	out := []command{
		{name: "preflight", about: "refit: kubeadm's preflight checks", argv: []string{path, "upgrade", "apply", "phase", "preflight", "--config", upgradeFile, "--yes"}, preflight: true},
		{name: "manifests", about: "refit: kubeadm writes the new manifests", argv: dryRun(path, u.staged(t), initFile, "control-plane", "all")},
	}
	if names[0] == etcdPod {
		out = append(out, command{name: "manifest-etcd", about: "refit: kubeadm writes the new manifest of etcd", argv: dryRun(path, u.staged(t), initFile, "etcd", "local")})
	}
	return append(out,
		command{name: "certificates", about: "refit: kubeadm renews the certificates", argv: []string{path, "certs", "renew", "all"}},
		command{name: "kubelet-flags", about: "refit: kubeadm removes old flags of the kubelet", argv: []string{path, "upgrade", "apply", "phase", "post-upgrade", "--config", upgradeFile}}), nil
}

// placeKubeadm replaces kubeadm and keeps what it may change.
func (u *ControlPlaneUpdater) placeKubeadm(ctx context.Context, t updaters.Task) (path string, err error) {
	if path, err = u.host.Kubeadm(ctx); err != nil {
		return "", err
	}
	if _, err := updaters.Swap(t, "kubeadm", path); err != nil {
		return "", err
	}
	for _, c := range u.host.ConfigFiles() { // the phase post-upgrade changes the kubelet's flags
		if err := updaters.BackUp(t, configBackup(c), c); err != nil {
			return "", err
		}
	}
	return path, u.kubeadm.recordForeignLeftovers(t)
}

// writeConfigurations writes the files with which kubeadm's commands run.
func (u *ControlPlaneUpdater) writeConfigurations(ctx context.Context, t updaters.Task, upgradeFile, initFile string) error {
	patches, err := patchesDirectory(t.Step)
	if err != nil {
		return err
	}
	upgrade, err := u.kubeadm.upgradeConfig(t.Step, nil, patches)
	if err != nil {
		return err
	}
	if err := u.writeInitConfiguration(ctx, t, initFile, patches); err != nil {
		return err
	}
	return fsutil.WriteFile(upgradeFile, upgrade, 0o600)
}

// writeInitConfiguration writes it once: the API server may be asked in vain later.
func (u *ControlPlaneUpdater) writeInitConfiguration(ctx context.Context, t updaters.Task, file, patches string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	endpoint, err := endpointOf(u.host.Manifests())
	if err != nil {
		return err
	}
	cluster, err := u.host.ClusterConfiguration(ctx)
	if err != nil {
		return err
	}
	text, err := initConfiguration(cluster, t.Step.To, u.host.Node(), endpoint, patches)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(u.staged(t), 0o700); err != nil {
		return fmt.Errorf("directory of the new manifests: %w", err)
	}
	return fsutil.WriteFile(file, text, 0o600)
}

// checkManifests fails if the new manifests are not what can run on this node.
func (u *ControlPlaneUpdater) checkManifests(ctx context.Context, t updaters.Task, names []string) (updaters.Result, error) {
	problem, err := checkStaged(u.staged(t), names, t.Step.To)
	if err != nil {
		return updaters.Result{}, err
	}
	if problem != "" {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "nothing was replaced: %s", problem), nil
	}
	pods, err := kube.StaticPods(u.staged(t))
	if err != nil {
		return updaters.Result{}, err
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			id, err := u.host.ImageID(ctx, c.Image)
			if err != nil {
				return updaters.Result{}, err
			}
			if id == "" {
				return updaters.Fail(v1alpha1.ReasonImageNotPinned, "nothing was replaced: image %s of static pod %s is not on the node", c.Image, p.Name), nil
			}
		}
	}
	return updaters.Result{}, nil
}

// exchanges keeps the old files and returns what replaces them. Files that are equal
// already are left out; an exchange without files restarts nothing.
func (u *ControlPlaneUpdater) exchanges(ctx context.Context, t updaters.Task, names []string) ([]Exchange, error) {
	manifests, err := u.changedManifests(t, names)
	if err != nil {
		return nil, err
	}
	x := Exchange{Files: manifests}
	ends := func(pod string) bool { return x.replaces(u.host.Manifests(), pod) }
	switch {
	case t.Step.Verb == VerbTogether:
		programs, err := u.programs(ctx, t)
		if err != nil {
			return nil, err
		}
		x.Files = append(manifests, programs...)
		running, _, err := u.host.Running(ctx)
		if err != nil {
			return nil, err
		}
		if !sameMinor(running, t.Step.To) { // the new kubelet starts the other pods anew too
			ends = func(pod string) bool { return slices.Contains(names, pod) }
		}
	case !ends(etcdPod):
		return []Exchange{x}, nil // the kubelet replaces these pods itself
	}
	grace, err := u.grace(t)
	x.Unit, x.Pods = kubeletUnit, u.endedPods(ends, grace)
	return []Exchange{x}, err
}

// sameMinor reports whether two versions are of one minor release.
func sameMinor(a, b string) bool {
	v, err := version.ParseGeneric(a)
	w, err2 := version.ParseGeneric(b)
	return err == nil && err2 == nil && v.Major() == w.Major() && v.Minor() == w.Minor()
}

// grace in seconds is for the API server to end.
func (u *ControlPlaneUpdater) grace(t updaters.Task) (int64, error) {
	if t.Step.Params[model.ParamOthersServe] != model.ParamYes {
		return graceAlone, nil
	}
	delay, err := u.shutdownDelay()
	return graceWithOthers + delay, err
}

// Times in seconds for the API server to answer its open requests. It is not waited for
// longer: in use it did not end by itself within 30 s.
const (
	graceAlone      = 3  // no other API server answers meanwhile
	graceWithOthers = 10 // others answer new requests
	// graceOthers is for the other components, which end in less than a second.
	graceOthers = 10
)

// maxShutdownDelay in seconds bounds what a flag may ask for: the kubelet is stopped meanwhile, and
// a node that reports nothing for 40 s counts as lost.
const maxShutdownDelay = 20

// shutdownDelay is for how many seconds the API server goes on serving after its signal to end,
// while it tells load balancers that it is not ready.
func (u *ControlPlaneUpdater) shutdownDelay() (int64, error) {
	pods, err := u.host.StaticPods()
	if err != nil {
		return 0, err
	}
	p := kube.Find(pods, kube.APIServer)
	if p == nil {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Containers[0].Flag("shutdown-delay-duration"))
	if err != nil {
		return 0, nil //nolint:nilerr // the flag is not set
	}
	return min(int64(d.Seconds()), maxShutdownDelay), nil
}

// endedPods are the pods that an exchange ends, the API server first. A kubelet that starts runs
// new pods while the old ones still run. A new etcd would then fail on the ports of the old one,
// and start again only after the kubelet's back-off.
func (u *ControlPlaneUpdater) endedPods(ends func(pod string) bool, grace int64) (out []EndedPod) {
	for _, name := range slices.Concat(controlPlanePods[:1], []string{etcdPod}, controlPlanePods[1:]) {
		if ends(name) {
			out = append(out, EndedPod{name + "-" + u.host.Node(), grace})
		}
		grace = graceOthers
	}
	return out
}

// changedManifests are the new manifests that differ from those in place; the old ones are
// kept.
func (u *ControlPlaneUpdater) changedManifests(t updaters.Task, names []string) ([]ExchangedFile, error) {
	older, err := u.olderEtcd(t)
	if err != nil {
		return nil, err
	}
	var out []ExchangedFile
	for _, name := range names {
		f := ExchangedFile{From: manifestPath(u.staged(t), name), To: manifestPath(u.host.Manifests(), name), Mode: 0o600}
		if f.Digest, err = fsutil.Digest(f.From); err != nil {
			return nil, err
		}
		if have, err := fsutil.Digest(f.To); err == nil && have == f.Digest || name == etcdPod && older {
			continue
		}
		if err := updaters.BackUp(t, keptManifest(name), f.To); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// olderEtcd reports whether the new manifest has an older etcd than the node: an older
// patch release of Kubernetes may. kubeadm keeps the newer one too.
func (u *ControlPlaneUpdater) olderEtcd(t updaters.Task) (bool, error) {
	var versions []*version.Version
	for _, dir := range []string{u.staged(t), u.host.Manifests()} {
		pods, err := kube.StaticPods(dir)
		if err != nil {
			return false, err
		}
		p := kube.Find(pods, etcdPod)
		if p == nil {
			return false, nil
		}
		v, err := version.ParseSemantic(strings.Replace(kube.Tag(p.Containers[0].Image), "_", "+", 1))
		if err != nil {
			return false, fmt.Errorf("version of etcd in %s: %w", manifestPath(dir, etcdPod), err)
		}
		versions = append(versions, v)
	}
	return versions[0].LessThan(versions[1]), nil
}

// kubeletUnit is the kubelet's unit on kubeadm nodes.
const kubeletUnit = distribution.KubeletUnit

func keptManifest(pod string) string { return filepath.Join("manifests", pod+".yaml") }

// programs are the kubelet and, where node and bundle have it, kubectl.
func (u *ControlPlaneUpdater) programs(ctx context.Context, t updaters.Task) ([]ExchangedFile, error) {
	kubelet, err := u.host.Kubelet(ctx)
	if err != nil {
		return nil, err
	}
	var out []ExchangedFile
	for _, p := range []struct{ name, path string }{{"kubelet", kubelet}, {"kubectl", u.host.Kubectl()}} {
		if p.path == "" {
			continue
		}
		payload, err := t.Payload(p.name)
		if errors.Is(err, updaters.ErrNoPayload) && p.name != "kubelet" {
			continue // nothing depends on kubectl
		}
		if err != nil {
			return nil, err
		}
		if err := updaters.BackUp(t, p.name, p.path); err != nil {
			return nil, err
		}
		out = append(out, ExchangedFile{From: payload.Path, To: p.path, Digest: payload.Digest, Mode: 0o755})
	}
	return out, nil
}

// command is one program that runs in a unit of its own.
type command struct {
	name, about string
	argv        []string
	// preflight: a refusal changed nothing and is tried again.
	preflight bool
}

func (u *ControlPlaneUpdater) unit(t updaters.Task, c command) string {
	return "refit-run-" + t.Step.ID + "-" + c.name + ".service"
}

func (u *ControlPlaneUpdater) start(ctx context.Context, t updaters.Task, c command) error {
	if err := os.Remove(u.path(t, c.name+".result")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return u.host.RunDetached(ctx, u.unit(t, c), c.about, u.path(t, c.name+".log"), u.path(t, c.name+".result"), c.argv)
}

// finished reports how a command ended. ok is true if it succeeded; a Result without words
// says that it does not run and has no result.
func (u *ControlPlaneUpdater) finished(ctx context.Context, t updaters.Task, c command) (r updaters.Result, ok bool, err error) {
	runs, err := u.host.DetachedRuns(ctx, u.unit(t, c))
	if err != nil {
		return r, false, err
	}
	log := u.path(t, c.name+".log")
	if runs {
		r = updaters.InProgress(v1alpha1.ReasonUpdating, "%s: %s", strings.TrimPrefix(c.about, "refit: "), lastLine(log))
		r.After = watchPause
		return r, false, nil
	}
	// The result is read after the unit was seen to have ended.
	result, err := systemd.ReadCommandResult(u.path(t, c.name+".result"))
	if err != nil || result == nil {
		return r, false, err
	}
	if result.Exit == 0 {
		return r, true, nil
	}
	why := errorLines(log)
	if result.Error != "" {
		why = result.Error + "\n" + why
	}
	return updaters.Fail(v1alpha1.ReasonStepFailed, "%s failed with status %d (its output is in %s):\n%s", strings.TrimPrefix(c.about, "refit: "), result.Exit, log, why), false, nil
}

// run starts a command of kubeadm once and waits for it; one that was cut off, or that
// changed nothing, is repeated a few times.
func (u *ControlPlaneUpdater) run(ctx context.Context, t updaters.Task, c command) (r updaters.Result, ok bool, err error) {
	r, ok, err = u.finished(ctx, t, c)
	if ok || err != nil || inProgress(r) {
		return r, ok, err
	}
	count := u.path(t, c.name+".starts")
	n := updaters.ReadTries(count)
	if end := c.giveUp(r, n); end.Failed {
		return end, false, nil
	}
	if err := fsutil.WriteFile(count, []byte(fmt.Sprint(n+1)), 0o600); err != nil {
		return r, false, err
	}
	if err := u.start(ctx, t, c); err != nil {
		return r, false, err
	}
	failpoint.Here(failpoint.ControlPlaneCommand)
	if r.Failed {
		r = updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm is asked again, nothing was replaced: %s", r.Message)
		r.After = preflightPause
		return r, false, nil
	}
	r = updaters.InProgress(v1alpha1.ReasonUpdating, "%s", strings.TrimPrefix(c.about, "refit: "))
	r.After = watchPause
	return r, false, nil
}

// giveUp is the failure of a command that is not repeated; r says how it failed, if it did,
// and n is how often it has started.
func (c command) giveUp(r updaters.Result, n int) updaters.Result {
	switch {
	case r.Failed && (!c.preflight && !lostAPIServer(r.Message) || n >= preflightTries):
		r.Message = "nothing was replaced: " + r.Message
		return r
	case n >= maxStarts:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "nothing was replaced: %s was cut off %d times", strings.TrimPrefix(c.about, "refit: "), n)
	}
	return updaters.Result{}
}
