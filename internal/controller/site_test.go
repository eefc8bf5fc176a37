package controller_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

func newClient(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	s, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWatcher(t testing.TB, cfg *rest.Config) client.WithWatch {
	t.Helper()
	s, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// site is a cluster of one control-plane node and workers with simulated agents.
type site struct {
	t      *testing.T
	cfg    *rest.Config
	admin  client.Client
	agents map[string]*simAgent
	stop   func()
	// ahead is how far the controller's clock is ahead, in nanoseconds.
	ahead atomic.Int64
	// without are the areas that are not installed; log takes what the controller logs (the
	// test's log, with REFIT_TEST_LOG=1), and health is where its probes are answered.
	without areas.Set
	log     logr.Logger
	health  string
	// metrics is where its metrics are served, of registry; without they are not.
	metrics  string
	registry prometheus.Registerer
	// notifications is the file with their receivers.
	notifications string
	// set is how far its wall clock was set ahead, in seconds, without time passing.
	set atomic.Int64
}

// now is the controller's clock. The wall part of a Time is that of the clock that was set
// (its seconds are bits 30 to 62 of the first word), the monotonic part is not.
func (s *site) now() time.Time {
	t := time.Now().Add(time.Duration(s.ahead.Load()))
	*(*uint64)(unsafe.Pointer(&t)) += uint64(s.set.Load()) << 30
	return t
}

// newSite starts an API server, nodes n1 (control plane), n2, n3, their agents
// and the controller with the rights that it has when installed.
func newSite(t *testing.T, from string) *site {
	t.Helper()
	t.Parallel()
	cfg := apitest.Start(t)
	s := &site{t: t, cfg: cfg, admin: newClient(t, cfg), agents: map[string]*simAgent{}}
	s.populate(from)
	s.startController()
	return s
}

// populate adds the nodes and their agents.
func (s *site) populate(from string) {
	s.t.Helper()
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "kubernetesVersion: " + from + "\n"}})
	for _, n := range []string{"n1", "n2", "n3"} {
		s.addNode(n, n == "n1", from)
	}
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	st := o.DeepCopyObject().(client.Object)
	if err := s.admin.Create(context.Background(), o); err != nil {
		s.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
	st.SetResourceVersion(o.GetResourceVersion())
	st.SetUID(o.GetUID())
	switch o.(type) {
	case *corev1.Node, *corev1.Pod, *policyv1.PodDisruptionBudget:
		if err := s.admin.Status().Update(context.Background(), st); err != nil {
			s.t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (s *site) addNode(name string, cp bool, version string) {
	s.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}, Annotations: map[string]string{}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, OperatingSystem: "linux", Architecture: "amd64"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if cp {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Annotations["test/control-plane"] = version
	}
	s.create(n)
	if cp {
		for _, c := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			p := pod("kube-system", c+"-"+name, name, "registry.k8s.io/"+c+":"+version)
			p.Labels = map[string]string{"tier": "control-plane", "component": c}
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			s.create(p)
		}
	}
	s.agents[name] = newSimAgent(s.t, s.cfg, s.admin, name, nil)
}

func pod(ns, name, node, image string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: image}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// owned makes a pod that a ReplicaSet would make again.
func owned(p *corev1.Pod, labels map[string]string) *corev1.Pod {
	yes := true
	p.Labels = labels
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "1", Controller: &yes}}
	return p
}

// budget protects the pods with app=web; there is no disruption controller, so
// the test says how many disruptions it allows.
func (s *site) budget(allowed int32) {
	s.t.Helper()
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	s.create(b)
	s.allow(allowed)
}

func (s *site) allow(n int32) {
	s.t.Helper()
	var b policyv1.PodDisruptionBudget
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "web"}, &b); err != nil {
		s.t.Fatal(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: n, CurrentHealthy: 1 + n, DesiredHealthy: 1, ExpectedPods: 2}
	if err := s.admin.Status().Update(context.Background(), &b); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) startController() { s.startWith(apitest.As(s.cfg, apitest.ControllerUser), false) }

