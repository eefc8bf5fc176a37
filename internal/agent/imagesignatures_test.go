package agent

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

const (
	signedApp  = "registry.example/app:1"
	unruledApp = "registry.k8s.io/pause:3.10.2"
)

// signedRule wants the publisher's signature of the images of registry.example.
func signedRule(p bundletest.Publisher) v1alpha1.TrustPolicy {
	return v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: "publisher"}, Spec: v1alpha1.TrustPolicySpec{Images: []v1alpha1.ImageRule{{Images: "registry.example/*",
		Cosign: &v1alpha1.CosignTrust{Keys: []v1alpha1.PEMText{{Name: "release", PEM: p.PublicKey()}}}}}}}
}

// appDigest is the digest of the image with a rule.
func appDigest(t *testing.T) string {
	t.Helper()
	for _, i := range bundletest.Make(t, bundletest.Tiny()).Meta.Images {
		if i.Name == signedApp {
			return i.Digest
		}
	}
	t.Fatal("the bundle has no " + signedApp)
	return ""
}

func withProofs(archive []byte) bundletest.Spec {
	s := bundletest.Tiny()
	if archive != nil {
		s.Payloads = append(s.Payloads, bundletest.Payload{Name: imageproof.PayloadName, Content: archive})
	}
	return s
}

// refusedAs is a status whose condition begins with the word of the refusal.
func refusedAs(word string) func(*v1alpha1.NodeUpdateStatus) bool {
	return func(s *v1alpha1.NodeUpdateStatus) bool {
		for _, c := range s.Conditions {
			if c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonImageRefused {
				return strings.HasPrefix(c.Message, word+": node n1 refuses image "+signedApp)
			}
		}
		return false
	}
}

// An image whose repository has a rule is loaded only with a valid signature in its bundle. The
// words are those of refit bundle create --verify. Images without a rule are loaded as before.
func TestImagesNeedTheSignaturesOfTheirRule(t *testing.T) {
	app := appDigest(t)
	right, other := bundletest.NewPublisher(t), bundletest.NewPublisher(t)
	for i, c := range []struct{ name, word string }{{"a valid signature", ""}, {"no archive", "Missing"}, {"another key", "WrongKey"}, {"another digest", "WrongDigest"},
		{"a signature of another image", "Replayed"}, {"attached to another digest", "Missing"}, {"a damaged archive", "Damaged"}} {
		t.Run(c.name, func(t *testing.T) {
			archive := map[string]func() []byte{
				"a valid signature": func() []byte { return right.Archive(signedApp, app, "registry.example/app", app) },
				"no archive":        func() []byte { return nil },
				"another key":       func() []byte { return other.Archive(signedApp, app, "registry.example/app", app) },
				"another digest": func() []byte {
					return right.Archive(signedApp, app, "registry.example/app", "sha256:"+strings.Repeat("0", 64))
				},
				"a signature of another image": func() []byte { return right.Archive(signedApp, app, "registry.example/tool", app) },
				"attached to another digest": func() []byte {
					return right.Archive(signedApp, "sha256:"+strings.Repeat("1", 64), "registry.example/app", app)
				},
				"a damaged archive": func() []byte { return []byte("no tar") },
			}[c.name]()
			path, h := mediumWith(t, withProofs(archive), 1)
			n := newTestNode(t, "n1", 18060+i, path)
			n.api.says(func(p *people) { p.policies = []v1alpha1.TrustPolicy{signedRule(right)} })
			pins := everything(h)
			pins.Payloads = pins.Payloads[:0]
			approve(t, h, pins, n)
			if c.word == "" {
				n.reported("all images are pinned", held)
				return
			}
			n.reported("refused as "+c.word, refusedAs(c.word))
			n.reported("the image without a rule is pinned", func(s *v1alpha1.NodeUpdateStatus) bool { return s.Pins != nil && s.Pins.ImagesPinned == 1 })
			if n.runtime.has(signedApp) || !n.runtime.has(unruledApp) {
				t.Error("the refused image was loaded, or the other one was not")
			}
		})
	}
}

// An image that others loaded is not pinned either; one that was pinned before a rule came stays.
func TestRulesCountForImagesThatAreNotPinnedYet(t *testing.T) {
	right := bundletest.NewPublisher(t)
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	t.Run("loaded by others", func(t *testing.T) {
		n := newTestNode(t, "n1", 18070, path)
		n.runtime.mu.Lock()
		n.runtime.images[signedApp] = appDigest(t)
		n.runtime.mu.Unlock()
		// The node read both kinds before the rule was made and the bundle approved.
		n.api.says(func(p *people) { p.strict = true })
		approve(t, h, everything(h), n)
		n.reported("not approved", stalledBy(v1alpha1.ReasonApprovalNotFound))
		if n.runtime.pins[signedApp] {
			t.Error("it was pinned before its bundle was approved")
		}
		n.api.says(func(p *people) {
			p.policies, p.bundles = []v1alpha1.TrustPolicy{signedRule(right)}, []v1alpha1.Bundle{approvedBundle(h.Digest)}
		})
		n.reported("refused", refusedAs("Missing"))
		n.reported("only the other image is pinned", func(s *v1alpha1.NodeUpdateStatus) bool { return s.Pins != nil && s.Pins.ImagesPinned == 1 })
		if n.runtime.pins[signedApp] {
			t.Error("it was pinned")
		}
	})
	t.Run("pinned before", func(t *testing.T) {
		n := newTestNode(t, "n1", 18071, path)
		approve(t, h, everything(h), n)
		n.reported("pinned without a rule", held)
		n.api.says(func(p *people) { p.policies = []v1alpha1.TrustPolicy{signedRule(right)} })
		n.agent.authority.RequestRead(0)
		n.reported("still pinned", func(s *v1alpha1.NodeUpdateStatus) bool {
			return held(s) && len(n.agent.authority.ImageRules()) == 1
		})
		n.stop()
		n.start()
		n.reported("still pinned after a restart", held)
	})
}

// The header of a bundle may come between two looks of a round: the next round verifies its images.
func TestAHeaderThatComesWithinARound(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 18072, path)
	approve(t, h, everything(h), n)
	n.reported("the header is here", held)
	before := []signedImage{{pinned: everything(h).Images[0]}}
	if (&imageLoop{}).completeImages(n.agent.library.Shelf(h.Digest), before) {
		t.Error("an image without its part of the header counts as complete")
	}
}
