package updateplan

import (
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

var updateGolden = flag.Bool("update", false, "write the golden stories anew")

var target136 = model.Target{Bundle: "sha256:1", Name: "refit-demo", Version: "1.36.3", Kubernetes: "v1.36.3"}

var bothPayloads = []Payload{{Name: "kubeadm", Platform: "linux/amd64"}, {Name: "kubelet", Platform: "linux/amd64"}}

func cp(name, v string, pools ...string) Node {
	return Node{Name: name, ControlPlane: true, Kubelet: v, ControlPlaneVersion: v, Platform: "linux/amd64", Pools: pools}
}

func worker(name, v string, pools ...string) Node {
	return Node{Name: name, Kubelet: v, Platform: "linux/amd64", Pools: pools}
}

// input is a kubeadm cluster at v1.35.4 that goes to v1.36.3.
func input(change func(*Input), nodes ...Node) Input {
	in := Input{Nodes: nodes, Target: target136, Payloads: bothPayloads, KubeadmVersion: "v1.35.4"}
	if change != nil {
		change(&in)
	}
	return in
}

const old = "v1.35.4"

func pools(namesAndOrders ...any) []Pool {
	var out []Pool
	for i := 0; i < len(namesAndOrders); i += 2 {
		out = append(out, Pool{Name: namesAndOrders[i].(string), Order: int32(namesAndOrders[i+1].(int))})
	}
	return out
}

// stories are whole plans, one file each.
var stories = map[string]Input{
	"one control plane and two workers":                          input(nil, cp("n1", old), worker("n2", old), worker("n3", old)),
	"a cluster of one node is not drained":                       input(nil, cp("n1", old)),
	"three control planes move one by one, the first with apply": input(nil, cp("c3", old), cp("c1", old), cp("c2", old), worker("w1", old)),
	"a pool leaves its control plane to kubeadm, with patches": input(func(in *Input) {
		in.Pools = []Pool{{Name: "control", Kubeadm: true, KubeadmPatches: "/etc/kubernetes/patches"}, {Name: "edge", Order: 1}}
	}, cp("n1", old, "control"), worker("n2", old, "edge")),
	"patches are for every step of kubeadm in their pool": input(func(in *Input) {
		in.Pools = []Pool{{Name: "control", KubeadmPatches: "/etc/kubernetes/patches"}, {Name: "edge", Order: 1}}
	}, cp("n1", old, "control"), worker("n2", old, "edge")),
	"components without root are left to kubeadm": input(func(in *Input) { in.Rootless = true }, cp("n1", old), worker("n2", old)),
	"manifests that a person changed are warned of": input(nil,
		with(cp("n1", old), Fields{model.FieldManifestChanges: "kube-apiserver: --audit-log-path, kube-apiserver: volumes.audit"}, nil), worker("n2", old)),
	"changed manifests of a node that stays are not warned of": input(func(in *Input) { in.KubeadmVersion = "v1.36.3" },
		with(cp("n1", "v1.36.3"), Fields{model.FieldManifestChanges: "kube-apiserver: --v"}, nil), worker("n2", old)),
	"a control plane whose dry run fails is left to kubeadm": input(nil,
		with(cp("n1", old), Fields{model.FieldManifestProblem: "error: invalid or incomplete external CA"}, nil), cp("n2", old), worker("n3", old)),
	"every node is a control plane": input(nil, cp("c1", old), cp("c2", old)),
	"pools move in their order": input(func(in *Input) {
		in.Pools = pools("edge", 2, "canary", 1, "edge-too", 2, "control", 0)
	}, cp("n1", old, "control"), worker("n5", old, "edge"), worker("n4", old, "edge-too"), worker("n9", old, "canary")),
	"nodes outside the pools are left alone and said so": input(func(in *Input) { in.Pools = pools("all", 0) },
		cp("n1", old, "all"), worker("n2", old, "all"), worker("n3", old)),
	"a node in two pools is a verdict": input(func(in *Input) { in.Pools = pools("b", 0, "a", 0) },
		cp("n1", old, "b"), worker("n2", old, "b", "a")),
	"workers do not overtake a control plane that is left alone": input(func(in *Input) { in.Pools = pools("workers", 0) },
		cp("n1", old), worker("n2", old, "workers")),
	"kubeadm moves one minor at a time": input(nil, cp("n1", "v1.34.1"), worker("n2", "v1.34.1")),
	"a patch release restarts, and drains no node": input(func(in *Input) {
		in.Target.Kubernetes, in.Target.Version = "v1.35.9", "1.35.9"
	}, cp("n1", old), worker("n2", old)),
	"an older bundle is refused": input(func(in *Input) {
		in.Target.Kubernetes, in.Target.Version = "v1.35.1", "1.35.1"
	}, cp("n1", old), worker("n2", old)),
	"a rollback within a minor is planned": input(func(in *Input) {
		in.Target.Kubernetes, in.Target.Version, in.AllowDowngrade = "v1.35.1", "1.35.1", true
	}, cp("n1", old)),
	"no way back over a minor": input(func(in *Input) {
		in.AllowDowngrade, in.KubeadmVersion = true, "v1.37.0"
	}, cp("n1", "v1.37.0")),
	"an older bundle with the same Kubernetes is refused too": input(func(in *Input) {
		in.LastDone = &model.Target{Name: "refit-demo", Version: "1.36.4"}
	}, cp("n1", old)),
	"a bundle of another name is not compared": input(func(in *Input) {
		in.LastDone = &model.Target{Name: "other", Version: "99.0.0"}
	}, cp("n1", old)),
	"nothing to do":                          input(func(in *Input) { in.KubeadmVersion = "v1.36.3" }, cp("n1", "v1.36.3"), worker("n2", "v1.36.3")),
	"a bundle of images alone moves no node": input(func(in *Input) { in.Target.Kubernetes, in.Payloads = "", nil }, cp("n1", old)),
	"a payload is missing for one platform":  input(nil, cp("n1", old), Node{Name: "n2", Kubelet: old, Platform: "linux/arm64"}),
	"a cluster that kubeadm did not make":    input(func(in *Input) { in.KubeadmVersion = "" }, cp("n1", old), worker("n2", old)),
	"after a half-made apply the first control plane applies again": input(func(in *Input) { in.KubeadmVersion = "v1.36.3" },
		Node{Name: "n1", ControlPlane: true, Kubelet: old, ControlPlaneVersion: "v1.36.3", Platform: "linux/amd64"}, cp("n2", old)),
	"two hops are planned one on the other": input(func(in *Input) { in.Then = []Hop{then137} },
		cp("c1", old), cp("c2", old), worker("w1", old)),
	"workers move over two minors in the last hop": input(func(in *Input) { in.Then, in.WorkersAtEnd = []Hop{then137}, true }, cp("c1", old), worker("w1", old)),
	"the first of two hops is done already":        input(func(in *Input) { in.Then, in.KubeadmVersion = []Hop{then137}, "v1.36.3" }, cp("c1", "v1.36.3"), worker("w1", "v1.36.3")),
	"the rest of a half-updated cluster": input(func(in *Input) { in.KubeadmVersion = "v1.36.3" },
		cp("n1", "v1.36.3"), cp("n2", old), worker("n3", old), worker("n4", "v1.36.3")),
}

func TestStories(t *testing.T) {
	for name, in := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tell(Make(in))
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *updateGolden {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the story has changed (-want +got); -update writes it anew:\n%s", diff)
			}
		})
	}
}

