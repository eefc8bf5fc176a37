// Package certificates renews a node's certificates in place.
//
// Promise: kubeadm makes them, one at a time, in a unit of its own; what a power
// cut left half written is put back from a copy first. Every static pod that uses
// a renewed one is restarted, one after another, each only when the node is
// settled and, for etcd, when the others keep the quorum; it is done when each
// runs since after its certificates were written. Nothing of a key is ever said,
// and no old key is kept once it is done: so there is no way back. The kubelet
// renews its own certificate; that is only looked at.
//
// Inputs: Host, the step's configuration and the names in its parameters. Outputs:
// files of kubeadm's PKI, restarts. Callers: run; the agent's view of its node
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
	// CertificateFiles looks at one; Files are where it is.
	Certificate(name string) (c kube.CertificateFiles, found bool, err error)
	CertificateFiles(name string) []string
	// Kubeadm is where the program is.
	Kubeadm(ctx context.Context) (string, error)
	// Unsettled says what keeps a static pod from being restarted, nothing if it
	// may; EtcdUnsafe the same of the member of etcd.
	Unsettled(ctx context.Context) ([]string, error)
	EtcdUnsafe(ctx context.Context) ([]string, error)
	// Node is the node's name; Containers of all pods; StopContainer ends one, which
	// the kubelet starts again.
	Node() string
	Containers(ctx context.Context) ([]cri.Container, error)
	StopContainer(ctx context.Context, id string) error
	RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error
	DetachedRuns(ctx context.Context, unit string) (bool, error)
}

// ParamNames lists the certificates of a step, with commas.
const ParamNames = "certificates"

