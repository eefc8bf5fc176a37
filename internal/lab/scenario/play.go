package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// mediumSlack is how much larger the stick is than the bundle: real sticks are.
const mediumSlack = 64 << 20

// Play plays the story straight through and measures it.
func (s *Scenario) Play(ctx context.Context) (Result, error) {
	r := Result{Phases: s.phases}
	if err := s.Components(ctx); err != nil {
		return r, err
	}
	if err := s.Up(ctx); err != nil {
		return r, err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	api := WatchAPI(watch, s.apiServer+"/readyz")
	load := WatchWorkload(watch, s.Client, workloadNamespace, workloadLabels())
	before, err := s.versions(ctx)
	if err != nil {
		return r, err
	}
	b, err := s.MakeBundle(ctx, BundleOptions{File: "release.tar", Version: strings.TrimPrefix(s.To, "v")})
	if err != nil {
		return r, err
	}
	if r.PlanDigest, err = s.moveTo(ctx, b); err != nil {
		return r, err
	}
	stop()
	r.BundleDigest, r.BundleBytes = b.Digest, b.Size
	r.APIUnavailableSeconds = api.Unavailable().Seconds()
	r.Workload.Budget = WorkloadBudget
	r.Workload.MinReady, r.Workload.Samples = load.Lowest()
	return s.Measure(ctx, r, b, before)
}

// moveTo brings the bundle to the site and moves the cluster.
func (s *Scenario) moveTo(ctx context.Context, b Bundle) (planDigest string, err error) {
	device, err := s.Insert(ctx, s.MediumNode, b)
	if err != nil {
		return "", err
	}
	if err := s.Install(ctx, b, device); err != nil {
		return "", err
	}
	if err := s.createPool(ctx); err != nil {
		return "", err
	}
	if err := s.Approve(ctx, b); err != nil {
		return "", err
	}
	planDigest, err = s.Prepare(ctx, b)
	if err != nil {
		return "", err
	}
	if err := s.Eject(ctx, s.MediumNode, device); err != nil {
		return "", fmt.Errorf("pulling the stick: %w", err)
	}
	s.report("the stick is removed; every node has pinned all it needs")
	return planDigest, s.Apply(ctx)
}

// createPool makes a pool of all nodes, if the options want one.
func (s *Scenario) createPool(ctx context.Context) error {
	if s.ControlPlane == "" {
		return nil
	}
	p := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}} // an empty selector takes every node
	p.Spec.ControlPlane = s.ControlPlane
	if err := s.Client.Create(ctx, p); err != nil {
		return fmt.Errorf("pool of all nodes: %w", err)
	}
	return nil
}

// Insert writes a bundle onto a stick and plugs that into a node.
func (s *Scenario) Insert(ctx context.Context, node string, b Bundle) (device string, err error) {
	medium, err := s.writeMedium(b)
	if err != nil {
		return "", err
	}
	return s.InsertFile(ctx, node, medium)
}

// InsertFile plugs a file into a node.
func (s *Scenario) InsertFile(ctx context.Context, node, file string) (device string, err error) {
	device, err = s.Lab.Insert(ctx, node, file)
	if err == nil {
		s.media[device] = file
		s.report("the stick is in node %s as %s", node, device)
	}
	return device, err
}

// Eject pulls a stick out of a node.
func (s *Scenario) Eject(ctx context.Context, node, device string) error {
	file := s.media[device]
	delete(s.media, device)
	return s.Lab.Eject(ctx, node, file)
}

// Install installs refit from the bundle; the stick's node is the first contact.
func (s *Scenario) Install(ctx context.Context, b Bundle, device string) error {
	return s.phase("install", func() error {
		var hosts []string
		for _, n := range s.Lab.Nodes() {
			if n == s.MediumNode {
				n += ":" + device
			}
			hosts = append(hosts, n)
		}
		_, err := s.refit(ctx, "install", "--from", b.Path, "--ssh", strings.Join(hosts, ","), "--rsh", s.Rsh())
		return err
	})
}

// Approve waits until the bundle was found, and approves it by its digest.
func (s *Scenario) Approve(ctx context.Context, b Bundle) error {
	return s.phase("approve", func() error {
		if err := s.untilFound(ctx, b.Digest); err != nil {
			return err
		}
		_, err := s.refit(ctx, "approve", b.Digest)
		return err
	})
}

