package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/render"
)

// lookAlikes are the distributions of which the lab has a look-alike, with the versions of
// their tests.
var lookAlikes = []struct{ name, from, to string }{
	{distribution.K3s, from + "+k3s1", to + "+k3s1"},
	{distribution.RKE2, from + "+rke2r1", to + "+rke2r1"},
	{distribution.K0s, from + "+k0s.0", to + "+k0s.0"},
}

// heldNode is what results/lookalike-hold-*.json keeps of a node.
type heldNode struct {
	Detected *kube.Detection `json:"detected"`
	Images   int             `json:"images"`
	Pinned   int             `json:"pinned"`
}

// TestLookAlikeHold runs on nodes of the lab's look-alikes of k3s, RKE2 and k0s: real kubelets and
// containerd at the places of these distributions. The agents have no setting. They detect
// the distribution, load and pin the images of a release, and load an image again that was
// removed. A restart of the unit interrupts no container. An image that k0s unpins stays pinned.
func TestLookAlikeHold(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: d.name + "-hold", Distribution: d.name, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"})
			result := map[string]*heldNode{}
			var healed float64
			keepResult(t, "lookalike-hold-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "version": d.from, "bundle": d.to, "nodes": result, "healedSeconds": healed, "steps": played[t.Name()]}
			})
			holdOn(t, s, result, &healed)
		})
	}
}

func holdOn(t *testing.T, s *scenario.Scenario, result map[string]*heldNode, healed *float64) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	row, _ := distribution.ByName(s.Distribution)
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(s.To, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	step(t, "every node loads and pins the images, and the agents have no setting", func(t *testing.T) {
		must(t, s.Install(ctx, b, device))
		must(t, s.Approve(ctx, b))
		for _, n := range s.Lab.Nodes() {
			result[n] = &heldNode{}
			pinnedOn(t, s, n, result[n])
			holdsAll(t, s, n, b)
		}
		must(t, s.Eject(ctx, s.MediumNode, device))
	})
	step(t, "refit-agent detect finds the distribution, and all its places at the defaults", func(t *testing.T) {
		for i, n := range s.Lab.Nodes() {
			out, err := s.Output(ctx, n, "refit-agent", "detect", "--versions", "-o", "json")
			must(t, err)
			d := &kube.Detection{}
			must(t, json.Unmarshal([]byte(out), d))
			result[n].Detected = d
			role := map[bool]string{true: distribution.RoleServer, false: distribution.RoleAgent}[i == 0]
			if d.Distribution != s.Distribution || d.Role != role || d.Version != s.From || len(d.Differences) > 0 {
				t.Errorf("node %s: %s", n, out)
			}
		}
	})
	step(t, "an image that was removed comes back", func(t *testing.T) {
		image := dnsImage(b)
		must(t, s.RemoveImage(ctx, "n3", image))
		removed := time.Now()
		eventually(t, 2*time.Minute, "n3 holds "+image+" again", func() (bool, string) {
			held, err := s.Held(ctx, "n3", b, image)
			return held && err == nil, fmt.Sprint(held, err)
		})
		*healed = time.Since(removed).Seconds()
		holdsAll(t, s, "n3", b)
	})
	if s.Distribution == distribution.K0s {
		step(t, "an image stays pinned when k0s removes its own pin", func(t *testing.T) { k0sUnpins(t, s, "n2", b, row.Places.Images) })
	}
	step(t, "a restart of the unit keeps containers and pins", func(t *testing.T) {
		for i, n := range s.Lab.Nodes() {
			unit := row.Agents[0]
			if i == 0 {
				unit = row.Servers[0]
			}
			before := runningOn(t, s, n)
			must(t, s.Exec(ctx, n, "systemctl", "restart", unit))
			eventually(t, 2*time.Minute, n+" is Ready after the restart", func() (bool, string) {
				_, ready, err := s.Kubelet(ctx, n)
				if ready && err == nil {
					// The unit of k0s does not wait for its parts, so the Node may be Ready from before.
					err = runtimeAnswers(ctx, s, n)
				}
				return ready && err == nil, fmt.Sprint(ready, err)
			})
			if after := runningOn(t, s, n); after != before {
				t.Errorf("node %s ran %s, and now %s", n, before, after)
			}
			holdsAll(t, s, n, b)
		}
	})
	noRequestForARegistry(t, s)
}

