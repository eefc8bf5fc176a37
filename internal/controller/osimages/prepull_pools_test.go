//go:build linux

package osimages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// joinNode adds a node with an agent to the pool.
func (w *site) joinNode(name string) {
	w.t.Helper()
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "edge"}}})
	w.must(w.r.Client.Create(context.Background(), &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}))
	w.setStatus(name, func(st *v1alpha1.NodeUpdateStatus) {})
}

// setStatus changes the status that the agent of a node reports.
func (w *site) setStatus(name string, change func(*v1alpha1.NodeUpdateStatus)) {
	w.t.Helper()
	nu := &v1alpha1.NodeUpdate{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, nu))
	nu.Status.Agent = &v1alpha1.AgentInfo{Version: "1"}
	change(&nu.Status)
	w.must(w.admin.Status().Update(context.Background(), nu))
}

// assignPins writes a pin set into the desired state of a node, as nodedistribution does.
func (w *site) assignPins(name string, images ...model.PinSetImage) string {
	w.t.Helper()
	data, err := json.Marshal(model.PinSet{Images: images})
	w.must(err)
	c := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentPins, string(data))}, Type: v1alpha1.ContentPins, Data: string(data)}
	if err := w.r.Client.Create(context.Background(), c); !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
	nu := &v1alpha1.NodeUpdate{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, nu))
	before := client.MergeFrom(nu.DeepCopy())
	nu.Spec.Pins = c.Name
	w.must(w.r.Client.Patch(context.Background(), nu, before))
	return c.Name
}

func (w *site) set() *v1alpha1.PinnedImageSet {
	w.t.Helper()
	s := &v1alpha1.PinnedImageSet{}
	err := w.admin.Get(context.Background(), client.ObjectKey{Name: SetName("edge")}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return s
}

// The nodes of a pool prepull the image that they will boot. The status of the OSImage counts
// them and reports why the others have not pulled it.
func TestNodesHoldTheImage(t *testing.T) {
	w := newSite(t)
	w.joinNode("n1")
	w.joinNode("n2")
	digest := w.reg.Push("os/edge", registrytest.Image{Layers: []string{"made elsewhere"}}, "1")
	image := w.reg.Ref("os/edge@" + digest)
	w.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Image: image}}, pool())
	is := func(held, reason, says string, missing ...string) {
		t.Helper()
		p := w.pool(w.reconcile())
		if p.Prepulled != held || p.PrepullReason != reason || !strings.Contains(p.PrepullMessage, says) || fmt.Sprint(p.Missing) != fmt.Sprint(missing) {
			t.Errorf("want %s %s %q %v: %s %s %q %v", held, reason, says, missing, p.Prepulled, p.PrepullReason, p.PrepullMessage, p.Missing)
		}
	}
	is("0/2", v1alpha1.ReasonImagesMissing, "they are fetching it", "n1", "n2")
	s := w.set()
	if s == nil {
		t.Fatal("no set has the nodes hold it")
	}
	name := w.reg.Ref("os/edge:refit-" + digest[7:19])
	want := v1alpha1.PinnedImageSetSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}}, FromRegistry: true,
		Groups: []v1alpha1.ImageGroup{{Name: "os", Images: []v1alpha1.PinnedImage{{Name: name, Digest: digest, SizeBytes: s.Spec.Groups[0].Images[0].SizeBytes}}}}}
	if diff := cmp.Diff(want, s.Spec); diff != "" || s.Spec.Groups[0].Images[0].SizeBytes == 0 {
		t.Error(diff, s.Spec.Groups)
	}
	// A node that has staged the image does not need it in its runtime. A report about an older
	// pin set does not count.
	w.setStatus("n1", func(st *v1alpha1.NodeUpdateStatus) {
		st.Observed = &v1alpha1.Observed{Fields: map[string]string{"os/staged": digest}}
	})
	list := w.assignPins("n2", model.PinSetImage{Name: name, Digest: digest, Registry: true}, model.PinSetImage{Name: "r/app:1", Digest: digest[:70] + "0", Bundle: "b"})
	w.setStatus("n2", func(st *v1alpha1.NodeUpdateStatus) {
		st.Pins = &v1alpha1.PinStatus{Content: "hold-older", FetchedReady: 1, FetchedTotal: 1}
	})
	is("1/2", v1alpha1.ReasonImagesMissing, "", "n2")
	// The runtime of the node cannot pull the image, although the registry has it.
	w.setStatus("n2", func(st *v1alpha1.NodeUpdateStatus) {
		st.Pins = &v1alpha1.PinStatus{Content: list, FetchedTotal: 1}
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonImagesMissing, Message: "http, not https", LastTransitionTime: metav1.Now()}}
	})
	is("1/2", v1alpha1.ReasonOSImageNotFetched, "node n2: http, not https", "n2")
	// The reasons distinguish an absent image, a denied request and an unreachable registry.
	w.now = w.now.Add(hasEvery)
	w.door.instead = refuse(http.StatusForbidden)
	is("1/2", v1alpha1.ReasonRegistryUnauthorized, "403", "n2")
	w.now = w.now.Add(hasEvery)
	w.door.instead = refuse(http.StatusNotFound)
	is("1/2", v1alpha1.ReasonOSImageAbsent, "it has no "+digest, "n2")
	w.door.instead = nil
	w.reg.Stop()
	w.now = w.now.Add(hasEvery)
	is("1/2", v1alpha1.ReasonRegistryUnreachable, "", "n2")
	w.reg.Resume()
	w.now = w.now.Add(2 * hasEvery)
	w.setStatus("n2", func(st *v1alpha1.NodeUpdateStatus) {
		st.Pins, st.Conditions = &v1alpha1.PinStatus{Content: list, FetchedReady: 1, FetchedTotal: 1}, nil
	})
	is("2/2", "", "")
	// A bundle has the image: no registry is asked, and no node pulls it.
	w.assignPins("n2", model.PinSetImage{Name: "r/os:1", Digest: digest, Bundle: "b"})
	w.reg.Requests()
	w.now = w.now.Add(hasEvery)
	is("1/2", v1alpha1.ReasonImagesMissing, "", "n2")
	if got := w.reg.Requests(); len(got) != 0 || w.set() != nil {
		t.Errorf("a registry is asked for an image of a bundle: %v %v", got, w.set())
	}
	// The pool wants no image any more.
	w.assignPins("n2")
	w.reconcile()
	if w.set() == nil {
		t.Error("the bundle is gone, and no node pulls the image")
	}
	var p v1alpha1.UpdatePool
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &p))
	p.Spec.OSImage = ""
	w.must(w.admin.Update(context.Background(), &p))
	w.reconcile()
	if w.set() != nil {
		t.Error("the set stays")
	}
}