func (s *Scenario) untilFound(ctx context.Context, digest string) error {
	return until(ctx, time.Minute, "the bundle to be found", func() (bool, string) {
		var list v1alpha1.BundleList
		if err := s.Client.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		for _, b := range list.Items {
			if b.Status.Digest == digest && len(b.Status.Locations) > 0 {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d Bundles, none with digest %s on a medium", len(list.Items), digest)
	})
}

// Prepare plans, and waits until every node holds and pins everything.
func (s *Scenario) Prepare(ctx context.Context, b Bundle) (planDigest string, err error) {
	err = s.phase("prepare", func() error {
		out, err := s.refit(ctx, "plan", "--to", b.Digest, "--wait", "--timeout", "5m", "-o", "json")
		if err != nil {
			return err
		}
		var v struct {
			State  string `json:"state"`
			Digest string `json:"digest"`
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		if v.State != "ready" {
			return fmt.Errorf("the plan is %s, want ready: %s", v.State, out)
		}
		planDigest = v.Digest
		return nil
	})
	if err != nil {
		return "", err
	}
	table, err := s.refit(ctx, "plan")
	fmt.Fprint(indent{s.Out}, table)
	return planDigest, err
}

// Apply starts the update and follows it to its end.
func (s *Scenario) Apply(ctx context.Context) error {
	return s.phase("update", func() error {
		out, err := s.refit(ctx, "apply", "--yes", "--timeout", "20m")
		fmt.Fprint(indent{s.Out}, out)
		return err
	})
}

// versions are the kubelet versions by node.
func (s *Scenario) versions(ctx context.Context) (map[string]string, error) {
	var nodes corev1.NodeList
	if err := s.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, n := range nodes.Items {
		out[n.Name] = n.Status.NodeInfo.KubeletVersion
	}
	return out, nil
}

// Measure fills the result from outside and evaluates it.
func (s *Scenario) Measure(ctx context.Context, r Result, b Bundle, before map[string]string) (Result, error) {
	err := s.phase("checks", func() error {
		var nodes corev1.NodeList
		if err := s.Client.List(ctx, &nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			n, err := s.measureNode(ctx, &nodes.Items[i], b)
			if err != nil {
				return err
			}
			n.Before = before[n.Name]
			r.Nodes = append(r.Nodes, n)
		}
		out, err := s.Outside(ctx)
		if err != nil {
			return err
		}
		r.RegistryRequests, r.RuntimeLookUps = out.Requests, out.LookUps
		if r.RegistryRequests > 0 {
			r.Problems = append(r.Problems, fmt.Sprintf("packets left for a registry: %v", out.Details))
		}
		return s.updateTimes(ctx, &r)
	})
	sort.Slice(r.Nodes, func(i, j int) bool { return r.Nodes[i].Name < r.Nodes[j].Name })
	r.From, r.To, r.Phases = s.From, s.To, s.phases
	s.evaluate(&r, b)
	return r, err
}

func (s *Scenario) measureNode(ctx context.Context, n *corev1.Node, b Bundle) (Node, error) {
	out := Node{Name: n.Name, Runtime: n.Status.NodeInfo.ContainerRuntimeVersion, After: n.Status.NodeInfo.KubeletVersion}
	socket, err := s.socket(n.Name)
	if err != nil {
		return out, err
	}
	needed := s.Needed(b, n.Name)
	held, pinned, missing, err := criImages(ctx, socket, needed)
	if err != nil {
		return out, fmt.Errorf("node %s: %w", n.Name, err)
	}
	all, _, _, err := criImages(ctx, socket, b.Images)
	if err != nil {
		return out, fmt.Errorf("node %s: %w", n.Name, err)
	}
	out.NotNeeded = all - held
	if len(missing) > 0 {
		s.report("node %s: %s", n.Name, strings.Join(missing, ", "))
	}
	out.Images, out.Pinned = held, pinned
	var nu v1alpha1.NodeUpdate
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: n.Name}, &nu); err != nil {
		return out, err
	}
	if h := nu.Status.Pins; h != nil {
		out.BytesFromMedium, out.BytesFromPeers = h.BytesFromMedia, h.BytesFromPeers
	}
	return out, nil
}

// updateTimes adds the phases that the ClusterUpdate went through.
func (s *Scenario) updateTimes(ctx context.Context, r *Result) error {
	var list v1alpha1.ClusterUpdateList
	if err := s.Client.List(ctx, &list); err != nil {
		return err
	}
	for _, u := range list.Items {
		if u.Status.PlanDigest != r.PlanDigest {
			r.Problems = append(r.Problems, fmt.Sprintf("ClusterUpdate %s ran plan %s, shown was %s", u.Name, u.Status.PlanDigest, r.PlanDigest))
		}
		for i, p := range u.Status.Phases {
			if i+1 < len(u.Status.Phases) {
				s.phases["clusterUpdate"+p.Phase] += u.Status.Phases[i+1].StartedAt.Sub(p.StartedAt.Time).Seconds()
			}
		}
	}
	return nil
}

// evaluate compares the result with the promises.
func (s *Scenario) evaluate(r *Result, b Bundle) {
	bad := func(format string, a ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, a...)) }
	if len(r.Nodes) != s.Nodes {
		bad("%d nodes, want %d", len(r.Nodes), s.Nodes)
	}
	for _, n := range r.Nodes {
		if n.Before != s.From || n.After != s.To {
			bad("node %s went from %s to %s, want %s to %s", n.Name, n.Before, n.After, s.From, s.To)
		}
		if needed := len(s.Needed(b, n.Name)); n.Images != needed || n.Pinned != needed || n.NotNeeded > 0 {
			bad("node %s holds %d and pins %d of %d images, and holds %d that it does not need", n.Name, n.Images, n.Pinned, needed, n.NotNeeded)
		}
	}
	if r.Workload.Samples == 0 || r.Workload.MinReady < r.Workload.Budget {
		bad("the workload fell to %d ready pods in %d looks, its budget is %d", r.Workload.MinReady, r.Workload.Samples, r.Workload.Budget)
	}
	r.OK = len(r.Problems) == 0
}
