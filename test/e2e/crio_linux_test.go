package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestTwoRuntimes updates a cluster whose last worker has CRI-O and whose other nodes
// have containerd, from one USB stick in one node and without a route to the outside.
// Every image of a real release is on every node, pinned per CRI, under its original
// digest. Pods start from it by tag, by digest and by both. The agent restores it when a
// user deletes it. It stays when the disk is full and the kubelet removes what is neither
// pinned nor used. No node has anything like a registry.
func TestTwoRuntimes(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a whole update of a cluster with two container runtimes takes long: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "crio-e2e", From: from, To: to, Nodes: 3, Runtime: lab.RuntimeMixed, MediumNode: "n2"})
	keepStory(t, "runtimes.json")
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	before := map[string]string{"n1": from, "n2": from, "n3": from}
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	// Two that both runtimes get from the stick alone, and that no worker runs.
	fresh, other := "registry.k8s.io/kube-apiserver:"+to, "registry.k8s.io/kube-controller-manager:"+to
	var plan string
	step(t, "every node holds and pins every image, whichever runtime it has", func(t *testing.T) {
		must(t, s.Install(ctx, b, device))
		must(t, s.Approve(ctx, b))
		plan, err = s.Prepare(ctx, b)
		must(t, err)
		for _, n := range s.Lab.Nodes() {
			holdsAll(t, s, n, b)
			nothingLikeARegistry(t, s, n)
		}
		noRegistryAsked(t, s)
	})
	step(t, "pods start by tag, by digest and by both", func(t *testing.T) {
		threeNames(t, s, b)
		noRegistryAsked(t, s)
	})
	step(t, "a pinned image that is deleted by hand is restored, and an event names the source", func(t *testing.T) {
		for _, n := range s.Lab.Workers() {
			removedByHand(t, s, n, b, fresh, "this node's own copy")
		}
		noRegistryAsked(t, s)
	})
	must(t, s.Eject(ctx, s.MediumNode, device))
	eventually(t, time.Minute, "the stick is gone for its node, too", func() (bool, string) {
		_, said := medium(t, s, s.MediumNode, device)
		return strings.HasPrefix(said, "no medium"), said
	})
	step(t, "one whose blobs are gone as well is restored from a peer", func(t *testing.T) {
		for _, n := range s.Lab.Workers() {
			withoutBlobs(t, s, n, b, other)
			removedByHand(t, s, n, b, other, "from its peers")
			holdsAll(t, s, n, b)
		}
		noRegistryAsked(t, s)
	})
	step(t, "the cluster is updated by the plan that was shown", func(t *testing.T) {
		must(t, s.Apply(ctx))
		r, err := s.Measure(ctx, scenario.Result{PlanDigest: plan, Phases: map[string]float64{},
			Workload: scenario.Workload{Samples: 1, MinReady: 1, Budget: 1}}, b, before)
		must(t, err)
		noRegistryAsked(t, s)
		if !r.OK || r.RegistryRequests > 0 {
			t.Errorf("problems: %v, %d packets for a registry", r.Problems, r.RegistryRequests)
		}
		measured(t, "nodes", r.Nodes)
		if got := r.Nodes[2].Runtime; !strings.HasPrefix(got, "cri-o://") {
			t.Errorf("n3 runs %s", got)
		}
	})
	step(t, "a full disk takes what is neither pinned nor used, and nothing else", func(t *testing.T) {
		for _, n := range s.Lab.Workers() {
			underPressure(t, s, n)
			holdsAll(t, s, n, b)
		}
	})
	step(t, "nothing like a registry is left", func(t *testing.T) {
		for _, n := range s.Lab.Nodes() {
			nothingLikeARegistry(t, s, n)
		}
		noRegistryAsked(t, s)
	})
	// Last: here pods are to ask a registry, and do.
	step(t, "a record of an interrupted pull is repaired", func(t *testing.T) {
		for _, n := range s.Lab.Workers() {
			cutOffPull(t, s, n, pauseOf(t, b))
		}
	})
}

// images of a node as its CRI reports them.
func images(t *testing.T, s *scenario.Scenario, node string) []cri.Image {
	t.Helper()
	c, err := s.CRI(node)
	must(t, err)
	defer c.Close()
	all, err := c.Images(t.Context())
	must(t, err)
	return all
}

// holdsAll: every image of the bundle that the node needs is there under tag and original
// digest, and is pinned.
func holdsAll(t *testing.T, s *scenario.Scenario, node string, b scenario.Bundle) {
	t.Helper()
	have, needed := images(t, s, node), s.Needed(b, node)
	for name, digest := range needed {
		repository := name[:strings.LastIndexByte(name, ':')]
		if !slices.ContainsFunc(have, func(i cri.Image) bool {
			return slices.Contains(i.Tags, name) && slices.Contains(i.Digests, repository+"@"+digest) && i.Pinned
		}) {
			t.Errorf("node %s (%s) does not hold and pin %s with digest %s", node, s.Lab.Runtime(node), name, digest)
		}
	}
	t.Logf("node %s (%s): %d images of the bundle looked for among %d", node, s.Lab.Runtime(node), len(needed), len(have))
}

