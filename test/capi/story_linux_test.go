package capi

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

const (
	from = "v1.35.4"
	to   = "v1.36.3"
)

// One cluster, one story, in the order of the list.
func TestClusterAPI(t *testing.T) {
	skipUnlessAsked(t)
	m := start(t)
	sim := simulate(m)
	m.makeCluster()
	before := m.identities()
	m.register()
	m.approve(sim)

	m.uncoveredChangeReplacesNothing(before)
	second := m.secondExtension()
	m.workersWaitForTheControlPlane(sim)
	m.controlPlaneMovesInPlace(sim)
	m.killedInMidUpdate(sim)
	m.workersMoveInPlace(sim, second)

	m.same(before, "after everything")
	m.nothingIsLeft()
}

func (m *management) create(o client.Object) {
	m.t.Helper()
	must(m.t, m.admin.Create(context.Background(), o))
}

func (m *management) list(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk(kind + "List"))
	err := m.admin.List(ctx, l, client.InNamespace("default"))
	return l.Items, err
}

func gvk(kind string) schema.GroupVersionKind {
	g := schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: kind}
	switch {
	case strings.HasPrefix(kind, "Kubeadm") && strings.Contains(kind, "ControlPlane"):
		g.Group = "controlplane." + g.Group
	case strings.HasPrefix(kind, "KubeadmConfig"):
		g.Group = "bootstrap." + g.Group
	case strings.HasPrefix(kind, "Dev"):
		g.Group = "infrastructure." + g.Group
	case kind == "ExtensionConfig":
		g.Group = "runtime." + g.Group
	}
	return g
}

func text(o *unstructured.Unstructured, at ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, at...)
	return s
}

func (m *management) get(kind, name string) *unstructured.Unstructured {
	m.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk(kind))
	must(m.t, m.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, o))
	return o
}

func (m *management) patch(kind, name, merge string) {
	m.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk(kind))
	o.SetNamespace("default")
	o.SetName(name)
	must(m.t, m.admin.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// clusterYAML is a cluster of three and three in-memory machines, with no spare
// machine: what is updated is updated in place.
const clusterYAML = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: default, annotations: {refit.dev/kubeconfig-secret: c1-refit}}
spec:
  clusterNetwork: {services: {cidrBlocks: [10.128.0.0/12]}, pods: {cidrBlocks: [192.168.0.0/16]}, serviceDomain: cluster.local}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: c1}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata: {name: c1, namespace: default, annotations: {test: in-memory}} # its controller writes into the annotations that are there
