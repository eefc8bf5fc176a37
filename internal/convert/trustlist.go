package convert

import (
	"cmp"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
)

// TrustList merges policies, sorted by name.
func TrustList(policies []v1alpha1.TrustPolicy) model.Trust {
	t := model.Trust{Policies: []model.TrustRule{}}
	for _, p := range policiesByName(policies) {
		rule := model.TrustRule{Name: p.Name, Keys: map[string]string{}, Threshold: int(max(1, p.Spec.Threshold))}
		for _, k := range p.Spec.Keys {
			rule.Keys[k.Name] = k.PublicKey
		}
		if len(rule.Keys) > 0 {
			t.Policies = append(t.Policies, rule)
		}
		t.RevokedDigests = append(t.RevokedDigests, p.Spec.RevokedDigests...)
		t.RequireSignatures = t.RequireSignatures || p.Spec.Require == v1alpha1.RequireSignatures
	}
	slices.Sort(t.RevokedDigests)
	t.RevokedDigests = slices.Compact(t.RevokedDigests)
	return t
}

// policiesByName sorts policies by name. Pointers are sorted, since code that sorts large values is
// large itself, and the agent has it.
func policiesByName(policies []v1alpha1.TrustPolicy) []*v1alpha1.TrustPolicy {
	out := make([]*v1alpha1.TrustPolicy, 0, len(policies))
	for i := range policies {
		out = append(out, &policies[i])
	}
	slices.SortFunc(out, func(a, b *v1alpha1.TrustPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// ImageRules are the rules of policies about signatures of images, sorted by name.
func ImageRules(policies []v1alpha1.TrustPolicy) (out []imageproof.NamedRules) {
	for _, p := range policiesByName(policies) {
		n := imageproof.NamedRules{Name: p.Name}
		for j := range p.Spec.Images {
			n.Rules = append(n.Rules, imageRule(&p.Spec.Images[j]))
		}
		if len(n.Rules) > 0 {
			out = append(out, n)
		}
	}
	return out
}

func imageRule(r *v1alpha1.ImageRule) imageproof.RuleSpec {
	out := imageproof.RuleSpec{Images: r.Images, Accept: r.Accept, Signed: r.Signed, SignedAs: r.SignedAs}
	if r.Cosign != nil {
		out.Cosign = &imageproof.CosignSpec{Keys: pemSpecs(r.Cosign.Keys)}
	}
	if r.Notation != nil {
		out.Notation = &imageproof.NotationSpec{Roots: pemSpecs(r.Notation.Roots), Identities: r.Notation.Identities}
	}
	return out
}

func pemSpecs(in []v1alpha1.PEMText) (out []imageproof.PEMSpec) {
	for _, p := range in {
		out = append(out, imageproof.PEMSpec{Name: p.Name, PEM: p.PEM})
	}
	return out
}