// nothingLikeARegistry: the agent listens where nodes give each other chunks, and
// nowhere else; no file tells a runtime of a mirror of ours.
func nothingLikeARegistry(t *testing.T, s *scenario.Scenario, node string) {
	t.Helper()
	out, err := s.Output(t.Context(), node, "ss", "-Hltnp")
	must(t, err)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "refit-agent") && !strings.Contains(line, ":18740") {
			t.Errorf("node %s: the agent listens: %s", node, line)
		}
	}
	out, err = s.Output(t.Context(), node, "sh", "-c", "find /etc/containers /etc/containerd -name '*refit*' 2>/dev/null; grep -rl 127.0.0.1 /etc/containers /etc/containerd 2>/dev/null; true")
	must(t, err)
	if strings.TrimSpace(out) != "" {
		t.Errorf("node %s: %s configures a mirror for a runtime", node, out)
	}
}

// noRegistryAsked fails if a packet left for a registry, or if a process other than CRI-O
// resolved the name of one. CRI-O does so for every pull from the node itself. The journal
// of that moment names the process.
func noRegistryAsked(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	o, err := s.Outside(t.Context())
	must(t, err)
	measured(t, "outside", map[string]any{"after": t.Name(), "requests": o.Requests, "lookUpsOfCRIO": o.LookUps})
	if o.Requests == 0 {
		return
	}
	t.Errorf("%d packets for a registry or questions for its name: %v", o.Requests, o.Details)
	const form = "2006-01-02 15:04:05"
	for _, a := range o.Details {
		for _, n := range s.Lab.Nodes() {
			if s.Lab.Address(n) != a.From {
				continue
			}
			out, err := s.Output(t.Context(), n, "journalctl", "--utc", "--no-pager", "-o", "short-iso-precise",
				"--since", a.First.UTC().Add(-2*time.Second).Format(form), "--until", a.Last.UTC().Add(2*time.Second).Format(form))
			t.Logf("%s, %s to %s, node %s (%v):\n%s", a.To, a.First.UTC(), a.Last.UTC(), n, err, out)
		}
	}
}

// threeNames starts a pod on every node for each way to name an image that came
// with the bundle only.
func threeNames(t *testing.T, s *scenario.Scenario, b scenario.Bundle) {
	t.Helper()
	ctx := t.Context()
	tag := pauseOf(t, b)
	repository, digest := tag[:strings.LastIndexByte(tag, ':')], b.Images[tag]
	forms := map[string]string{"tag": tag, "digest": repository + "@" + digest, "both": tag + "@" + digest}
	var pods []*corev1.Pod
	for _, n := range s.Lab.Nodes() {
		for form, image := range forms {
			p := plainPod("named-"+form+"-"+n, n, image)
			must(t, s.Client.Create(ctx, p))
			pods = append(pods, p)
		}
	}
	for _, p := range pods {
		eventually(t, 2*time.Minute, p.Name+" runs", func() (bool, string) {
			now, said := phase(t, s, p)
			return now == corev1.PodRunning, said
		})
		must(t, s.Client.Delete(ctx, p))
	}
}

// underPressure has the kubelet want some more room than there is, and waits
// until every image that is neither pinned nor used has gone.
func underPressure(t *testing.T, s *scenario.Scenario, node string) {
	t.Helper()
	ctx := t.Context()
	unneeded := func() (out []string) {
		c, err := s.CRI(node)
		must(t, err)
		defer c.Close()
		containers, err := c.Containers(ctx)
		must(t, err)
		for _, i := range images(t, s, node) {
			used := slices.ContainsFunc(containers, func(k cri.Container) bool {
				return k.ImageID == i.ID || slices.Contains(i.Digests, k.ImageID) || slices.Contains(i.Tags, k.ImageID)
			})
			if !i.Pinned && !used {
				out = append(out, fmt.Sprint(i.Tags))
			}
		}
		return out
	}
	gone := unneeded()
	if len(gone) == 0 {
		t.Fatalf("node %s has no image that could go: this shows nothing", node)
	}
	t.Logf("node %s: unpinned and unused before: %v", node, gone)
	const file = "/var/lib/kubelet/config.yaml"
	old, err := s.Output(ctx, node, "cat", file)
	must(t, err)
	out, err := s.Output(ctx, node, "stat", "-f", "-c", "%a %S", "/var/lib")
	must(t, err)
	var blocks, size int64
	_, err = fmt.Sscan(out, &blocks, &size)
	must(t, err)
	conf := map[string]any{}
	must(t, yaml.Unmarshal([]byte(old), &conf))
	want := fmt.Sprint(blocks*size + 20<<20)
	conf["evictionHard"] = map[string]string{"nodefs.available": want, "imagefs.available": want}
	conf["imageMinimumGCAge"] = "1s"
	text, err := yaml.Marshal(conf)
	must(t, err)
	must(t, s.Lab.WriteFile(ctx, node, file, text, 0o644))
	must(t, s.Exec(ctx, node, "systemctl", "restart", "kubelet"))
	eventually(t, 5*time.Minute, "the unneeded images have gone from "+node, func() (bool, string) {
		left := unneeded()
		return len(left) == 0, fmt.Sprint(left)
	})
	measured(t, "pressure", map[string]any{"node": node, "runtime": s.Lab.Runtime(node), "gone": gone})
	must(t, s.Lab.WriteFile(ctx, node, file, []byte(old), 0o644))
	must(t, s.Exec(ctx, node, "systemctl", "restart", "kubelet"))
}
