package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// A watch that continues is compared with the newest resource version; one that follows its
// own list, or asks for all objects itself, is not.
func TestWatchAfterRestore(t *testing.T) {
	t.Parallel()
	yes := true
	for name, tc := range map[string]struct {
		after, newest string
		listed        bool
		initial       *bool
		failed        error
		want          func(error) bool
	}{
		"the API server has more":        {after: "9", newest: "10", want: watched},
		"nothing has changed":            {after: "9", newest: "9", want: watched},
		"the API server is behind":       {after: "10", newest: "9", want: apierrors.IsResourceExpired},
		"the list before was the newest": {after: "10", newest: "9", listed: true, want: watched},
		"the watch starts with a list":   {after: "10", newest: "9", initial: &yes, want: watched},
		"the watch starts with nothing":  {after: "", newest: "9", want: watched},
		"versions that are no numbers":   {after: "b", newest: "a", want: watched},
		"the API server does not answer": {after: "9", newest: "10", failed: errors.New("connection refused"), want: func(err error) bool { return err != nil && !apierrors.IsResourceExpired(err) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
				if o.ResourceVersion != "" || o.Limit != 1 {
					t.Errorf("asked with %+v: such an answer may be older than the datastore", o)
				}
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: tc.newest}}, tc.failed
			}
			whole := func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.ConfigMapList{}, nil }
			r := &restoreAware{list: whole, log: logr.Discard(), source: &toolscache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: waits}}
			if tc.listed {
				if _, err := r.List(t.Context(), metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Watch(t.Context(), metav1.ListOptions{ResourceVersion: tc.after, SendInitialEvents: tc.initial}); !tc.want(err) {
				t.Errorf("the watch answered %v", err)
			}
		})
	}
}

func watched(err error) bool { return err == nil }

// A cache sees what an API server has whose datastore was restored. Two API servers are one
// before and one after: the second counts from a lower number.
func TestCacheAfterRestore(t *testing.T) {
	t.Parallel()
	before, after := twoServers(t)
	for _, s := range []struct {
		*apiServer
		value string
	}{{before, "lost"}, {after, "restored"}} {
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1", Labels: map[string]string{"value": s.value}}}
		must(t, s.nodes.Create(t.Context(), nu))
		must(t, s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"value": s.value}}}))
	}
	site := &movedServer{}
	site.to.Store(before)
	proxy := httptest.NewServer(site)
	defer proxy.Close()
	cfg := &rest.Config{Host: proxy.URL}
	informers, err := nodeUpdates.Informers(cfg, logr.Discard())
	must(t, err)
	c, err := cache.New(cfg, cache.Options{Scheme: before.Scheme(), NewInformer: informers})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = c.Start(ctx) }()
	has := func(want string) {
		t.Helper()
		for name, o := range map[client.ObjectKey]client.Object{
			{Namespace: v1alpha1.NodesNamespace, Name: "n1"}: &v1alpha1.NodeUpdate{},
			{Namespace: "default", Name: "x"}:                &corev1.ConfigMap{},
		} {
			var got string
			for began := time.Now(); got != want; {
				if time.Since(began) > time.Minute {
					t.Fatalf("the cache has %T %s with %q, want %q", o, name, got, want)
				}
				if err := c.Get(ctx, name, o); err == nil {
					got = o.GetLabels()["value"]
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	has("lost")
	site.to.Store(after)
	proxy.CloseClientConnections()
	has("restored")
	// Changes arrive while the numbers are still below the old ones.
	change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"value":"changed"}}}`))
	must(t, after.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}, change))
	must(t, after.nodes.Patch(ctx, &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1"}}, change))
	has("changed")
	if now := after.newest(t); now >= before.newest(t) {
		t.Errorf("the restored API server is at %d already: this shows nothing", now)
	}
}

// apiServer is a real API server behind a handler.
type apiServer struct {
	client.Client
	http.Handler
	// nodes writes NodeUpdates.
	nodes client.Client
}

// movedServer answers as the one that it is moved to.
type movedServer struct{ to atomic.Pointer[apiServer] }

func (m *movedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.to.Load().ServeHTTP(w, r) }

// newest resource version of the datastore.
func (s *apiServer) newest(t *testing.T) int {
	t.Helper()
	var l corev1.NamespaceList
	must(t, s.List(t.Context(), &l, client.Limit(1)))
	n, err := strconv.Atoi(l.ResourceVersion)
	must(t, err)
	return n
}

// restoredBy is how far the second server is behind, at least: more than the test and the
// server itself write.
const restoredBy = 300

// twoServers returns two servers, the second far behind the first.
func twoServers(t *testing.T) (ahead, behind *apiServer) {
	t.Helper()
	ahead, behind = newAPIServer(t), newAPIServer(t)
	a, b := ahead.newest(t), behind.newest(t)
	if a < b {
		ahead, behind, a, b = behind, ahead, b, a
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "count"}}
	must(t, ahead.Create(t.Context(), m))
	for i := a; i < b+restoredBy; i++ {
		m.Data = map[string]string{"i": strconv.Itoa(i)}
		must(t, ahead.Update(t.Context(), m))
	}
	return ahead, behind
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	cfg := apitest.Start(t)
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	nodes, err := client.New(apitest.As(cfg, apitest.ControllerUser), client.Options{Scheme: scheme})
	must(t, err)
	u, err := url.Parse(cfg.Host)
	must(t, err)
	if u.Scheme == "" {
		u = &url.URL{Scheme: "https", Host: cfg.Host}
	}
	p := httputil.NewSingleHostReverseProxy(u)
	p.FlushInterval = -1
	p.Transport, err = rest.TransportFor(cfg)
	must(t, err)
	return &apiServer{Client: c, Handler: p, nodes: nodes}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
