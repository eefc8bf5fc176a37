package convert

import (
	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
)

// ImageRollback converts a rollback, nil for none.
func ImageRollback(r *v1alpha1.ImageRollback) *bootimage.Rollback {
	if r == nil {
		return nil
	}
	return &bootimage.Rollback{To: bootimage.Image{Text: r.To}, Rejected: bootimage.Image{Text: r.Rejected.Image, OS: r.Rejected.OS, Release: r.Rejected.Release}, By: r.By, Reason: r.Reason}
}

// RefusedImages converts the refused images of a policy.
func RefusedImages(in []v1alpha1.RefusedImage) []bootimage.Refusal {
	var out []bootimage.Refusal
	for _, r := range in {
		out = append(out, bootimage.Refusal{Image: r.Image, OS: r.OS, Reason: r.Reason})
	}
	return out
}

// ImageHistory converts the writes of a source.
func ImageHistory(in []v1alpha1.BootImageWrite) []bootimage.Written {
	var out []bootimage.Written
	for _, h := range in {
		out = append(out, bootimage.Written{Rollback: h.Rollback, From: bootimage.Image{Text: h.From, OS: h.FromOS, Release: h.FromRelease},
			To: bootimage.Image{Text: h.To, OS: h.OS, Release: h.Release}})
	}
	return out
}

// DeletedPolicy returns the deleted policy of a source, empty if it has none or a person has
// decided about it. exists reports whether a policy is there.
func DeletedPolicy(s *v1alpha1.MachineSource, exists func(policy string) bool) string {
	switch {
	case s.Spec.Skew != "":
		return ""
	case s.Status.Policy != "" && !exists(s.Status.Policy):
		return s.Status.Policy
	case s.Status.PolicyDeleted != nil && s.Status.Policy == "":
		return s.Status.PolicyDeleted.Name
	}
	return ""
}

// DeletedPolicyFix returns the decision that a source waits for.
func DeletedPolicyFix(source string) string {
	return "select it in a BootImagePolicy, or accept the risk: kubectl patch machinesource " + source + ` --type merge -p '{"spec":{"skew":"None"}}'`
}