// sentence prints every field of a blocker.
func sentence(v model.Blocker) string {
	text := v.Reason + ": " + v.Message + " | " + v.Fix + " | " + v.Object
	if v.Waiting {
		text += " (waits)"
	}
	return text
}

// tell prints an outcome for people, with every field of it.
func tell(o Outcome) string {
	var b strings.Builder
	for i, hop := range o.Plan.Hops() {
		if i > 0 {
			b.WriteString("then ")
		}
		tellPlan(&b, hop)
	}
	if o.NothingToDo() {
		b.WriteString("nothing to do\n")
	}
	for _, v := range o.Blockers {
		fmt.Fprintf(&b, "NO %s\n", sentence(v))
	}
	for _, v := range o.Warnings {
		fmt.Fprintf(&b, "warning %s\n", sentence(v))
	}
	return b.String()
}

func tellPlan(b *strings.Builder, p model.Plan) {
	t := p.Target
	fmt.Fprintf(b, "plan %s to %s %s (%s), Kubernetes %s\n", p.Version, t.Name, t.Version, t.Bundle, t.Kubernetes)
	for _, n := range p.Nodes {
		fmt.Fprintf(b, "wave %d  %s (%s, pool %s) %s -> %s", n.Wave, n.Node, n.Role, n.Pool, n.From, n.To)
		if n.PointOfNoReturn != "" {
			fmt.Fprintf(b, ", no return from %s", n.PointOfNoReturn)
		}
		b.WriteString("\n")
		for _, s := range n.Steps {
			fmt.Fprintf(b, "  %s: %s %s by %s, %s -> %s, disruption %s, within %d s\n", s.ID, s.Updater, s.Verb, s.By, s.From, s.To, s.Disruption, s.DeadlineSeconds)
			if s.NotReversible != "" {
				fmt.Fprintf(b, "    not reversible: %s\n", s.NotReversible)
			}
			for _, k := range slices.Sorted(maps.Keys(s.Params)) {
				fmt.Fprintf(b, "    param %s=%s\n", k, s.Params[k])
			}
			for _, c := range s.Changes {
				fmt.Fprintf(b, "    %s: %s -> %s\n", c.Path, c.From, c.To)
			}
		}
	}
	for _, n := range p.Nodes {
		for _, note := range n.Notes {
			fmt.Fprintf(b, "note %s: %s\n", n.Node, note)
		}
	}
}