spec: {backend: {inMemory: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: m, namespace: default}
spec:
  template:
    spec:
      backend:
        inMemory:
          vm: {provisioning: {startupDuration: 1s}}
          node: {provisioning: {startupDuration: 1s}}
          apiServer: {provisioning: {startupDuration: 1s}}
          etcd: {provisioning: {startupDuration: 1s}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: default}
spec:
  replicas: 3
  version: v1.35.4
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: m}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: plain, namespace: default}
spec: {template: {spec: {preKubeadmCommands: [hostname]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: with-motd, namespace: default}
spec: {template: {spec: {preKubeadmCommands: [hostname], files: [{path: /etc/motd, content: "hunter2", permissions: "0644"}]}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: default}
spec:
  clusterName: c1
  replicas: 3
  selector: {matchLabels: {pool: workers}}
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
  template:
    metadata: {labels: {pool: workers}}
    spec:
      clusterName: c1
      version: v1.35.4
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: plain}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: m}
`

// makeCluster waits until all six machines have Nodes and the control plane is
// ready: before, its provider refuses changes.
func (m *management) makeCluster() {
	m.t.Helper()
	m.makeClusterOf(clusterYAML, func(o *unstructured.Unstructured) { m.apply(o) })
}

func (m *management) makeClusterOf(objects string, put func(*unstructured.Unstructured)) {
	m.t.Helper()
	kubeconfig, err := os.ReadFile(m.workload)
	must(m.t, err)
	// Where refit's objects of the workload cluster are: this API server plays it.
	m.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refit-kubeconfigs"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"c1-refit"}, Verbs: []string{"get"}}}})
	m.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refit-kubeconfigs"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "refit-kubeconfigs"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}})
	m.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-refit"}, Data: map[string][]byte{"value": kubeconfig}})
	for doc := range strings.SplitSeq(objects, "\n---\n") {
		o := &unstructured.Unstructured{}
		must(m.t, yaml.Unmarshal([]byte(doc), &o.Object))
		put(o)
	}
	m.wait("six machines that run, and a control plane that is ready", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		var phases []string
		for i := range machines {
			if p := text(&machines[i], "status", "phase"); p != "Running" {
				phases = append(phases, machines[i].GetName()+" "+p)
			}
		}
		ready, _, _ := unstructured.NestedInt64(m.get("KubeadmControlPlane", "cp").Object, "status", "readyReplicas")
		if len(machines) == 6 && len(phases) == 0 && ready == 3 {
			return ""
		}
		return fmt.Sprintf("%d machines, not running %v, %d of 3 control planes ready", len(machines), phases, ready)
	})
	m.say("cluster of 3 and 3 in-memory machines (SIMULATED hosts) up at %s", from)
}

// identities of the machines: UID by name.
func (m *management) identities() map[string]types.UID {
	m.t.Helper()
	machines, err := m.list(m.t.Context(), "Machine")
	must(m.t, err)
	out := map[string]types.UID{}
	for i := range machines {
		out[machines[i].GetName()] = machines[i].GetUID()
	}
	return out
}

func (m *management) same(before map[string]types.UID, when string) {
	m.t.Helper()
	if diff := cmp.Diff(before, m.identities()); diff != "" {
		m.t.Errorf("%s: machines were made or deleted (-before +now): %s", when, diff)
	}
}

// register registers the extension as the example in config/cluster-api does,
// but under an address of loopback.
func (m *management) register() {
	m.t.Helper()
	m.patch2(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, `{"metadata":{"labels":{"refit.dev/in-place":"on"}}}`)
	_, registration, _, err := config.ClusterAPI()
	must(m.t, err)
	for _, o := range registration {
		o.Object["spec"].(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d", frontPort)}
		m.apply(o)
	}
	m.wait("Cluster API has discovered the extension", func() string {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk("ExtensionConfig"))
		if err := m.admin.Get(m.t.Context(), client.ObjectKey{Name: "refit"}, o); err != nil {
			return err.Error()
		}
		handlers, _, _ := unstructured.NestedSlice(o.Object, "status", "handlers")
		if len(handlers) == 3 {
			return ""
		}
		return fmt.Sprint(o.Object["status"])
	})
	m.say("the extension is registered and discovered; its CA came from its Secret")
}

func (m *management) patch2(o client.Object, merge string) {
	m.t.Helper()
	must(m.t, m.admin.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// approve is the person at the site: the bundle's digest is named.
func (m *management) approve(s *simulation) {
	m.t.Helper()
	m.create(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: v1alpha1.BundleSpec{Digest: s.digest}})
	m.wait("all nodes hold the bundle", func() string {
		var b v1alpha1.Bundle
		if err := m.admin.Get(m.t.Context(), client.ObjectKey{Name: "release"}, &b); err != nil {
			return err.Error()
		}
		if b.Status.Loaded == "6/6" && b.Status.KubernetesVersion == to {
			return ""
		}
		return fmt.Sprintf("%+v", b.Status)
	})
	m.say("a bundle with Kubernetes %s is approved and held by 6 nodes", to)
}

func (m *management) plan(name string) *v1alpha1.InPlacePlan {
	p := &v1alpha1.InPlacePlan{}
	_ = m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p)
	return p
}

const workersPlan, controlPlan = "machinedeployment.workers", "kubeadmcontrolplane.cp"

// A change that no updater covers, under Preserve: nothing is updated, nothing is
// replaced, and our own status names the path.
func (m *management) uncoveredChangeReplacesNothing(before map[string]types.UID) {
	m.t.Helper()
	m.patch("MachineDeployment", "workers", `{"spec":{"template":{"spec":{"version":"`+to+`","bootstrap":{"configRef":{"name":"with-motd"}}}}}}`)
	m.wait("the plan names what is not covered", func() string {
		st := m.plan(workersPlan).Status
		if len(st.Uncovered) == 1 && st.Uncovered[0].Path == "bootstrap/spec/files[~1etc~1motd]" && st.From == from && st.To == to {
			return ""
		}
		return fmt.Sprintf("%+v", st)
	})
	m.wait("Cluster API asked again, and again", func() string {
		if n := m.requests("CanUpdateMachineSet", "failure"); n < 4 {
			return fmt.Sprintf("%d refusals", n)
		}
		return ""
	})
	c := meta.FindStatusCondition(m.plan(workersPlan).Status.Conditions, v1alpha1.ConditionCovered)
	if c == nil || c.Reason != v1alpha1.ReasonNoUpdater || !strings.Contains(c.Message, "bootstrap/spec/files[~1etc~1motd]") {
		m.t.Errorf("the condition says why: %+v", c)
	}
	m.same(before, "after an uncovered change")
	machines, err := m.list(m.t.Context(), "Machine")
	must(m.t, err)
	for i := range machines {
		if v := text(&machines[i], "spec", "version"); v != from || machines[i].GetDeletionTimestamp() != nil {
			m.t.Errorf("%s is touched: %s", machines[i].GetName(), v)
		}
	}
	m.say("uncovered change under Preserve: %d refusals, nothing updated, nothing replaced; InPlacePlan says: %s", m.requests("CanUpdateMachineSet", "failure"), c.Message)
}

// second is another extension behind ours: it writes files, as it says.
type second struct {
	*httptest.Server
	mu sync.Mutex
	// updates it was asked for, by machine.
	updates map[string]int
	// shares are the chunk shares that the controller asked it for.
	shares []string
	early  []string
	m      *management
}

// secondExtension registers another updater with refit. The change continues by itself:
// no user touches the MachineDeployment.
func (m *management) secondExtension() *second {
	m.t.Helper()
	s := &second{updates: map[string]int{}, m: m}
	s.Server = httptest.NewTLSServer(s)
	m.t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	m.create(&v1alpha1.Updater{ObjectMeta: metav1.ObjectMeta{Name: "motd"}, Spec: v1alpha1.UpdaterSpec{URL: s.URL, CABundle: string(ca), Paths: []string{"bootstrap/spec/files"}}})
	m.wait("two updaters share the change", func() string {
		st := m.plan(workersPlan).Status
		var names []string
		for _, c := range st.Claims {
			names = append(names, c.Updater)
		}
		if meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionCovered) && slices.Equal(names, []string{"kubernetes", "motd"}) {
			return ""
		}
		return fmt.Sprintf("%+v", st)
	})
	m.say("a second updater is registered: the change is covered by kubernetes and motd, and goes on by itself")
	return s
}

func (s *second) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch hook := strings.Split(strings.TrimPrefix(r.URL.Path, "/"+hooks.APIVersion+"/"), "/")[0]; hook {
	case "discovery":
		data, _ := hooks.Discovery()
		_, _ = w.Write(data)
	case "canupdatemachineset":
		req, err := hooks.CanUpdateMachineSet.Decode(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		files, _, _ := unstructured.NestedSlice(req.Desired[capidiff.Bootstrap], "spec", "template", "spec", "files")
		value, _ := json.Marshal(files)
		data, _ := hooks.CanUpdateMachineSet.EncodeAnswer(hooks.Answer{Patches: map[string]hooks.Patch{capidiff.Bootstrap: {PatchType: hooks.JSONMergePatch,
			Patch: []byte(`{"spec":{"template":{"spec":{"files":` + string(value) + `}}}}`)}}})
		_, _ = w.Write(data)
	case "updatemachine":
		s.update(w, r.Body)
	default:
		http.NotFound(w, r)
	}
}

// update needs two calls a machine: the first begins, the second is done.
func (s *second) update(w io.Writer, body io.Reader) {
	req, err := hooks.UpdateMachine.Decode(body)
	if err != nil {
		return
	}
	o := &unstructured.Unstructured{Object: req.Desired[capidiff.Machine]}
	s.updates[o.GetName()]++
	s.shares = append(s.shares, req.Settings["refit.dev/paths"])
	var n corev1.Node
	node := text(s.m.get("Machine", o.GetName()), "status", "nodeRef", "name")
	if err := s.m.admin.Get(context.Background(), client.ObjectKey{Name: node}, &n); err != nil || n.Status.NodeInfo.KubeletVersion != to {
		s.early = append(s.early, o.GetName())
	}
	a := hooks.Answer{Message: "writes /etc/motd (SIMULATED: there is no host)", RetryAfter: 2}
	if s.updates[o.GetName()] > 1 {
		a = hooks.Answer{}
	}
	data, _ := hooks.UpdateMachine.EncodeAnswer(a)
	_, _ = w.Write(data)
}

// Workers that would be newer than their control plane wait. No other component checks
// this (trap 10).
func (m *management) workersWaitForTheControlPlane(sim *simulation) {
	m.t.Helper()
	var said string
	m.wait("a worker waits, with the reason on the Machine itself", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		for i := range machines {
			if said = condition(&machines[i], "Updating"); strings.Contains(said, "VersionSkew") {
				return ""
			}
		}
		return said + fmt.Sprintf("%+v", m.plan(workersPlan).Status.Machines)
	})
	for name, h := range sim.snapshot() {
		if h != from {
			m.t.Errorf("host %s runs %s before the control plane has moved", name, h)
		}
	}
	m.say("workers wait for their control plane: %s", said)
}

func (s *simulation) snapshot() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, h := range s.hosts {
		out[name] = h.version
	}
	return out
}

func condition(o *unstructured.Unstructured, kind string) string {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if c := c.(map[string]any); c["type"] == kind {
			return fmt.Sprintf("%s %v %v: %v", kind, c["status"], c["reason"], c["message"])
		}
	}
	return ""
}

func (m *management) controlPlaneMovesInPlace(sim *simulation) {
	m.t.Helper()
	m.patch("KubeadmControlPlane", "cp", `{"spec":{"version":"`+to+`"}}`)
	m.allDone(sim, "cluster.x-k8s.io/control-plane", 3, controlPlan)
	m.say("KubeadmControlPlane of 3: every machine moved in place to %s", to)
}

// allDone waits until Cluster API calls the labelled machines done, and checks at
// each look that it does so of none whose host is not there.
func (m *management) allDone(sim *simulation, label string, want int, plan string) {
	m.t.Helper()
	m.wait(fmt.Sprintf("%d machines with %s are done", want, label), func() string {
		// The hosts after the machines: a host may move in between, a machine must not be ahead.
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		done, said := 0, []string{}
		for i := range machines {
			o := &machines[i]
			if _, ok := o.GetLabels()[label]; !ok {
				continue
			}
			if m.isDone(o, sim) {
				done++
			} else {
				said = append(said, o.GetName()+" "+condition(o, "Updating"))
			}
		}
		if done == want {
			return ""
		}
		return fmt.Sprintf("%d of %d; %s; %+v", done, want, strings.Join(said, "; "), m.plan(plan).Status.Machines)
	})
}

const inProgress = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"

// isDone: Cluster API says so. It must never say so of a host that is not there.
func (m *management) isDone(o *unstructured.Unstructured, sim *simulation) bool {
	m.t.Helper()
	_, busy := o.GetAnnotations()[inProgress]
	_, pending := o.GetAnnotations()["runtime.cluster.x-k8s.io/pending-hooks"]
	done := text(o, "spec", "version") == to && !busy && !pending
	if host := sim.version(text(o, "status", "nodeRef", "name")); done && host != to {
		m.t.Fatalf("%s is called done and its host runs %s", o.GetName(), host)
	}
	return done
}

// The extension, both replicas, is killed while a worker runs its steps.
func (m *management) killedInMidUpdate(sim *simulation) {
	m.t.Helper()
	sim.hold(true)
	var node string
	m.wait("a worker is in the middle of its steps", func() string {
		if node = sim.running(); node == "" {
			return "no node runs"
		}
		return ""
	})
	var machine string
	m.wait("the health checker is held back", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		for i := range machines {
			a := machines[i].GetAnnotations()
			if _, skips := a["cluster.x-k8s.io/skip-remediation"]; skips && text(&machines[i], "status", "nodeRef", "name") == node && a[v1alpha1.AnnotationRemediationHeld] != "" {
				machine = machines[i].GetName()
				return ""
			}
		}
		return "no machine is marked"
	})
	m.killRefit()
	m.say("both replicas killed (SIGKILL) while the host of %s runs its steps", machine)
	m.wait("Cluster API sees that no extension answers", func() string {
		if said := condition(m.get("Machine", machine), "Updating"); !strings.Contains(said, "InPlaceUpdateFailed") {
			return said
		}
		return ""
	})
	sim.hold(false) // the host finishes its steps while no replica of the extension runs
	m.wait("the host has moved by itself", func() string { return differs(sim.version(node), to) })
	o := m.get("Machine", machine)
	if _, busy := o.GetAnnotations()[inProgress]; !busy {
		m.t.Errorf("%s is called done while the extension is dead", machine)
	}
	m.say("while it is dead: %s; not called done", condition(o, "Updating"))
	m.startRefit()
	m.say("both replicas started again")
}

func differs(have, want string) string {
	if have == want {
		return ""
	}
	return have
}

func (m *management) workersMoveInPlace(sim *simulation, s *second) {
	m.t.Helper()
	m.allDone(sim, "cluster.x-k8s.io/deployment-name", 3, workersPlan)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.updates) != 3 || len(s.early) > 0 {
		m.t.Errorf("the second updater was asked about %v, too early about %v", s.updates, s.early)
	}
	for _, share := range s.shares {
		if share != "bootstrap/spec/files[~1etc~1motd]" {
			m.t.Errorf("its share is %q", share)
		}
	}
	for i := range m.refit {
		log, err := os.ReadFile(m.refit[i].log())
		must(m.t, err)
		if strings.Contains(string(log), "hunter2") {
			m.t.Errorf("%s logged a body", m.refit[i].name)
		}
	}
	m.say("MachineDeployment of 3: every machine moved in place to %s, the second updater called after the node of each was seen there", to)
}

// nothingIsLeft of refit on the machines, and every host ran once.
func (m *management) nothingIsLeft() {
	m.t.Helper()
	m.wait("no mark is left", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		for i := range machines {
			for key := range machines[i].GetAnnotations() {
				if strings.HasPrefix(key, "refit.dev/") || key == "cluster.x-k8s.io/skip-remediation" {
					return machines[i].GetName() + " " + key
				}
			}
		}
		for _, p := range []string{workersPlan, controlPlan} {
			if st := m.plan(p).Status; len(st.Machines) > 0 {
				return fmt.Sprintf("%s %+v", p, st.Machines)
			}
		}
		return ""
	})
	var updates v1alpha1.ClusterUpdateList
	must(m.t, m.admin.List(m.t.Context(), &updates))
	if len(updates.Items) != 6 {
		m.t.Errorf("%d ClusterUpdates for six machines", len(updates.Items))
	}
	for _, u := range updates.Items {
		if u.Status.Phase != v1alpha1.PhaseDone || u.Status.NodesTotal > 1 {
			m.t.Errorf("%s: %s, %d nodes", u.Name, u.Status.Phase, u.Status.NodesTotal)
		}
	}
	for _, hook := range []string{"CanUpdateMachine", "CanUpdateMachineSet", "UpdateMachine"} {
		m.say("%s since the restart: patches %d, refusals %d, progress %d, done %d", hook, m.requests(hook, "patches"), m.requests(hook, "failure"), m.requests(hook, "progress"), m.requests(hook, "done"))
	}
}
