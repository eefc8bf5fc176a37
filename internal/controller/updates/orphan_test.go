package updates

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// What a node is permitted is taken back when whoever permitted it is no more: an
// update, or an ImageTrack, which has static pods written.
func TestWhoseRunIsAnOrphan(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}}).Build()}
	alive := map[string]bool{"u-1": true}
	for name, c := range map[string]struct {
		run  *v1alpha1.NodeRun
		want bool
	}{
		"nothing is permitted":             {nil, false},
		"of an update that is there":       {&v1alpha1.NodeRun{Name: "to-1-36", UID: "u-1"}, false},
		"of an update that was deleted":    {&v1alpha1.NodeRun{Name: "to-1-35", UID: "u-0"}, true},
		"of a track that is there":         {&v1alpha1.NodeRun{Name: "ImageTrack/proxy", UID: "t-1-aa"}, false},
		"of a track that was deleted":      {&v1alpha1.NodeRun{Name: "ImageTrack/gone", UID: "t-2-aa"}, true},
		"of an update with a track's name": {&v1alpha1.NodeRun{Name: "proxy", UID: "u-9"}, true},
	} {
		got, err := r.orphan(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: c.run}}, alive)
		if err != nil || got != c.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}