// k0sLabel is on images that k0s imported from its folder.
const k0sLabel = "io.k0sproject.ocibundle-paths"

// k0sUnpins copies an archive of the bundle's CoreDNS into the folder from which k0s imports
// images while it runs, and removes it again. k0s removes its pin from the image's tag then,
// even if another program wants it. refit has pinned all names of the image, so that the kubelet keeps it.
func k0sUnpins(t *testing.T, s *scenario.Scenario, node string, b scenario.Bundle, folder string) {
	t.Helper()
	ctx := t.Context()
	labels := func() string {
		out, err := s.Output(ctx, node, "sh", "-c", `k0s ctr -n k8s.io images list | grep "^$0 "`, dnsImage(b))
		must(t, err)
		return out
	}
	if l := labels(); strings.Contains(l, k0sLabel) {
		t.Fatalf("k0s has imported it before: %s", l)
	}
	release, err := components.Release(ctx, to, func(line string) { t.Log(line) })
	must(t, err)
	archive := folder + "/bundle-coredns.tar"
	for _, i := range release.OnEveryNode() {
		if i.Name == dnsImage(b) {
			f, err := os.Open(i.Archive)
			must(t, err)
			defer f.Close()
			must(t, s.Lab.Exec(ctx, node, f, io.Discard, io.Discard, "sh", "-c", `cat > "$0"`, archive))
		}
	}
	eventually(t, 2*time.Minute, "k0s imports and pins "+dnsImage(b), func() (bool, string) {
		l := labels()
		return strings.Contains(l, k0sLabel) && strings.Contains(l, archive), l
	})
	must(t, s.Exec(ctx, node, "rm", archive))
	eventually(t, 2*time.Minute, "k0s removes its pin", func() (bool, string) {
		l := labels()
		return !strings.Contains(l, k0sLabel), l
	})
	holdsAll(t, s, node, b)
}

// runtimeAnswers asks a node's container runtime for its containers.
func runtimeAnswers(ctx context.Context, s *scenario.Scenario, node string) error {
	c, err := s.CRI(node)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Containers(ctx)
	return err
}

// movedNode is what results/lookalike-update-*.json keeps of a move of a node.
type movedNode struct {
	Version string `json:"version"`
	// ContainersKept of the move: the same containers ran before and after.
	ContainersKept bool `json:"containersKept"`
	// Snapshots of etcd that the updater left.
	Snapshots int `json:"snapshots"`
}

// distributionMove is one update of a cluster.
type distributionMove struct {
	To    string                `json:"to"`
	Nodes map[string]*movedNode `json:"nodes"`
	// APIUnavailableSeconds is how long the API server did not answer.
	APIUnavailableSeconds float64 `json:"apiUnavailableSeconds"`
	Seconds               float64 `json:"seconds"`
	// Restore is the rehearsed restore of the server's snapshot after the move.
	Restore *rehearsedRestore `json:"rehearsedRestore"`
}

// rehearsedRestore is what `refit drill --restore` said of a server.
type rehearsedRestore struct {
	Datastore    string `json:"datastore"`
	Bytes        int64  `json:"bytes"`
	Objects      int64  `json:"objects"`
	Milliseconds int64  `json:"milliseconds"`
}

