package convert

import (
	"cmp"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// TrustList merges policies, sorted by name.
func TrustList(policies []v1alpha1.TrustPolicy) model.Trust {
	t := model.Trust{Policies: []model.TrustRule{}}
	sorted := slices.SortedFunc(slices.Values(policies), func(a, b v1alpha1.TrustPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range sorted {
		rule := model.TrustRule{Name: p.Name, Keys: map[string]string{}, Threshold: int(max(1, p.Spec.Threshold))}
		for _, k := range p.Spec.Keys {
			rule.Keys[k.Name] = k.PublicKey
		}
		t.Policies = append(t.Policies, rule)
		t.RevokedDigests = append(t.RevokedDigests, p.Spec.RevokedDigests...)
		t.RequireSignatures = t.RequireSignatures || p.Spec.Require == v1alpha1.RequireSignatures
	}
	slices.Sort(t.RevokedDigests)
	t.RevokedDigests = slices.Compact(t.RevokedDigests)
	return t
}
