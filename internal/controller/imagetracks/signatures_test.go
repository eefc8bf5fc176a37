//go:build linux

package imagetracks

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// An image of a repository with a rule is no candidate to move to without a valid signature: no
// approval and no label lifts that. With a signature the approval counts. What runs stays.
func TestFollowedImagesNeedTheSignaturesOfTheirRule(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.create(deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 1))
	w.runDigests("app", a)
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	right, other := bundletest.NewPublisher(t), bundletest.NewPublisher(t)
	repository := w.reg.Ref("shop/app")
	w.create(&v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: v1alpha1.TrustPolicySpec{Images: []v1alpha1.ImageRule{{Images: "registry.example/*",
		Cosign: &v1alpha1.CosignTrust{Keys: []v1alpha1.PEMText{{Name: "other", PEM: other.PublicKey()}}}}}}})
	if o := w.reconcile("app"); o.Status.Approved == nil || o.Status.Approved.Digest != a {
		t.Fatalf("a rule for another repository counted: %+v", o.Status)
	}
	w.create(&v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: "publisher"}, Spec: v1alpha1.TrustPolicySpec{Images: []v1alpha1.ImageRule{{Images: w.reg.Ref("shop/*"),
		Cosign: &v1alpha1.CosignTrust{Keys: []v1alpha1.PEMText{{Name: "release", PEM: right.PublicKey()}}}}}}})
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	sign := func(p bundletest.Publisher, repository, digest string) {
		payload, signature := p.Sign(repository, digest)
		w.reg.Sign("shop/app", b, payload, signature)
	}
	refused := func(word string) *v1alpha1.ImageTrack {
		t.Helper()
		w.nextPoll()
		o := w.reconcile("app")
		if c := o.Status.Candidates; len(c) != 1 || c[0].Digest != b || c[0].Decision != v1alpha1.DecisionBlocked || !strings.Contains(c[0].Why, "refused, "+word+":") {
			t.Fatalf("not refused as %s: %+v", word, c)
		}
		if o.Status.Approved == nil || o.Status.Approved.Digest != a {
			t.Fatalf("%s was approved", word)
		}
		return o
	}
	o := refused("Missing")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Approvals = []v1alpha1.TrackApproval{{Digest: b, Serial: o.Status.Candidates[0].Serial}}
	})
	refused("Missing")
	sign(other, repository, b)
	refused("WrongKey")
	sign(right, repository, a)
	refused("WrongDigest")
	sign(right, w.reg.Ref("shop/tool"), b)
	refused("Replayed")

	w.reg.Stop() // a controller that has just started remembers no verdict
	w.restart()
	o = w.reconcile("app")
	if c := o.Status.Candidates; len(c) != 1 || c[0].Decision != v1alpha1.DecisionBlocked || !strings.Contains(c[0].Why, "its signatures cannot be read") {
		t.Fatalf("no registry to ask: %+v", c)
	}
	w.reg.Resume()
	w.restart()

	sign(right, repository, b)
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved == nil || o.Status.Approved.Digest != b {
		t.Fatalf("a signed and approved image is not taken: %+v", o.Status)
	}
}
