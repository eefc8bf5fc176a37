package tagscmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
)

// The command reads everything from a live cluster that a dump would have. It leaves out
// kinds that the cluster does not have or show. A kind without which there is no answer is
// an error.
func TestLive(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(model.PinSet{Images: []model.PinSetImage{{Name: "reg.example/shop/web:1.0", Digest: d("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	hold := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName("pins", string(data))}, Type: "pins", Data: string(data)}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, Spec: v1alpha1.NodeUpdateSpec{Pins: hold.Name}}
	// Each cluster has objects of its own: the fake one writes into those it is given.
	objects := func() []client.Object {
		return []client.Object{hold.DeepCopy(), nu.DeepCopy(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "a:1"}}}},
			&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "t"}}}
	}
	kindOf := func(l client.ObjectList) string { gvk, _ := clientKind(l, s); return gvk }
	for sentence, c := range map[string]struct {
		fails map[string]error
		note  string
		wrong string
		pods  int
		holds int
	}{
		"everything can be read":                    {pods: 1, holds: 1},
		"a cluster without refit has no such kinds": {fails: map[string]error{"NodeUpdateList": &meta.NoKindMatchError{}, "ImageTrackList": &meta.NoKindMatchError{}}, pods: 1},
		"forbidden kinds are reported":              {fails: map[string]error{"CronJobList": apierrors.NewForbidden(schema.GroupResource{Resource: "cronjobs"}, "", nil)}, note: "cannot list cronjobs", pods: 1, holds: 1},
		"without pods there is no answer":           {fails: map[string]error{"PodList": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)}, wrong: "forbidden"},
		"an unreachable API server is an error":     {fails: map[string]error{"DeploymentList": errors.New("connection refused")}, wrong: "connection refused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			cl := fake.NewClientBuilder().WithScheme(s).WithObjects(objects()...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
					if err := c.fails[kindOf(l)]; err != nil {
						return err
					}
					return w.List(ctx, l, o...)
				}}).Build()
			var said bytes.Buffer
			o, err := readCluster(t.Context(), &inputs.Access{Err: &said}, cl)
			switch {
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("%v, want %s", err, c.wrong)
			case c.wrong == "" && (err != nil || len(o.Pods) != c.pods || len(o.Contents) != c.holds || len(o.Nodes) != 1):
				t.Errorf("%v: %d pods, %d hold lists, %d nodes", err, len(o.Pods), len(o.Contents), len(o.Nodes))
			}
			if !strings.Contains(said.String(), c.note) {
				t.Errorf("said %q", said.String())
			}
		})
	}
}

func clientKind(l client.ObjectList, s *runtime.Scheme) (string, error) {
	kinds, _, err := s.ObjectKinds(l)
	if err != nil {
		return "", err
	}
	return kinds[0].Kind, nil
}
