package kubeadm

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
)

// SettleHost is what the updater asks of the node.
type SettleHost interface {
	// Node is the node's name.
	Node() string
	// StaticPods are the manifests.
	StaticPods() ([]kube.StaticPod, error)
	// Containers are those of all pods; ImageID is the ID behind an image name.
	Containers(ctx context.Context) ([]cri.Container, error)
	ImageID(ctx context.Context, name string) (string, error)
	// APIReady asks /readyz: of this node's own API server if it has one.
	APIReady(ctx context.Context) error
	// KubeletHealthy asks the kubelet directly.
	KubeletHealthy(ctx context.Context) error
	// NodeReady is what the API server reports of the node.
	NodeReady(ctx context.Context) (ready bool, kubelet string, err error)
	// KubeletStarted is when the kubelet's process started.
	KubeletStarted(ctx context.Context) (time.Time, error)
}

const (
	// Quiet is how long everything must be healthy without a break, while the kubelet
	// may still restart static pods that an older kubelet started.
	Quiet = 8 * time.Second
	// shortQuiet is the same where no such static pod is left.
	shortQuiet = 3 * time.Second
	// limit is how long a node may take to settle before the step fails.
	limit = 15 * time.Minute
	// observeInterval is the time between two observations.
	observeInterval = 500 * time.Millisecond
)

// StaticPods says which static pods do not run what their manifest requires. running is a
// text that changes when one of their containers does.
func StaticPods(ctx context.Context, h SettleHost) (problems []string, running string, err error) {
	pods, err := h.StaticPods()
	if err != nil {
		return nil, "", err
	}
	if len(pods) == 0 {
		return nil, "", nil
	}
	containers, err := h.Containers(ctx)
	if err != nil {
		return nil, "", err
	}
	var ids []string
	for _, p := range pods {
		for _, c := range p.Containers {
			want, err := h.ImageID(ctx, c.Image)
			if err != nil {
				return nil, "", err
			}
			id, problem := runsManifest(containers, p, c, h.Node(), want)
			if problem != "" {
				problems = append(problems, problem)
			}
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return problems, strings.Join(ids, " "), nil
}

func runsManifest(all []cri.Container, p kube.StaticPod, c kube.StaticContainer, node, want string) (id, problem string) {
	if want == "" {
		return "", fmt.Sprintf("image %s of static pod %s is not on the node", c.Image, p.Name)
	}
	other := false
	for _, k := range all {
		if k.Pod != p.Name+"-"+node || k.Name != c.Name || !k.Running {
			continue
		}
		if k.ImageID == want {
			return k.ID, ""
		}
		other = true
	}
	if other {
		return "", fmt.Sprintf("static pod %s does not run %s yet", p.Name, c.Image)
	}
	return "", fmt.Sprintf("static pod %s does not run", p.Name)
}

// SettleUpdater is the step "settle".
type SettleUpdater struct {
	host SettleHost
	now  func() time.Time

	mu           sync.Mutex
	settledSince time.Time // everything is well since then; zero: it is not
	containers   string    // the containers that ran then
	run          string    // the run it was counted in
}

// NewSettle makes the updater.
func NewSettle(h SettleHost) *SettleUpdater { return &SettleUpdater{host: h, now: time.Now} }

// Name is settle.
func (u *SettleUpdater) Name() string { return "settle" }

// Observe observes the node once, and counts how long everything has been healthy.
func (u *SettleUpdater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	problems, running := u.problems(ctx, t.Step.To)
	wait := u.wait(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if len(problems) > 0 {
		u.settledSince = time.Time{}
		return updaters.Observation{Detail: strings.Join(problems, "; ")}, nil
	}
	run := fmt.Sprintf("%s/%d", t.UID, t.Attempt)
	if u.settledSince.IsZero() || u.containers != running || u.run != run {
		u.settledSince, u.containers, u.run = now, running, run
	}
	if now.Sub(u.settledSince) < wait {
		return updaters.Observation{Detail: fmt.Sprintf("the node is settled; waiting until it has been so for %s", wait)}, nil
	}
	return updaters.Observation{Done: true}, nil
}

// wait is how long the node must stay settled. Shortly after it starts, another kubelet
// restarts static pods that the one before started; those that it started itself stay.
func (u *SettleUpdater) wait(ctx context.Context) time.Duration {
	pods, err := u.host.StaticPods()
	if err != nil {
		return Quiet
	}
	if len(pods) == 0 {
		return shortQuiet
	}
	started, err := u.host.KubeletStarted(ctx)
	if err != nil {
		return Quiet
	}
	containers, err := u.host.Containers(ctx)
	if err != nil {
		return Quiet
	}
	for _, p := range pods {
		own := func(c cri.Container) bool {
			return c.Running && c.Pod == p.Name+"-"+u.host.Node() && c.Created.After(started)
		}
		if !slices.ContainsFunc(containers, own) {
			return Quiet
		}
	}
	return shortQuiet
}

// problems are sorted, so that the same state always makes the same text.
func (u *SettleUpdater) problems(ctx context.Context, version string) (out []string, running string) {
	note := func(err error) {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	note(u.host.KubeletHealthy(ctx))
	pods, running, err := StaticPods(ctx, u.host)
	note(err)
	out = append(out, pods...)
	if err := u.host.APIReady(ctx); err != nil {
		return append(out, err.Error()), running
	}
	ready, kubelet, err := u.host.NodeReady(ctx)
	note(err)
	switch {
	case err != nil:
	case !ready:
		out = append(out, "the API server does not report the node Ready yet")
	case version != "" && kubelet != version:
		out = append(out, fmt.Sprintf("the API server reports kubelet %s, %s is wanted", kubelet, version))
	}
	slices.Sort(out)
	return out, running
}

// Update waits; it changes nothing.
func (u *SettleUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case o.Done:
		return updaters.Result{Done: true}, nil
	case u.now().Sub(t.Started) > limit:
		return updaters.Fail(v1alpha1.ReasonControlPlaneUnhealthy, "the node has not settled within %s: %s", limit, o.Detail), nil
	}
	r := updaters.InProgress(v1alpha1.ReasonSettling, "%s", o.Detail)
	r.After = observeInterval
	return r, nil
}

// Undo has nothing to undo.
func (u *SettleUpdater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{Done: true}, nil
}

// OnlyWaits is true: the updater only observes.
func (u *SettleUpdater) OnlyWaits() bool { return true }
