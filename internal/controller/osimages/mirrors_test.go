//go:build linux

package osimages

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// nowhere is a registry that cannot be reached: a disconnected site's view of the base's.
const nowhere = "127.0.0.1:1"

func (w *site) mirror(to string) {
	w.t.Helper()
	text := fmt.Sprintf("[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\n", nowhere, to)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "mirrors"}}
	err := w.admin.Get(context.Background(), client.ObjectKeyFromObject(cm), cm)
	cm.Data = map[string]string{"registries.conf": text}
	if err != nil {
		w.create(cm)
		return
	}
	w.must(w.admin.Update(context.Background(), cm))
}

// The base is read where the mirrors say, by refit itself as by a build: a tag that is
// followed, manifests, and what is copied. It is called as it was, so the image is the same
// wherever the base was read.
func TestBasesFromMirrors(t *testing.T) {
	w := newSite(t)
	yes := true
	w.mirror(w.reg.Addr)
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) {
		s.Base.Image, s.Base.Track = nowhere+"/os/base:9", &yes
		s.Mirrors = &v1alpha1.ConfigMapKey{Name: "mirrors", Key: "registries.conf"}
	}), pool(), config())
	o := w.reconcileAndBuild()
	first := w.pool(o)
	if o.Status.Base != nowhere+"/os/base@"+w.base || first.State != "Use" {
		t.Fatalf("%+v %+v", o.Status, ready(o))
	}
	// Another mirror, with the same base: the same image.
	w.reg.Copy("os/base", w.base, "copies/os/base")
	w.reg.Tag("copies/os/base", w.base, "9")
	w.mirror(w.reg.Ref("copies"))
	w.reg.Delete("os/edge", digestOf(first.Image))
	w.reg.Delete("os/base", w.base)
	w.now = w.now.Add(hasEvery)
	if p := w.pool(w.reconcileAndBuild()); p.State != "Use" || p.Image != first.Image {
		t.Errorf("%+v", p)
	}
	// Neither the mirror nor the registry has it: the status reports a transient error, and the image stays.
	w.mirror(w.reg.Ref("empty"))
	w.now = w.now.Add(trackEvery)
	if o := w.reconcile(); ready(o).Reason != v1alpha1.ReasonRegistryUnreachable || w.pool(o).Image != first.Image {
		t.Errorf("%+v %+v", ready(o), w.pool(o))
	}
	// An unsupported registries.conf is reported before a build starts.
	var cm corev1.ConfigMap
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "mirrors"}, &cm))
	cm.Data["registries.conf"] = "[registries.search]\nregistries = ['a']\n"
	w.must(w.admin.Update(context.Background(), &cm))
	if c := ready(w.reconcile()); c.Reason != v1alpha1.ReasonOSImageInvalid || !strings.Contains(c.Message, "spec.mirrors: ConfigMap mirrors: it is a registries.conf of version 1") {
		t.Errorf("%+v", c)
	}
}