const (
	// limit is after how long it has failed.
	limit = 20 * time.Minute
	// tries is how often kubeadm is asked for one certificate.
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

// expand makes single names of "all".
func expand(name string) []string {
	if name == "all" {
		return kube.CertificateNames()
	}
	return []string{name}
}

// fits reports whether a certificate is as young as is wanted.
func fits(w model.ConfigCertificate, c kube.CertificateFiles, now time.Time) bool {
	young := w.NotBefore == "" || c.Made.UTC().Format(time.DateOnly) >= w.NotBefore
	return young && (w.DaysLeft == 0 || c.NotAfter.Sub(now) >= time.Duration(w.DaysLeft)*day)
}

// wanted are the demands of a step, by single name.
func wanted(t updaters.Task, c *model.NodeConfig) map[string][]model.ConfigCertificate {
	out := map[string][]model.ConfigCertificate{}
	names := strings.Split(t.Step.Params[ParamNames], ",")
	for _, w := range c.Certificates {
		if !slices.Contains(names, w.Name) {
			continue
		}
		for _, name := range expand(w.Name) {
			out[name] = append(out[name], w)
		}
	}
	return out
}

// old lists the certificates that must be renewed, sorted. A broken one is one.
func (u *Updater) old(t updaters.Task, c *model.NodeConfig) ([]string, error) {
	var out []string
	for name, ws := range wanted(t, c) {
		have, found, err := u.host.Certificate(name)
		broken := errors.Is(err, kube.ErrBrokenCertificate)
		if err != nil && !broken {
			return nil, err
		}
		if found && (broken || slices.ContainsFunc(ws, func(w model.ConfigCertificate) bool { return !fits(w, have, u.now()) })) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// order in which static pods are restarted.
var order = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// stale is the first container of a static pod that runs since before one of its
// certificates was written, "" if there is none.
func (u *Updater) stale(ctx context.Context, t updaters.Task, c *model.NodeConfig) (pod, id string, err error) {
	since, err := u.written(t, c)
	if err != nil {
		return "", "", err
	}
	containers, err := u.host.Containers(ctx)
	if err != nil {
		return "", "", err
	}
	for _, p := range order {
		for _, k := range containers {
			if k.Running && k.Pod == p+"-"+u.host.Node() && k.Created.Before(since[p]) {
				return p, k.ID, nil
			}
		}
	}
	return "", "", nil
}

// written is when the last of a static pod's certificates was written.
func (u *Updater) written(t updaters.Task, c *model.NodeConfig) (map[string]time.Time, error) {
	since := map[string]time.Time{}
	for name := range wanted(t, c) {
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

// Observe looks at certificates and at who uses them.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return updaters.Observation{}, err
	}
	old, err := u.old(t, c)
	if err != nil {
		return updaters.Observation{}, err
	}
	if len(old) > 0 {
		return updaters.Observation{Detail: "certificate " + old[0] + " is not as young as is wanted"}, nil
	}
	pod, _, err := u.stale(ctx, t, c)
	if err != nil {
		return updaters.Observation{}, err
	}
	if pod != "" {
		return updaters.Observation{Detail: pod + " runs since before its certificates were renewed"}, nil
	}
	return updaters.Observation{Done: true}, nil
}

type files struct{ log, result, count string }

func filesOf(t updaters.Task, name string) files {
	dir := filepath.Join(t.Dir, fmt.Sprintf("%s-%d", t.Step.ID, t.Attempt), name)
	return files{log: filepath.Join(dir, "log"), result: filepath.Join(dir, "result.json"), count: filepath.Join(dir, "tries")}
}

func unit(t updaters.Task) string { return "refit-run-" + t.Step.ID + ".service" }

// Update does the next thing that is missing.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	c, err := updaters.Config(t, u.host)
	if errors.Is(err, updaters.ErrNoConfig) {
		return updaters.Going(v1alpha1.ReasonUpdating, "%v", err), nil
	}
	if err != nil {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	}
	runs, err := u.host.DetachedRuns(ctx, unit(t))
	if err != nil || runs {
		return updaters.Going(v1alpha1.ReasonUpdating, "kubeadm makes a certificate"), err
	}
	old, err := u.old(t, c)
	if err != nil {
		return updaters.Result{}, err
	}
	r, err := u.next(ctx, t, c, old)
	if err == nil && !r.Done && !r.Failed && u.now().Sub(t.Started) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the certificates are not renewed within %s: %s", limit, r.Message), nil
	}
	return r, err
}

func (u *Updater) next(ctx context.Context, t updaters.Task, c *model.NodeConfig, old []string) (updaters.Result, error) {
	if len(old) > 0 {
		return u.renew(ctx, t, old[0])
	}
	pod, id, err := u.stale(ctx, t, c)
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
		return updaters.Going(v1alpha1.ReasonControlPlaneUnhealthy, "the next static pod is restarted when the node is settled: %s", strings.Join(problems, "; ")), nil
	case pod == "":
		return updaters.Result{Done: true}, u.forget(t)
	}
	failpoint.Here(failpoint.CertRenewed)
	return updaters.Going(v1alpha1.ReasonUpdating, "%s is restarted to use its new certificates", pod), u.host.StopContainer(ctx, id)
}

// renew has kubeadm make one certificate anew. A copy is kept while it does: it
// writes key and certificate one after the other.
func (u *Updater) renew(ctx context.Context, t updaters.Task, name string) (updaters.Result, error) {
	f := filesOf(t, name)
	result, err := systemd.ReadCommandResult(f.result)
	if err != nil {
		return updaters.Result{}, err
	}
	n := updaters.ReadCount(f.count)
	if result != nil && n >= tries {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "kubeadm certs renew %s ended with status %d and the certificate is not as young as is wanted (its output is in %s):\n%s", name, result.Exit, f.log, systemd.TailLog(f.log, lines)), nil
	}
	if name == kube.KubeletClient {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the kubelet renews its own certificate; it has not done so yet"), nil
	}
	problems, err := u.host.Unsettled(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if len(problems) > 0 && n == 0 { // a broken certificate may be what unsettles it
		return updaters.Going(v1alpha1.ReasonControlPlaneUnhealthy, "certificates are renewed when the node is settled: %s", strings.Join(problems, "; ")), nil
	}
	if err := u.save(t, name); err != nil {
		return updaters.Result{}, err
	}
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := startOf(f, n+1); err != nil {
		return updaters.Result{}, err
	}
	err = u.host.RunDetached(ctx, unit(t), "refit: kubeadm certs renew "+name, f.log, f.result, []string{path, "certs", "renew", name})
	return updaters.Going(v1alpha1.ReasonUpdating, "kubeadm makes the certificate %s", name), err
}
