//go:build linux

package imagetracks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// calls counts what goes over the wire.
type calls struct {
	next http.RoundTripper

	mu    sync.Mutex
	reads int
	other []string
	// instead answers in the place of who is asked, unless it returns nil.
	instead func(*http.Request) *http.Response
}

// set replaces the server that answers; nil is the real one.
func (c *calls) set(instead func(*http.Request) *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead = instead
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	instead := c.instead
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		c.reads++
	} else {
		c.other = append(c.other, r.Method+" "+r.URL.Path)
	}
	c.mu.Unlock()
	if instead != nil {
		if answer := instead(r); answer != nil {
			return answer, nil
		}
	}
	return c.next.RoundTrip(r)
}

// takeCounts returns the number of reads and the other requests since the last call.
func (c *calls) takeCounts() (reads int, other []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads, other = c.reads, c.other
	c.reads, c.other = 0, nil
	return reads, other
}

// testCluster is a real API server and a real registry. The test plays kubelets,
// Deployment controller and agents; the reconciler has the rights that it has
// when installed.
type testCluster struct {
	t     *testing.T
	admin client.Client
	ctl   client.Client
	r     *Reconciler
	reg   *registrytest.Server
	api   *calls
	asked *calls
	now   time.Time
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	t.Parallel()
	return newTestClusterOf(t, registrytest.Start(t))
}

func newTestClusterOf(t *testing.T, reg *registrytest.Server) *testCluster {
	t.Helper()
	w := &testCluster{t: t, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), asked: &calls{next: http.DefaultTransport}, api: &calls{}}
	w.reg = reg
	cfg := apitest.Start(t)
	w.admin = w.client(cfg)
	as := apitest.As(cfg, apitest.ControllerUser)
	as.Wrap(func(next http.RoundTripper) http.RoundTripper { w.api.next = next; return w.api })
	w.ctl = w.client(as)
	w.restart()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	}
	w.api.takeCounts()
	return w
}

// restart is a controller that has forgotten everything.
func (w *testCluster) restart() {
	now := func() time.Time { return w.now }
	w.r = &Reconciler{Client: w.ctl, Live: w.ctl, Poller: registry.NewPoller(w.asked, now), Now: now}
}

func (w *testCluster) client(cfg *rest.Config) client.Client {
	w.t.Helper()
	s := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(s))
	w.must(v1alpha1.AddToScheme(s))
	c, err := client.New(cfg, client.Options{Scheme: s})
	w.must(err)
	return c
}

func (w *testCluster) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCluster) create(o client.Object) {
	w.t.Helper()
	st := o.DeepCopyObject().(client.Object)
	w.must(w.admin.Create(context.Background(), o))
	st.SetResourceVersion(o.GetResourceVersion())
	st.SetUID(o.GetUID())
	switch o.(type) {
	case *corev1.Pod, *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		w.must(w.admin.Status().Update(context.Background(), st))
	}
}

// reconcile runs one reconcile of a track and returns it.
func (w *testCluster) reconcile(name string) *v1alpha1.ImageTrack {
	w.t.Helper()
	_, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
	w.must(err)
	return w.track(name)
}

func (w *testCluster) track(name string) *v1alpha1.ImageTrack {
	w.t.Helper()
	o := &v1alpha1.ImageTrack{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: name}, o))
	return o
}

// editSpec changes a track as an administrator.
func (w *testCluster) editSpec(name string, change func(*v1alpha1.ImageTrackSpec)) {
	w.t.Helper()
	o := w.track(name)
	change(&o.Spec)
	w.must(w.admin.Update(context.Background(), o))
}

// nextPoll moves the clock past the next poll.
func (w *testCluster) nextPoll() { w.now = w.now.Add(2 * time.Hour) }

// grant lets the controller write in a namespace, as the reason says.
func (w *testCluster) grant(namespace string) {
	w.t.Helper()
	w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: WriterRole},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: WriterRole},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.FieldOwnerController}}})
	for range 1200 { // the API server learns of it a moment later
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: v1alpha1.GroupVersion.Group, Resource: "staticpods"}}}
		w.must(w.ctl.Create(context.Background(), review))
		if review.Status.Allowed {
			w.api.takeCounts()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatal("the right to write is not there")
}

