package updateplan

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
)

func TestMinorsBetween(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`v?[0-9]{1,3}(\.[0-9]{1,3}){0,3}(-rc\.1)?(\+k)?`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		va, vb := componentversion.ParseKubernetes(a), componentversion.ParseKubernetes(b)
		if minorsBetween(a, b) != minorsBetween(b, a) {
			t.Fatalf("%s and %s", a, b)
		}
		if va != nil && vb != nil && va.Major() == vb.Major() && minorsBetween(a, b) != max(int(va.Minor())-int(vb.Minor()), int(vb.Minor())-int(va.Minor())) {
			t.Fatalf("minors between %s and %s", a, b)
		}
	})
}

func planMove(from, to string) Outcome {
	return Make(input(func(in *Input) { in.Target.Kubernetes, in.KubeadmVersion = to, from }, cp("n1", from), worker("n2", from)))
}

// A vendor of kubeadm's Kubernetes publishes a release again. The order of its builds is
// unknown: another one is an update, and never a downgrade.
func TestAnotherBuildOfARelease(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"v1.35.4+vendor1", "v1.35.4+vendor2"}, {"v1.35.4+vendor2", "v1.35.4+vendor1"}, {"v1.35.4", "v1.35.4+vendor1"}} {
		o := planMove(c[0], c[1])
		if o.NothingToDo() || len(o.Plan.Nodes) != 2 || len(o.Blockers) > 0 {
			t.Errorf("another build is an update of both nodes: %s", tell(o))
		}
		for _, n := range o.Plan.Nodes {
			for _, s := range n.Steps {
				if s.ID == "kubelet" && s.Disruption != model.DisruptionRestart {
					t.Errorf("another build of a release asks for %s", s.Disruption)
				}
			}
		}
	}
	if o := planMove("v1.35.4+vendor2", "v1.35.4+vendor2"); !o.NothingToDo() {
		t.Errorf("the same build is no update: %s", tell(o))
	}
}

// A server of k3s without etcd, k0s without its build, EKS and other distributions than the node's are refused,
// and never called the same version.
func TestOtherDistributionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to  string
		says      string
		downgrade bool
	}{
		"k0s":                       {from: "v1.35.4+k0s", to: "v1.35.4+k0s.1", says: "its agent has not reported it yet"},
		"EKS":                       {from: "v1.35.4-eks-0a1b2c3", to: "v1.36.0", says: "it runs EKS Hybrid Nodes"},
		"k3s to plain Kubernetes":   {from: "v1.35.4+k3s1", to: "v1.35.4", says: "another distribution, kubeadm"},
		"plain Kubernetes to RKE2":  {from: "v1.35.4", to: "v1.35.4+rke2r1", says: "another distribution, RKE2"},
		"k3s to a minor of another": {from: "v1.35.4+k3s1", to: "v1.36.4+rke2r1", says: "another distribution, RKE2"},
	} {
		for _, kubeadm := range []string{"", c.from} {
			o := Make(input(func(in *Input) { in.Target.Kubernetes, in.KubeadmVersion = c.to, kubeadm }, cp("n1", c.from), worker("n2", c.from)))
			if o.NothingToDo() {
				t.Errorf("%s: nothing to do", name)
			}
			asked := map[string]bool{}
			for _, b := range o.Blockers {
				if b.Reason == reasonNoUpdater && strings.Contains(b.Message, c.says) && b.Fix != "" {
					asked[b.Object] = true
				}
				if b.Reason == reasonOlderThanRunning && !c.downgrade {
					t.Errorf("%s is called a downgrade", name)
				}
			}
			if !asked["Node/n1"] || !asked["Node/n2"] {
				t.Errorf("%s: not both nodes are refused with the distribution: %s", name, tell(o))
			}
			for _, n := range o.Plan.Nodes {
				for _, s := range n.Steps {
					if s.By == model.ByAgent && s.ID != "settle" {
						t.Errorf("%s: %s has the step %s", name, n.Node, s.ID)
					}
				}
			}
		}
	}
}

