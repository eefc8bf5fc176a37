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

// SettleHost is what settle asks of the node.
type SettleHost interface {
	// Node is the node's name.
	Node() string
	// StaticPods are the manifests.
	StaticPods() ([]kube.StaticPod, error)
	// Containers of all pods, and the ID behind an image name.
	Containers(ctx context.Context) ([]cri.Container, error)
	ImageID(ctx context.Context, name string) (string, error)
	// APIReady asks /readyz: of this node's own API server if it has one.
	APIReady(ctx context.Context) error
	// KubeletHealthy asks the kubelet itself.
	KubeletHealthy(ctx context.Context) error
	// NodeReady is what the API server says of the node.
	NodeReady(ctx context.Context) (ready bool, kubelet string, err error)
}

const (
	// Quiet is how long everything must be well without a break.
	Quiet = 8 * time.Second
	// limit is after how long a node that does not settle has failed.
	limit = 15 * time.Minute
	// look is how often it is looked at.
	look = 500 * time.Millisecond
)

// StaticPods says which static pods do not run what their manifest says; and
// a text that changes whenever one of their containers does.
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
			id, problem := runs(containers, p, c, h.Node(), want)
			if problem != "" {
				problems = append(problems, problem)
			}
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return problems, strings.Join(ids, " "), nil
}

func runs(all []cri.Container, p kube.StaticPod, c kube.StaticContainer, node, want string) (id, problem string) {
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

	mu    sync.Mutex
	since time.Time // everything is well since then; zero: it is not
	what  string    // the containers that ran then
	run   string    // the run it was counted in
}

// NewSettle makes the updater.
func NewSettle(h SettleHost) *SettleUpdater { return &SettleUpdater{host: h, now: time.Now} }

// Name is settle.
func (u *SettleUpdater) Name() string { return "settle" }

// Observe looks once, and counts how long everything has been well.
func (u *SettleUpdater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	problems, running := u.problems(ctx, t.Step.To)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if len(problems) > 0 {
		u.since = time.Time{}
		return updaters.Observation{Detail: strings.Join(problems, "; ")}, nil
	}
	run := fmt.Sprintf("%s/%d", t.UID, t.Attempt)
	if u.since.IsZero() || u.what != running || u.run != run {
		u.since, u.what, u.run = now, running, run
	}
	if quiet := now.Sub(u.since); quiet < Quiet {
		return updaters.Observation{Detail: fmt.Sprintf("all is well; waiting until it has been so for %s", Quiet)}, nil
	}
	return updaters.Observation{Done: true}, nil
}

// problems are sorted, so that the same state makes the same text.
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
		out = append(out, "the API server does not call the node Ready yet")
	case version != "" && kubelet != version:
		out = append(out, fmt.Sprintf("the API server says kubelet %s, %s is wanted", kubelet, version))
	}
	slices.Sort(out)
	return out, running
}

// Update waits; there is nothing to do.
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
	r := updaters.Going(v1alpha1.ReasonSettling, "%s", o.Detail)
	r.After = look
	return r, nil
}

// Undo has nothing to take back.
func (u *SettleUpdater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{Done: true}, nil
}

// Watches is true: it only looks.
func (u *SettleUpdater) Watches() bool { return true }
