//go:build linux

package osimages

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// What an image has is read once for its digest, and kept for the gate while the registry is
// unavailable and after a restart. An image that cannot be read has a message, and is tried again.
func TestFactsOfAnImageAreReadOnce(t *testing.T) {
	w := newSite(t)
	w.joinNode("n1")
	digest := w.reg.Push("os/edge", registrytest.Image{Labels: map[string]string{osimage.LabelBootc: "1"}, Files: map[string]string{"usr/lib/modules/6.12/vmlinuz": "kernel", "usr/bin/kubelet": "elf"}}, "1")
	w.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Image: w.reg.Ref("os/edge@" + digest)}}, pool())
	// A read that takes long does not hold up the reconciler.
	w.door.instead, w.r.facts.wait = refuse(http.StatusForbidden), time.Millisecond
	w.r.facts.turn.Lock() // another image is read
	if p := w.pool(w.reconcile()); p.Facts != "" || p.FactsMessage != "" || p.Prepulled != "0/1" {
		t.Errorf("%+v", p)
	}
	w.r.facts.turn.Unlock()
	for _, read := range w.r.facts.reads {
		<-read.done
	}
	w.r.facts.wait = time.Minute
	if p := w.pool(w.reconcile()); p.Facts != "" || !strings.Contains(p.FactsMessage, "403") {
		t.Fatalf("%q %q", p.Facts, p.FactsMessage)
	}
	w.door.instead = nil
	if p := w.pool(w.reconcile()); p.Facts != "" || p.FactsMessage == "" {
		t.Errorf("the registry was asked again at once: %q %q", p.Facts, p.FactsMessage)
	}
	w.now = w.now.Add(factsRest)
	p := w.pool(w.reconcile())
	if p.Facts == "" || p.FactsMessage != "" {
		t.Fatalf("%q %q", p.Facts, p.FactsMessage)
	}
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: p.Facts}, &c))
	of, facts, err := contents.OpenFacts([]byte(c.Data))
	if err != nil || of != digest || len(facts) != 1 || len(facts[0].Kernels) != 1 || facts[0].Kubelet != "usr/bin/kubelet" || !facts[0].Bootable || facts[0].Read != 0 {
		t.Errorf("%s %+v %v", of, facts, err)
	}
	// Another controller, and no registry.
	w.reg.Stop()
	w.now = w.now.Add(2 * contentRest)
	w.r.facts.reads, w.r.facts.tables = nil, contents.Tables{}
	if again := w.pool(w.reconcile()); again.Facts != p.Facts || again.FactsMessage != "" {
		t.Errorf("%q %q", again.Facts, again.FactsMessage)
	}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: p.Facts}, &c))
}