// clusters draws clusters in the middle of anything.
func clusters() *rapid.Generator[Input] {
	versions := []string{"v1.34.0", "v1.35.4", "v1.36.3", "v1.36.0", "v1.37.1"}
	return rapid.Custom(func(t *rapid.T) Input {
		in := Input{Target: target136, Payloads: bothPayloads, KubeadmVersion: rapid.SampledFrom(append(versions, "")).Draw(t, "kubeadm"),
			AllowDowngrade: rapid.Bool().Draw(t, "downgrade")}
		in.Target.Kubernetes = rapid.SampledFrom(append(versions, "")).Draw(t, "target")
		for i := range rapid.IntRange(0, 3).Draw(t, "pools") {
			in.Pools = append(in.Pools, Pool{Name: fmt.Sprintf("p%d", i), Order: int32(rapid.IntRange(0, 2).Draw(t, "order"))})
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			n := Node{Name: fmt.Sprintf("n%d", i), ControlPlane: i == 0 || rapid.Bool().Draw(t, "cp"), Platform: "linux/amd64"}
			n.Kubelet = rapid.SampledFrom(versions).Draw(t, "kubelet")
			if n.ControlPlane {
				n.ControlPlaneVersion = rapid.SampledFrom(versions).Draw(t, "api")
			}
			for _, p := range in.Pools {
				if rapid.IntRange(0, 3).Draw(t, "in") > 0 {
					n.Pools = append(n.Pools, p.Name)
				}
			}
			in.Nodes = append(in.Nodes, n)
		}
		return in
	})
}

