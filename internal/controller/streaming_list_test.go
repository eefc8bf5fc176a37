package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func kind() streamedKind[*v1alpha1.NodeUpdate] {
	return streamedKind[*v1alpha1.NodeUpdate]{
		Version: v1alpha1.GroupVersion, Resource: "nodeupdates", Namespace: v1alpha1.NodesNamespace,
		New:  func() *v1alpha1.NodeUpdate { return &v1alpha1.NodeUpdate{} },
		Slim: func(nu *v1alpha1.NodeUpdate) { nu.ManagedFields = nil },
	}
}

func objects(n int) *v1alpha1.NodeUpdateList {
	l := &v1alpha1.NodeUpdateList{TypeMeta: metav1.TypeMeta{APIVersion: "refit.dev/v1alpha1", Kind: "NodeUpdateList"}, ListMeta: metav1.ListMeta{ResourceVersion: "77"}}
	for i := range n {
		nu := v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Namespace: v1alpha1.NodesNamespace, ResourceVersion: fmt.Sprint(i + 1),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}}}
		nu.Spec.Trust, nu.Status.Message = "trust", `a "text" with {[brackets]} and "managedFields":[1]`
		nu.Spec.Run = &v1alpha1.NodeRun{Name: "update", Attempt: 2, Steps: []v1alpha1.UpdateStep{{ID: "kubeadm", Params: map[string]string{"managedFields": "é"}, DeadlineSeconds: 600}}}
		nu.Status.Agent = &v1alpha1.AgentInfo{Version: "0.1.0", Heartbeat: &metav1.Time{Time: time.Unix(1700000000, 0)}, Updaters: []string{"kubelet"}}
		nu.Status.FileSystems = []v1alpha1.FileSystem{{Name: "state", FreeBytes: 1 << 60}}
		nu.CreationTimestamp, nu.Labels = metav1.Unix(1700000001, 0), map[string]string{"a": "b"}
		l.Items = append(l.Items, nu)
	}
	return l
}

// What comes out is what a usual list has, for answers that come in any pieces;
// an answer that ends anywhere before its end is an error.
func TestRead(t *testing.T) {
	t.Parallel()
	want := objects(3)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{"at once": strings.NewReader(string(text)), "byte by byte": iotest.OneByteReader(strings.NewReader(string(text)))} {
		got, err := kind().read(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range want.Items {
			w := want.Items[i].DeepCopy()
			w.ManagedFields = nil
			if diff := cmp.Diff(runtime.Object(w), got.Items[i]); diff != "" {
				t.Errorf("%s: object %d: %s", name, i, diff)
			}
		}
		if len(got.Items) != 3 || got.ResourceVersion != "77" {
			t.Errorf("%s: %d objects at %s", name, len(got.Items), got.ResourceVersion)
		}
	}
	for cut := range len(text) {
		if l, err := kind().read(strings.NewReader(string(text[:cut]))); err == nil {
			t.Fatalf("cut after %d of %d bytes: a list of %d objects", cut, len(text), len(l.Items))
		}
	}
}

func TestReadOdd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want int // -1 is an error
	}{
		"no items":                   {`{"metadata":{"resourceVersion":"1"}}`, 0},
		"null items":                 {`{"items":null,"metadata":{"resourceVersion":"1"}}`, 0},
		"unknown fields":             {`{"x":{"items":[1]},"items":[{}],"metadata":{"resourceVersion":"1"}}`, 1},
		"an error as an answer":      {`{"kind":"Status","status":"Failure"}`, -1},
		"a page of a list":           {`{"items":[{}],"metadata":{"resourceVersion":"1","continue":"more"}}`, -1},
		"items that are no list":     {`{"items":{},"metadata":{"resourceVersion":"1"}}`, -1},
		"an object of another shape": {`{"items":[{"spec":7}],"metadata":{"resourceVersion":"1"}}`, -1},
		"no object":                  {`[]`, -1},
		"nothing":                    {``, -1},
	} {
		l, err := kind().read(strings.NewReader(tc.text))
		if (err != nil) != (tc.want < 0) || err == nil && len(l.Items) != tc.want {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

// An informer over HTTP: the first answer is cut off, the second is whole; then
// its store has every object, and nothing of the first was taken for the list.
func TestInformerAsksAgainAfterACut(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(objects(100))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++ // the informer asks one after the other
		asked <- r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		if n == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = w.Write(text[:len(text)/2])
			return
		}
		_, _ = w.Write(text)
	}))
	defer s.Close()
	newInformer, err := kind().Informers(&rest.Config{Host: s.URL}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quiet := &toolscache.ListWatch{WatchFuncWithContext: waits}
	i := newInformer(quiet, &v1alpha1.NodeUpdate{}, time.Hour, toolscache.Indexers{})
	done := make(chan struct{})
	go func() { defer close(done); i.RunWithContext(ctx) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("never there")
	}
	if got := len(i.GetStore().List()); got != 100 {
		t.Errorf("%d objects of 100", got)
	}
	if u := <-asked; !strings.HasPrefix(u, "/apis/refit.dev/v1alpha1/namespaces/refit-nodes/nodeupdates?resourceVersion=0") || strings.Contains(u, "limit") {
		t.Errorf("asked for %s", u)
	}
	cancel()
	<-done
}

func waits(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop)
	return w, nil
}
