// Package certificates renews a node's certificates in place.
//
// Promise: kubeadm makes them, one at a time, in a unit of its own. If a power cut left one
// half written, the updater first restores it from a copy. Every static pod that uses a
// renewed certificate restarts, one after another, and only when the node is settled and,
// for etcd, when the other members keep the quorum. The step is done when each has started
// after its certificates were written. No message has any part of a key, and no old key
// stays once the step is done, so the step cannot be undone. The kubelet renews its own
// certificate: the updater only observes that.
//
// Inputs: Host, the step's configuration and the names in its parameters. Outputs:
// files of kubeadm's PKI, restarts. Callers: engine; the agent's view of its node
// (Fields).
package certificates

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// Host is what the updater asks of the node.
type Host interface {
	updaters.Configs
	// Certificate reads one; CertificateFiles are its paths.
	Certificate(name string) (c kube.CertificateFiles, found bool, err error)
	CertificateFiles(name string) []string
	// Kubeadm is where the program is.
	Kubeadm(ctx context.Context) (string, error)
	// Unsettled says what keeps a static pod from being restarted, nothing if it may
	// restart; EtcdUnsafe says the same of the etcd member.
	Unsettled(ctx context.Context) ([]string, error)
	EtcdUnsafe(ctx context.Context) ([]string, error)
	// Node is the node's name; Containers are those of all pods; StopContainer ends one,
	// which the kubelet starts again.
	Node() string
	Containers(ctx context.Context) ([]cri.Container, error)
	StopContainer(ctx context.Context, id string) error
	RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error
	DetachedRuns(ctx context.Context, unit string) (bool, error)
}

// ParamNames lists the certificates of a step, with commas.
const ParamNames = "certificates"

const (
	// limit is how long the step may take before it fails.
	limit = 20 * time.Minute
	// tries is how often kubeadm runs for one certificate.
	tries = 3
	lines = 6
	day   = 24 * time.Hour
)

// Updater is the step "certificates".
type Updater struct {
	host Host
	now  func() time.Time
}

// New makes the updater.
func New(h Host) *Updater { return &Updater{host: h, now: time.Now} }

// Name is certificates.
func (u *Updater) Name() string { return "certificates" }

// expandName returns the single names for "all".
func expandName(name string) []string {
	if name == "all" {
		return kube.CertificateNames()
	}
	return []string{name}
}

// isYoungEnough reports whether a certificate is as young as its configuration wants.
func isYoungEnough(w model.ConfigCertificate, c kube.CertificateFiles, now time.Time) bool {
	young := w.NotBefore == "" || c.Made.UTC().Format(time.DateOnly) >= w.NotBefore
	return young && (w.DaysLeft == 0 || c.NotAfter.Sub(now) >= time.Duration(w.DaysLeft)*day)
}

// wantedByName are the requirements of a step, by single name.
func wantedByName(t updaters.Task, c *model.NodeConfig) map[string][]model.ConfigCertificate {
	out := map[string][]model.ConfigCertificate{}
	names := strings.Split(t.Step.Params[ParamNames], ",")
	for _, w := range c.Certificates {
		if !slices.Contains(names, w.Name) {
			continue
		}
		for _, name := range expandName(w.Name) {
			out[name] = append(out[name], w)
		}
	}
	return out
}

// findOutdated lists the certificates that must be renewed, sorted. It includes broken ones.
func (u *Updater) findOutdated(t updaters.Task, c *model.NodeConfig) ([]string, error) {
	var out []string
	for name, ws := range wantedByName(t, c) {
		have, found, err := u.host.Certificate(name)
		broken := errors.Is(err, kube.ErrBrokenCertificate)
		if err != nil && !broken {
			return nil, err
		}
		if found && (broken || slices.ContainsFunc(ws, func(w model.ConfigCertificate) bool { return !isYoungEnough(w, have, u.now()) })) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// restartOrder is the order in which static pods restart.
var restartOrder = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// findStalePod is the first container of a static pod that started before one of its
// certificates was written, "" if there is none.
func (u *Updater) findStalePod(ctx context.Context, t updaters.Task, c *model.NodeConfig) (pod, id string, err error) {
	since, err := u.lastWritten(t, c)
	if err != nil {
		return "", "", err
	}
	containers, err := u.host.Containers(ctx)
	if err != nil {
		return "", "", err
	}
	for _, p := range restartOrder {
		for _, k := range containers {
			if k.Running && k.Pod == p+"-"+u.host.Node() && k.Created.Before(since[p]) {
				return p, k.ID, nil
			}
		}
	}
	return "", "", nil
}

// lastWritten is when the last of a static pod's certificates was written.
func (u *Updater) lastWritten(t updaters.Task, c *model.NodeConfig) (map[string]time.Time, error) {
	since := map[string]time.Time{}
	for name := range wantedByName(t, c) {
		have, found, err := u.host.Certificate(name)
		if err != nil {
			return nil, err
		}
		for _, p := range kube.CertificateUsers(name) {
			if found && have.Written.After(since[p]) {
				since[p] = have.Written
			}
		}
	}
	return since, nil
}

// Observe checks the certificates and the pods that use them.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return updaters.Observation{}, err
	}
	old, err := u.findOutdated(t, c)
	if err != nil {
		return updaters.Observation{}, err
	}
	if len(old) > 0 {
		return updaters.Observation{Detail: "certificate " + old[0] + " is older than the configuration allows"}, nil
	}
	pod, _, err := u.findStalePod(ctx, t, c)
	if err != nil {
		return updaters.Observation{}, err
	}
	if pod != "" {
		return updaters.Observation{Detail: pod + " has not restarted since its certificates were renewed"}, nil
	}
	return updaters.Observation{Done: true}, nil
}