// rehearseRestore has the server rehearse a restore of its snapshot, which has at least the
// objects that a new cluster has. The scratch directory is gone afterwards.
func rehearseRestore(t *testing.T, s *scenario.Scenario) *rehearsedRestore {
	t.Helper()
	const leastObjects = 100
	r, err := s.Run(t.Context(), "drill", "--node", "n1", "--restore", "--yes", "-o", "json")
	must(t, err)
	var v render.RestoreDrillView
	must(t, json.Unmarshal([]byte(r.Stdout), &v))
	if r.Code != 0 || !v.Restored || v.Result.Objects < leastObjects {
		t.Errorf("exit code %d: %s", r.Code, r.Stdout)
	}
	must(t, s.Exec(t.Context(), "n1", "test", "!", "-e", "/var/lib/refit/restore-drill"))
	return &rehearsedRestore{v.Result.Datastore, v.Result.Bytes, v.Result.Objects, v.Result.Milliseconds}
}

// TestLookAlikeUpdate moves three nodes of the lab's look-alikes of k3s, RKE2 and k0s to another
// build of their release, which keeps all containers, and then over a minor version. The
// server saves a snapshot of etcd first. No node asks for a registry, and no pod waits for an
// image.
func TestLookAlikeUpdate(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: d.name + "-move", Distribution: d.name, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"})
			var moves []*distributionMove
			keepResult(t, "lookalike-update-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "from": d.from, "moves": moves, "steps": played[t.Name()]}
			})
			ctx := t.Context()
			must(t, s.Components(ctx))
			must(t, s.Up(ctx))
			for i, to := range []string{nextBuild(d.from), d.to} {
				step(t, "three nodes move to "+to, func(t *testing.T) {
					moves = append(moves, moveDistribution(t, s, to, i == 0))
				})
			}
			noRequestForARegistry(t, s)
		})
	}
}

// nextBuild of v1.35.4+k3s1 is v1.35.4+k3s2.
func nextBuild(version string) string {
	last := len(version) - 1
	return version[:last] + string(version[last]+1)
}

// mostUnavailable is how long the API server of a single server may be unavailable in a move.
const mostUnavailable = 30 * time.Second

func moveDistribution(t *testing.T, s *scenario.Scenario, to string, first bool) *distributionMove {
	t.Helper()
	ctx := t.Context()
	b := distributionBundle(t, s, to)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	if first {
		must(t, s.Install(ctx, b, device))
	}
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Eject(ctx, s.MediumNode, device))
	m := &distributionMove{To: to, Nodes: map[string]*movedNode{}}
	before := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		before[n] = runningOn(t, s, n)
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	conf, err := s.Lab.RESTConfig()
	must(t, err)
	api := scenario.WatchAPI(watch, conf.Host+"/readyz")
	began := time.Now()
	must(t, s.Apply(ctx))
	m.Seconds, m.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	for _, n := range s.Lab.Nodes() {
		m.Nodes[n] = movedTo(t, s, n, to, before[n])
		if first && !m.Nodes[n].ContainersKept {
			t.Errorf("node %s: a restart for another build changed the containers: %s, and now %s", n, before[n], runningOn(t, s, n))
		}
	}
	if m.Nodes["n1"].Snapshots == 0 {
		t.Error("the server saved no snapshot of etcd")
	}
	if m.APIUnavailableSeconds > mostUnavailable.Seconds() {
		t.Errorf("the API server was unavailable for %.1f s, the limit is %s", m.APIUnavailableSeconds, mostUnavailable)
	}
	waitsForImage(t, s)
	m.Restore = rehearseRestore(t, s)
	return m
}

func movedTo(t *testing.T, s *scenario.Scenario, n, to, before string) *movedNode {
	t.Helper()
	version, ready, err := s.Kubelet(t.Context(), n)
	must(t, err)
	nu, err := nodeUpdate(t, s, n)
	must(t, err)
	if o := nu.Status.Observed; o == nil || distribution.Release(version, o.KubeletVersion) != to || !ready {
		t.Errorf("node %s runs %s, ready: %v, want %s; its agent observes %+v", n, version, ready, to, o)
	}
	row, _ := distribution.ByName(s.Distribution)
	program, err := s.Output(t.Context(), n, append([]string{s.Distribution}, row.VersionArgs...)...)
	must(t, err)
	if !slices.Contains(strings.Fields(program), to) {
		t.Errorf("node %s has the program %s", n, program)
	}
	out, err := s.Output(t.Context(), n, "sh", "-c", "ls -d /var/lib/refit/rollback/*/etcd-snapshot/* 2>/dev/null | wc -l")
	must(t, err)
	m := &movedNode{Version: version, ContainersKept: runningOn(t, s, n) == before}
	_, err = fmt.Sscan(out, &m.Snapshots)
	must(t, err)
	return m
}