// The same facts in another order are the same plan with the same digest
// (promise 3), and the input is not changed.
func TestOrderOfFactsNeverMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := clusters().Draw(t, "cluster")
		before := tell(Make(in))
		other := in
		r := rand.New(rand.NewSource(int64(rapid.Int().Draw(t, "seed"))))
		other.Nodes = append([]Node(nil), in.Nodes...)
		r.Shuffle(len(other.Nodes), func(i, j int) { other.Nodes[i], other.Nodes[j] = other.Nodes[j], other.Nodes[i] })
		for i := range other.Nodes {
			p := append([]string(nil), other.Nodes[i].Pools...)
			r.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
			other.Nodes[i].Pools = p
		}
		other.Pools = append([]Pool(nil), in.Pools...)
		r.Shuffle(len(other.Pools), func(i, j int) { other.Pools[i], other.Pools[j] = other.Pools[j], other.Pools[i] })
		a, b := Make(in), Make(other)
		if a.Plan.Digest() != b.Plan.Digest() || tell(a) != tell(b) || tell(a) != before {
			t.Fatalf("in one order:\n%s\nin another:\n%s", tell(a), tell(b))
		}
	})
}

// framed: who disturbs more than its own component is cordoned around all it
// does, and drained if the pods cannot stay; settle comes last on the node.
func framed(t *rapid.T, nodes int, n model.NodePlan) {
	var ids []string
	worst := 0
	for _, s := range n.Steps {
		ids = append(ids, s.ID)
		if s.ID != "drain" {
			worst = max(worst, rank[s.Disruption])
		}
	}
	cordon, drain := worst >= rank[model.DisruptionRestart], worst >= rank[model.DisruptionDrain] && nodes > 1
	if cordon {
		if ids[0] != "cordon" || ids[len(ids)-1] != "uncordon" {
			t.Fatalf("%s is not cordoned from the first step to the last: %v", n.Node, ids)
		}
		ids = ids[1 : len(ids)-1]
	}
	if drain {
		if ids[0] != "drain" {
			t.Fatalf("%s is not drained first: %v", n.Node, ids)
		}
		ids = ids[1:]
	}
	if ids[len(ids)-1] != "settle" || slices.Contains(ids, "cordon") || slices.Contains(ids, "drain") {
		t.Fatalf("the frame of %s: %v", n.Node, ids)
	}
}

// Every plan has each node once, control planes first and alone in their wave, rising waves
// and at most one apply. Every difference has one owner, the frame is complete, and equal
// plans have equal digests.
func TestEveryPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := clusters().Draw(t, "cluster")
		o := Make(in)
		seen, applies, wave := map[string]bool{}, 0, -1
		perWave := map[int]int{}
		workers := false
		for _, n := range o.Plan.Nodes {
			if seen[n.Node] || n.Wave < wave {
				t.Fatalf("%s twice, or waves fall", n.Node)
			}
			seen[n.Node], wave = true, n.Wave
			perWave[n.Wave]++
			workers = workers || n.Role == model.RoleWorker
			if workers && n.Role == model.RoleControlPlane {
				t.Fatal("a control plane after a worker")
			}
			framed(t, len(in.Nodes), n)
			ids := map[string]bool{}
			for _, s := range n.Steps {
				if ids[s.ID] {
					t.Fatalf("step %s twice", s.ID)
				}
				ids[s.ID] = true
				if s.Verb == "apply" {
					applies++
				}
			}
		}
		for _, n := range o.Plan.Nodes {
			if n.Role == model.RoleControlPlane && perWave[n.Wave] != 1 {
				t.Fatal("a control plane shares its wave")
			}
		}
		if applies > 1 {
			t.Fatalf("%d applies", applies)
		}
		if len(o.Blockers) == 0 && !in.AllowDowngrade {
			for _, n := range o.Plan.Nodes {
				if less(n.To, n.From) {
					t.Fatalf("%s is downgraded without permission", n.Node)
				}
			}
		}
		if diff := cmp.Diff(o.Plan.Digest(), Make(in).Plan.Digest()); diff != "" {
			t.Fatal(diff)
		}
	})
}