// startWith starts a controller that, if it is mortal, may end by itself.
func (s *site) startWith(cfg *rest.Config, mortal bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	log := s.log
	if log.GetSink() == nil && os.Getenv("REFIT_TEST_LOG") != "" {
		log = testr.New(s.t)
	}
	registry := s.registry
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	go func() {
		defer wg.Done()
		err := controller.Run(ctx, controller.Options{Config: cfg, Identity: "pod-1", Log: log, Registry: registry, MetricsAddress: s.metrics, LocalRegistries: []string{"127.0.0.1"}, LocalServers: []string{"127.0.0.1"},
			Without: s.without, HealthAddress: s.health, Notifications: s.notifications, Now: s.now})
		if err != nil && ctx.Err() == nil && !mortal {
			s.t.Errorf("the controller ended: %v", err)
		}
	}()
	var once sync.Once
	s.stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	s.t.Cleanup(s.stop)
}

// restartController as a crash and a restart of its container would.
func (s *site) restartController() {
	s.t.Helper()
	s.stop()
	s.startController()
}

func (s *site) plugIn(node string, raw []byte, signed ...string) {
	s.agents[node].set(func(a *simAgent) { a.medium, a.device, a.signed = raw, "/dev/sdb", signed })
}

func (s *site) approve(name, digest string) {
	s.t.Helper()
	s.create(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BundleSpec{Digest: digest}})
}

func (s *site) update(name, digest string, change func(*v1alpha1.ClusterUpdateSpec)) {
	s.t.Helper()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartImmediate}}
	if change != nil {
		change(&u.Spec)
	}
	s.create(u)
}

// edit reads an object and changes it, again if the controller wrote meanwhile.
func (s *site) edit(o client.Object, change func()) {
	s.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return s.admin.Update(context.Background(), o)
	})
	if err != nil {
		s.t.Fatalf("edit %T %s: %v", o, o.GetName(), err)
	}
}

func (s *site) change(name string, change func(*v1alpha1.ClusterUpdateSpec)) {
	s.t.Helper()
	for range 20 {
		var u v1alpha1.ClusterUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &u); err != nil {
			s.t.Fatal(err)
		}
		change(&u.Spec)
		if err := s.admin.Update(context.Background(), &u); err == nil {
			return
		}
	}
	s.t.Fatalf("ClusterUpdate %s cannot be changed", name)
}

// waitUpdate waits until the update is as wanted and returns it.
func (s *site) waitUpdate(name, what string, ok func(*v1alpha1.ClusterUpdate) bool) *v1alpha1.ClusterUpdate {
	s.t.Helper()
	var u v1alpha1.ClusterUpdate
	s.wait(what, func() string {
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &u); err != nil {
			return err.Error()
		}
		if ok(&u) {
			return ""
		}
		return fmt.Sprintf("phase %s, progress %s, current %v, blockers %+v", u.Status.Phase, u.Status.Progress, u.Status.Current, u.Status.Blockers)
	})
	return &u
}

func (s *site) waitBundle(name, what string, ok func(*v1alpha1.Bundle) bool) *v1alpha1.Bundle {
	s.t.Helper()
	var b v1alpha1.Bundle
	s.wait(what, func() string {
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &b); err != nil {
			return err.Error()
		}
		if ok(&b) {
			return ""
		}
		return fmt.Sprintf("%+v", b.Status)
	})
	return &b
}

func (s *site) wait(what string, not func() string) {
	s.t.Helper()
	end := time.Now().Add(patience)
	said := ""
	for interval := 50 * time.Millisecond; time.Now().Before(end); interval = min(interval*5/4, 250*time.Millisecond) {
		if said = not(); said == "" {
			return
		}
		time.Sleep(interval)
	}
	s.t.Fatalf("waited in vain: %s\nlast seen: %s", what, said)
}

func (s *site) node(name string) *corev1.Node {
	s.t.Helper()
	var n corev1.Node
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &n); err != nil {
		s.t.Fatal(err)
	}
	return &n
}

func phase(p string) func(*v1alpha1.ClusterUpdate) bool {
	return func(u *v1alpha1.ClusterUpdate) bool { return u.Status.Phase == p }
}

func blocked(reason string) func(*v1alpha1.ClusterUpdate) bool {
	return func(u *v1alpha1.ClusterUpdate) bool {
		for _, b := range u.Status.Blockers {
			if b.Reason == reason {
				return true
			}
		}
		return false
	}
}

func bundleSays(kind, reason string) func(*v1alpha1.Bundle) bool {
	return func(b *v1alpha1.Bundle) bool {
		c := meta.FindStatusCondition(b.Status.Conditions, kind)
		return c != nil && c.Reason == reason
	}
}
