package controller_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// sign puts a signature into a header.
func sign(t *testing.T, raw []byte, key ed25519.PrivateKey) []byte {
	t.Helper()
	h, err := bundle.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	env, err := bundle.Sign(key, h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := bundle.EncodeSlot([]bundle.Envelope{env})
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Clone(raw)
	copy(out[h.SlotOffset():], slot)
	return out
}

// assigned returns the digests of the bundles in the desired state of a node.
func (s *site) assigned(node string) []string {
	s.t.Helper()
	var nu v1alpha1.NodeUpdate
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, b := range nu.Spec.Bundles {
		out = append(out, b.Digest)
	}
	return out
}

// A signature by a trusted key lets a bundle be loaded. The controller verifies it itself, so
// a node with false reports harms only itself. A revoked digest is never loaded.
func TestTrust(t *testing.T) {
	s := newSite(t, from)
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := bundle.PublicKeyPEM(pub)
	if err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "release", PublicKey: string(pem)}}}}
	s.create(policy)
	signed := sign(t, release(t, to), priv)
	unsigned := header(t, "refit-demo", "6.6.6", "", "example.test/evil:1")
	s.plugIn("n2", signed, "release")
	s.plugIn("n3", unsigned, "release") // the report of the node is false

	b := s.waitBundle("refit-demo-1.36.3", "the signed one is loaded everywhere", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
	if !bundleSays(v1alpha1.ConditionApproved, v1alpha1.ReasonApprovedByKey)(b) || !slices.Equal(b.Status.SignedBy, []string{"release"}) || b.Spec.Digest != "" {
		t.Errorf("approved by key, without a digest in its spec: %+v", b.Status)
	}
	s.waitBundle("refit-demo-6.6.6", "the controller verified the signature itself", func(b *v1alpha1.Bundle) bool {
		return b.Status.Images == 1 && bundleSays(v1alpha1.ConditionApproved, v1alpha1.ReasonAwaitingApproval)(b)
	})
	for _, n := range []string{"n1", "n2", "n3"} {
		if slices.Contains(s.assigned(n), digest(t, unsigned)) {
			t.Errorf("the desired state of %s has the unsigned bundle", n)
		}
		if !slices.Contains(s.assigned(n), digest(t, signed)) {
			t.Errorf("the desired state of %s misses the signed bundle", n)
		}
	}

	// A trusted key allows loading; an update needs the digest in a ClusterUpdate.
	s.update("u", digest(t, signed), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	s.waitUpdate("u", "the gate opens for it", phase(v1alpha1.PhaseReady))

	s.edit(policy, func() { policy.Spec.RevokedDigests = []string{digest(t, signed)} })
	s.waitBundle(b.Name, "revoked", bundleSays(v1alpha1.ConditionApproved, v1alpha1.ReasonBundleRevoked))
	s.waitUpdate("u", "the gate closes", blocked(v1alpha1.ReasonBundleRevoked))
	if slices.Contains(s.assigned("n1"), digest(t, signed)) {
		t.Error("the desired state of n1 has a revoked bundle")
	}
}
