//go:build linux

package osimages

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// site is a real API server and a real registry; the test says when it is looked.
// The reconcilers have the rights that they have when installed.
type site struct {
	t      *testing.T
	admin  client.Client
	r      *Reconciler
	builds *osbuild.Builds
	events *events.FakeRecorder
	// numbers are those for Prometheus.
	numbers *prometheus.Registry
	reg     *registrytest.Server
	base    string
	now     time.Time
	door    *door
}

// door stands before the registry.
type door struct {
	instead func(*http.Request) *http.Response
}

func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.instead != nil {
		if resp := d.instead(r); resp != nil {
			resp.Request = r
			return resp, nil
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	w := &site{t: t, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), door: &door{}}
	w.reg = registrytest.Start(t)
	cfg := apitest.Start(t)
	w.admin = w.client(cfg)
	ctl := w.client(apitest.As(cfg, apitest.ControllerUser))
	now := func() time.Time { return w.now }
	w.events, w.numbers = events.NewFakeRecorder(1000), prometheus.NewRegistry()
	w.r = &Reconciler{Client: ctl, Live: ctl, Poller: registry.NewPoller(w.door, now), Over: w.door, Now: now, Tell: osbuild.NewEventRecorder(w.events, w.numbers)}
	w.builds = w.r.builds()
	w.base = w.reg.Push("os/base", registrytest.Image{Version: "9", Layers: []string{"kernel", "userland"}}, "9")
	return w
}

func (w *site) client(cfg *rest.Config) client.Client {
	w.t.Helper()
	s := runtime.NewScheme()
	c, err := client.New(cfg, client.Options{Scheme: s})
	w.must(errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), err))
	return c
}

func (w *site) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *site) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		w.must(w.admin.Create(context.Background(), o))
	}
}

// osImage that appends to the base by digest.
func (w *site) osImage(change ...func(*v1alpha1.OSImageSpec)) *v1alpha1.OSImage {
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: w.reg.Ref("os/base@" + w.base)}, Repository: w.reg.Ref("os/edge")}}
	for _, c := range change {
		c(&o.Spec)
	}
	return o
}

func pool() *v1alpha1.UpdatePool {
	return &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}}, OSImage: "edge", Paused: true}}
}

func config(change ...func(*v1alpha1.NodeConfigSpec)) *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"edge"}, KernelArguments: []v1alpha1.KernelArgument{"quiet"}}}
	for _, f := range change {
		f(&c.Spec)
	}
	return c
}

func inline(path, text string) v1alpha1.NodeFile {
	return v1alpha1.NodeFile{Path: path, Contents: &v1alpha1.FileContents{Inline: &text}}
}

// editConfig changes the NodeConfig as an administrator.
func (w *site) editConfig(change func(*v1alpha1.NodeConfigSpec)) {
	w.t.Helper()
	var c v1alpha1.NodeConfig
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &c))
	change(&c.Spec)
	w.must(w.admin.Update(context.Background(), &c))
}

// reconcile runs one reconcile of the OSImage, without the builds.
func (w *site) reconcile() *v1alpha1.OSImage {
	w.t.Helper()
	_, err := w.r.Reconcile(context.Background(), ctrl.Request{})
	w.must(err)
	o := &v1alpha1.OSImage{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, o))
	return o
}

// reconcileAndBuild reconciles the OSImage and the builds until nothing changes any more.
func (w *site) reconcileAndBuild() *v1alpha1.OSImage {
	w.t.Helper()
	for range 4 {
		w.reconcile()
		w.reconcileBuilds()
	}
	return w.reconcile()
}

// reconcileBuilds reconciles every build once.
func (w *site) reconcileBuilds() {
	w.t.Helper()
	for _, b := range w.allBuilds() {
		_, err := w.builds.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: b.Name}})
		w.must(err)
	}
}

// allBuilds returns all builds, the oldest first.
func (w *site) allBuilds() []v1alpha1.OSBuild {
	w.t.Helper()
	var list v1alpha1.OSBuildList
	w.must(w.admin.List(context.Background(), &list))
	sort.SliceStable(list.Items, func(i, j int) bool {
		return list.Items[i].CreationTimestamp.Before(&list.Items[j].CreationTimestamp)
	})
	return list.Items
}

func (w *site) build(name string) *v1alpha1.OSBuild {
	w.t.Helper()
	b := &v1alpha1.OSBuild{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: name}, b))
	return b
}

// pool's part of a status.
func (w *site) pool(o *v1alpha1.OSImage) v1alpha1.OSImagePool {
	w.t.Helper()
	if len(o.Status.Pools) != 1 {
		w.t.Fatalf("pools %+v", o.Status.Pools)
	}
	return o.Status.Pools[0]
}

func ready(o *v1alpha1.OSImage) metav1.Condition {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// report is a node that says what it sees of its OS.
func (w *site) report(name string, fields map[string]string) {
	w.t.Helper()
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.must(w.r.Client.Create(context.Background(), nu)) // only the controller may
	nu.Status.Observed = &v1alpha1.Observed{Fields: fields}
	w.must(w.admin.Status().Update(context.Background(), nu))
}

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