// waitsForImage fails if a pod waits for an image.
func waitsForImage(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	var pods corev1.PodList
	must(t, s.Client.List(t.Context(), &pods))
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && strings.Contains(w.Reason, "Image") {
				t.Errorf("pod %s/%s: %s: %s", p.Namespace, p.Name, w.Reason, w.Message)
			}
		}
	}
}

// TestLookAlikeTwoHops moves three nodes of the lab's look-alikes of k3s, RKE2 and k0s over two
// minor versions, in one update with one approved plan, from one ordinary stick with two bundles.
// Between the hops every node loses power, with what was not flushed.
func TestLookAlikeTwoHops(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			first := strings.Replace(d.from, from, twoBack, 1)
			s := prepared(t, scenario.Options{Name: "hops-" + d.name, Distribution: d.name, From: first, To: d.to, Nodes: 3, MediumNode: "n2"})
			numbers := map[string]any{}
			keepResult(t, "lookalike-hops-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "from": first, "hop": d.from, "to": d.to, "measured": numbers, "steps": played[t.Name()]}
			})
			ctx := t.Context()
			must(t, s.Components(ctx))
			must(t, s.Up(ctx))
			hop, target := distributionBundle(t, s, d.from), distributionBundle(t, s, d.to)
			device, err := s.Insert(ctx, s.MediumNode, hop)
			must(t, err)
			must(t, s.Install(ctx, hop, device))
			must(t, s.Eject(ctx, s.MediumNode, device))
			twoHops(t, s, hop, target, d.from, d.to, func(what string, value any) { numbers[what] = value })
		})
	}
}

// distributionBundle makes the bundle of a build of the look-alike.
func distributionBundle(t *testing.T, s *scenario.Scenario, version string) scenario.Bundle {
	t.Helper()
	program, err := components.ForLookAlike(t.Context(), version, func(line string) { t.Log(line) })
	must(t, err)
	b, err := s.MakeBundle(t.Context(), scenario.BundleOptions{File: version + ".tar", Version: strings.TrimPrefix(version, "v"), LookAlike: program})
	must(t, err)
	return b
}

// pinnedOn waits until a node has pinned all of its list.
func pinnedOn(t *testing.T, s *scenario.Scenario, node string, result *heldNode) {
	t.Helper()
	eventually(t, 5*time.Minute, node+" holds and pins everything", func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		if err != nil {
			return false, err.Error()
		}
		p := nu.Status.Pins
		if p == nil {
			return false, nu.Status.Message
		}
		result.Images, result.Pinned = int(p.ImagesTotal), int(p.ImagesPinned)
		return p.Content == nu.Spec.Pins && p.ImagesTotal > 0 && p.ImagesPinned == p.ImagesTotal, fmt.Sprintf("%d of %d pinned, %s", p.ImagesPinned, p.ImagesTotal, nu.Status.Message)
	})
}

// dnsImage is the bundle's image of CoreDNS.
func dnsImage(b scenario.Bundle) string {
	for name := range b.Images {
		if strings.Contains(name, "coredns") {
			return name
		}
	}
	return ""
}

// runningOn are the running containers of a node, but for those of refit: its controller
// leaves a node before it moves.
func runningOn(t *testing.T, s *scenario.Scenario, node string) string {
	t.Helper()
	c, err := s.CRI(node)
	must(t, err)
	defer c.Close()
	all, err := c.Containers(t.Context())
	must(t, err)
	ids := map[string]string{}
	for _, x := range all {
		if x.Running && x.Namespace != "refit-system" {
			ids[x.Namespace+"/"+x.Pod+"/"+x.Name] = x.ID
		}
	}
	return fmt.Sprint(ids)
}