type files struct{ log, result, count string }

func attemptFiles(t updaters.Task, name string) files {
	dir := filepath.Join(t.Dir, fmt.Sprintf("%s-%d", t.Step.ID, t.Attempt), name)
	return files{log: filepath.Join(dir, "log"), result: filepath.Join(dir, "result.json"), count: filepath.Join(dir, "tries")}
}

func unitName(t updaters.Task) string { return "refit-run-" + t.Step.ID + ".service" }

// Update does the next thing that is missing.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	c, no, ok := updaters.LoadConfig(t, u.host)
	if !ok {
		return no, nil
	}
	runs, err := u.host.DetachedRuns(ctx, unitName(t))
	if err != nil || runs {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm makes a certificate"), err
	}
	old, err := u.findOutdated(t, c)
	if err != nil {
		return updaters.Result{}, err
	}
	r, err := u.advance(ctx, t, c, old)
	if err == nil && !r.Done && !r.Failed && u.now().Sub(t.Started) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the certificates are not renewed within %s: %s", limit, r.Message), nil
	}
	return r, err
}

func (u *Updater) advance(ctx context.Context, t updaters.Task, c *model.NodeConfig, old []string) (updaters.Result, error) {
	if len(old) > 0 {
		return u.renew(ctx, t, old[0])
	}
	pod, id, err := u.findStalePod(ctx, t, c)
	if err != nil {
		return updaters.Result{}, err
	}
	problems, err := u.host.Unsettled(ctx)
	if err == nil && pod == "etcd" {
		var more []string
		more, err = u.host.EtcdUnsafe(ctx)
		problems = append(problems, more...)
	}
	switch {
	case err != nil:
		return updaters.Result{}, err
	case len(problems) > 0:
		return updaters.InProgress(v1alpha1.ReasonControlPlaneUnhealthy, "the next static pod restarts when the node is settled: %s", strings.Join(problems, "; ")), nil
	case pod == "":
		return updaters.Result{Done: true}, u.removeCopies(t)
	}
	failpoint.Here(failpoint.CertRenewed)
	return updaters.InProgress(v1alpha1.ReasonUpdating, "%s restarts to use its new certificates", pod), u.host.StopContainer(ctx, id)
}

// renew makes kubeadm renew one certificate. A copy exists meanwhile, because kubeadm writes
// key and certificate one after the other.
func (u *Updater) renew(ctx context.Context, t updaters.Task, name string) (updaters.Result, error) {
	f := attemptFiles(t, name)
	result, err := systemd.ReadCommandResult(f.result)
	if err != nil {
		return updaters.Result{}, err
	}
	n := updaters.ReadTries(f.count)
	if result != nil && n >= tries {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "kubeadm certs renew %s ended with status %d and the certificate is older than the configuration allows (its output is in %s):\n%s", name, result.Exit, f.log, systemd.TailLog(f.log, lines)), nil
	}
	if name == kube.KubeletClient {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the kubelet renews its own certificate; it has not done so yet"), nil
	}
	problems, err := u.host.Unsettled(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if len(problems) > 0 && n == 0 { // a broken certificate may be what unsettles it
		return updaters.InProgress(v1alpha1.ReasonControlPlaneUnhealthy, "certificates are renewed when the node is settled: %s", strings.Join(problems, "; ")), nil
	}
	if err := u.copyOrRestore(t, name); err != nil {
		return updaters.Result{}, err
	}
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := recordStart(f, n+1); err != nil {
		return updaters.Result{}, err
	}
	err = u.host.RunDetached(ctx, unitName(t), "refit: kubeadm certs renew "+name, f.log, f.result, []string{path, "certs", "renew", name})
	return updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm makes the certificate %s", name), err
}