// k3s, RKE2 and k0s move by the updater supervisor: a build restarts nodes, a minor version drains
// them. Servers need etcd or SQLite, of which a snapshot is saved first.
func TestSupervisorSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to, store, payload string
		disruption               model.Disruption
		final                    bool // the server does not return
		refused                  string
	}{
		"another build of k3s":  {from: "v1.35.4+k3s1", to: "v1.35.4+k3s2", store: model.DatastoreEtcd, payload: "k3s", disruption: model.DisruptionRestart},
		"another build of RKE2": {from: "v1.35.4+rke2r1", to: "v1.35.4+rke2r2", store: model.DatastoreEtcd, payload: "rke2", disruption: model.DisruptionRestart},
		"a minor version":       {from: "v1.35.4+k3s1", to: "v1.36.0+k3s1", store: model.DatastoreEtcd, payload: "k3s", disruption: model.DisruptionDrain, final: true},
		"a database outside":    {from: "v1.35.4+k3s1", to: "v1.35.4+k3s2", store: model.DatastoreOther, payload: "k3s", refused: "neither embedded etcd nor SQLite"},
		"an unknown datastore":  {from: "v1.35.4+k3s1", to: "v1.35.4+k3s2", payload: "k3s", refused: "neither embedded etcd nor SQLite"},
		"a build with SQLite":   {from: "v1.35.4+k3s1", to: "v1.35.4+k3s2", store: model.DatastoreSQLite, payload: "k3s", disruption: model.DisruptionRestart},
		"a minor with SQLite":   {from: "v1.35.4+k3s1", to: "v1.36.0+k3s1", store: model.DatastoreSQLite, payload: "k3s", disruption: model.DisruptionDrain},
		"another build of k0s":  {from: "v1.35.4+k0s.0", to: "v1.35.4+k0s.1", store: model.DatastoreEtcd, payload: "k0s", disruption: model.DisruptionRestart},
		"a minor of k0s":        {from: "v1.35.4+k0s.1", to: "v1.36.0+k0s.0", store: model.DatastoreEtcd, payload: "k0s", disruption: model.DisruptionDrain, final: true},
		"a single k0s":          {from: "v1.35.4+k0s.1", to: "v1.36.0+k0s.0", store: model.DatastoreSQLite, payload: "k0s", disruption: model.DisruptionDrain},
		"without the program":   {from: "v1.35.4+k3s1", to: "v1.35.4+k3s2", store: model.DatastoreEtcd, payload: "kubelet", disruption: model.DisruptionRestart, refused: "brings no k3s"},
	} {
		server := cp("n1", c.from)
		if c.store != "" {
			server.Current = Fields{model.FieldDatastore: c.store}
		}
		o := Make(input(func(in *Input) {
			in.Target.Kubernetes, in.KubeadmVersion, in.Payloads = c.to, "", []Payload{{Name: c.payload}}
		}, server, worker("n2", c.from)))
		if refused := tell(o); c.refused == "" && len(o.Blockers) > 0 || !strings.Contains(refused, c.refused) || (len(o.Blockers) > 0) != (c.refused != "") {
			t.Errorf("%s: want %q: %s", name, c.refused, refused)
		}
		for _, n := range o.Plan.Nodes {
			for _, s := range n.Steps {
				if s.By != model.ByAgent || s.ID == "settle" {
					continue
				}
				if s.Updater != "supervisor" || c.disruption != "" && s.Disruption != c.disruption || (s.NotReversible != "") != (c.final && n.Node == "n1") {
					t.Errorf("%s: %s: %+v", name, n.Node, s)
				}
			}
		}
	}
}

// Controllers of k0s that are no nodes have no agent: the plan names them, and moves nothing.
func TestControllersOfK0sThatAreNoNodes(t *testing.T) {
	t.Parallel()
	server := func(members string) Node {
		n := cp("n1", "v1.35.4+k0s.0")
		n.Current = Fields{model.FieldDatastore: model.DatastoreEtcd, model.FieldServers: members}
		return n
	}
	agent := worker("n2", "v1.35.4+k0s.0")
	for name, c := range map[string]struct {
		nodes []Node
		to    string
		says  string
	}{
		"all are nodes":       {[]Node{server("1"), agent}, "v1.35.4+k0s.1", ""},
		"not yet counted":     {[]Node{server(""), agent}, "v1.35.4+k0s.1", ""},
		"one of three":        {[]Node{server("3"), agent}, "v1.35.4+k0s.1", "k0s has 3 controllers, and 1 of them are nodes"},
		"none":                {[]Node{agent}, "v1.35.4+k0s.1", "no controller of k0s is a node"},
		"nothing to do":       {[]Node{worker("n2", "v1.35.4+k0s.1")}, "v1.35.4+k0s.1", ""},
		"another that is one": {[]Node{worker("n2", "v1.35.4+k3s1")}, "v1.35.4+k3s2", ""},
	} {
		o := Make(input(func(in *Input) {
			in.Target.Kubernetes, in.KubeadmVersion, in.Payloads = c.to, "", []Payload{{Name: "k0s"}, {Name: "k3s"}}
		}, c.nodes...))
		if got := tell(o); (c.says == "") != (len(o.Blockers) == 0) || !strings.Contains(got, c.says) {
			t.Errorf("%s: want %q: %s", name, c.says, got)
		}
	}
}