// simulateAgents plays the controller and the agents: the desired state of every node of the
// set gets its images, and the agents report them as pulled if held is true.
func (w *testCluster) simulateAgents(name string, held bool) {
	w.t.Helper()
	ctx := context.Background()
	var set v1alpha1.PinnedImageSet
	w.must(w.admin.Get(ctx, client.ObjectKey{Name: "track-" + name}, &set))
	l := model.PinSet{}
	for _, i := range set.Spec.Groups[0].Images {
		l.Images = append(l.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Registry: set.Spec.FromRegistry})
	}
	data, err := json.Marshal(l)
	w.must(err)
	c, err := ssa.MakeContent(ctx, w.ctl, v1alpha1.ContentPins, string(data))
	w.must(err)
	for _, node := range set.Spec.NodeSelector.MatchExpressions[0].Values {
		_, err := ssa.NodeSpec(ctx, w.ctl, v1alpha1.FieldOwnerController, node, &v1alpha1.NodeUpdateSpec{Pins: c.Name})
		w.must(err)
		n := int32(len(l.Images))
		h := &v1alpha1.PinStatus{Content: c.Name, FetchedTotal: n, FetchedReady: n}
		if !held {
			h.FetchedReady = n - 1
		}
		w.must(ssa.Status(ctx, w.admin, ssa.Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: node},
			&v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{Version: "test", Heartbeat: &metav1.Time{Time: w.now}}, Pins: h}))
	}
	w.api.takeCounts()
}

func podTemplate(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}}
}

func deployment(name, image string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: podTemplate(name, image)}}
}

func rollingUpdate(unavailable, surge *intstr.IntOrString) *appsv1.RollingUpdateDeployment {
	return &appsv1.RollingUpdateDeployment{MaxUnavailable: unavailable, MaxSurge: surge}
}

// runDigests makes the pods of an app run digests, one per node, and completes the rollout of
// its Deployment.
func (w *testCluster) runDigests(app string, digests ...string) {
	w.t.Helper()
	ctx := context.Background()
	for i, d := range digests {
		name := fmt.Sprintf("%s-%d", app, i)
		var p corev1.Pod
		if w.admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: name}, &p) != nil {
			p = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}},
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i+1), Containers: []corev1.Container{{Name: "app", Image: w.reg.Ref("shop/app:2.6.2-rev1")}}}}
			w.must(w.admin.Create(ctx, &p))
		}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true,
			Image: p.Spec.Containers[0].Image, ImageID: w.reg.Ref("shop/app@" + d)}}}
		w.must(w.admin.Status().Update(ctx, &p))
	}
	w.setRollout(app, int32(len(digests)), true)
}

// setRollout sets the status of a Deployment: its rollout is complete if settled is true.
func (w *testCluster) setRollout(app string, n int32, settled bool) {
	w.t.Helper()
	var d appsv1.Deployment
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: app}, &d))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if !settled {
		d.Status.UpdatedReplicas, d.Status.AvailableReplicas, d.Status.ReadyReplicas = 1, n-1, n-1
	}
	w.must(w.admin.Status().Update(context.Background(), &d))
}

// image of a Deployment's template.
func (w *testCluster) image(app string) string {
	w.t.Helper()
	var d appsv1.Deployment
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: app}, &d))
	return d.Spec.Template.Spec.Containers[0].Image
}

func (w *testCluster) setImage(app, image string) {
	w.t.Helper()
	var d appsv1.Deployment
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: app}, &d))
	d.Spec.Template.Spec.Containers[0].Image = image
	w.must(w.admin.Update(context.Background(), &d))
}

// checkCondition checks the reason of a condition and that its message has the words.
func checkCondition(t *testing.T, o *v1alpha1.ImageTrack, kind, reason string, words ...string) {
	t.Helper()
	for _, c := range o.Status.Conditions {
		if c.Type != kind {
			continue
		}
		if c.Reason != reason {
			t.Fatalf("%s is %s (%s), want %s", kind, c.Reason, c.Message, reason)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				t.Fatalf("%s %s does not say %q: %s", kind, reason, word, c.Message)
			}
		}
		return
	}
	t.Fatalf("no condition %s in %+v", kind, o.Status)
}

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