// A plan with SQLite says what an undo loses. Two servers cannot share its file.
func TestSupervisorWithSQLite(t *testing.T) {
	t.Parallel()
	server := func(name string) Node {
		n := cp(name, "v1.35.4+k3s1")
		n.Current = Fields{model.FieldDatastore: model.DatastoreSQLite}
		return n
	}
	plan := func(to string, nodes ...Node) Outcome {
		return Make(input(func(in *Input) {
			in.Target.Kubernetes, in.KubeadmVersion, in.Payloads = to, "", []Payload{{Name: "k3s"}}
		}, nodes...))
	}
	for to, loses := range map[string]bool{"v1.35.4+k3s2": false, "v1.36.0+k3s1": true} {
		o := plan(to, server("n1"), worker("n2", "v1.35.4+k3s1"))
		for _, n := range o.Plan.Nodes {
			notes := strings.Join(n.Notes, "; ")
			if n.Node == "n1" && (!strings.Contains(notes, "copies the database") || strings.Contains(notes, "are lost") != loses) || n.Node == "n2" && notes != "" {
				t.Errorf("%s: %s has the notes %q", to, n.Node, notes)
			}
		}
	}
	if o := plan("v1.35.4+k3s2", server("n1"), server("n2")); !strings.Contains(tell(o), "one server alone can use") {
		t.Errorf("two servers: %s", tell(o))
	}
	// Where only the node is known, the number of servers is not.
	alone := Question{Node: server("n1"), Current: Fields{PathKubelet: "v1.35.4+k3s1"}, Desired: Fields{PathKubelet: "v1.35.4+k3s2"}}
	if c := Cover([]Updater{supervisorUpdater()}, alone); len(c.Steps) > 0 || len(c.Blockers) != 1 {
		t.Errorf("without the cluster: %+v", c)
	}
}

// On a node whose one unit starts kubelet and container runtime nothing reads refit's drop-ins.
func TestPartsWithoutAUnitAreRefused(t *testing.T) {
	t.Parallel()
	for kubelet, refused := range map[string]bool{"v1.35.4": false, "v1.35.4+k3s1": true, "v1.35.4+rke2r1": true, "v1.35.4+k0s": true} {
		node := worker("n2", kubelet)
		node.ConfigName, node.Config = "c", &model.NodeConfig{SandboxImage: "pause:2", Kubelet: `{"maxPods":50}`}
		q := Question{Node: node, Current: Fields{PathSandboxImage: "pause:1", PathKubeletConfig: "x"}, Desired: node.Config.Fields()}
		c := Cover([]Updater{sandboxUpdater(), kubeletConfigUpdater()}, q)
		if said := fmt.Sprint(c.Blockers); (len(c.Steps) == 0) != refused || (len(c.Blockers) > 0) != refused || refused && !strings.Contains(said, "one unit starts kubelet and container runtime") {
			t.Errorf("%s: %d steps, %s", kubelet, len(c.Steps), said)
		}
	}
}

// However far a bundle is ahead, the plan moves one minor version or none, and names the next
// bundle that is missing.
func TestHopsAreNamed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		build := rapid.SampledFrom([]string{"", "+k3s1", "+rke2r1"}).Draw(t, "build")
		minor, hops := rapid.IntRange(28, 40).Draw(t, "minor"), rapid.IntRange(1, 5).Draw(t, "hops")
		from, to := fmt.Sprintf("v1.%d.4%s", minor, build), fmt.Sprintf("v1.%d.1%s", minor+hops, build)
		server := cp("n1", from)
		server.Current = Fields{model.FieldDatastore: model.DatastoreEtcd}
		o := Make(input(func(in *Input) {
			in.Target.Kubernetes, in.KubeadmVersion = to, from
			in.Payloads = []Payload{{Name: "k3s"}, {Name: "rke2"}, {Name: "kubelet"}, {Name: "kubeadm"}}
		}, server, worker("n2", from)))
		named := map[string]bool{}
		for _, b := range o.Blockers {
			if b.Reason == reasonVersionSkew && b.Fix == fmt.Sprintf("first update with a bundle of v1.%d, or name that bundle as a hop of this update (refit plan --hop)", minor+1) {
				named[b.Object] = true
			}
		}
		if refused := named["Node/n1"] && named["Node/n2"]; refused != (hops > 1) || hops == 1 && len(o.Blockers) > 0 {
			t.Fatalf("%s to %s: %s", from, to, tell(o))
		}
	})
}
