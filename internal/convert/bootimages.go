package convert

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/text"
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

// maxCanaryFailures is how many failures a MachineSource lists.
const maxCanaryFailures = 8

// Canary returns the canary that a policy wants for an image, nil if it wants none, and a text that
// is different for each attempt. Failures before a person's retry do not count.
func Canary(p *v1alpha1.BootImageCanary, s *v1alpha1.MachineSource, wanted bootimage.Image) (c *bootimage.Canary, attempt string) {
	if p == nil || p.Mode != v1alpha1.CanaryReplica {
		return nil, ""
	}
	minutes := func(n, without int32) time.Duration { return time.Duration(cmp.Or(n, without)) * time.Minute }
	c = &bootimage.Canary{Healthy: minutes(p.HealthyMinutes, 10), Join: minutes(p.JoinMinutes, 60), MaxFailures: int(cmp.Or(p.MaxFailures, 2))}
	if s == nil {
		return c, ""
	}
	since := ""
	var forgotten time.Time
	if d := s.Spec.Canary; d != nil && d.Image == wanted.Text {
		c.Passed, forgotten, since = d.Action == "Accept", d.At.Time, d.At.UTC().Format(time.RFC3339)
	}
	addCanaryRecord(c, s.Status.Canary, wanted, forgotten)
	return c, strconv.Itoa(len(c.Failures)) + since
}

// addCanaryRecord adds what earlier canaries of the same image did, except failures that a person
// forgot.
func addCanaryRecord(c *bootimage.Canary, st *v1alpha1.SourceCanary, wanted bootimage.Image, forgotten time.Time) {
	if st == nil || st.Image != wanted.Text || st.OS != wanted.OS {
		return
	}
	c.Passed = c.Passed || st.PassedAt != nil
	for _, f := range st.Failures {
		if f.At.After(forgotten) {
			c.Failures = append(c.Failures, f.Message)
		}
	}
}

// CanaryStatus returns the record of a canary after a decision about the wanted image.
func CanaryStatus(old *v1alpha1.SourceCanary, wanted bootimage.Image, d bootimage.Decision, now time.Time) *v1alpha1.SourceCanary {
	out := old.DeepCopy()
	if out == nil || out.Image != wanted.Text || out.OS != wanted.OS {
		out = &v1alpha1.SourceCanary{Image: wanted.Text, OS: wanted.OS}
	}
	out.Object, out.Machine = "", ""
	at := metav1.NewTime(now.Truncate(time.Second))
	switch d.Canary {
	case bootimage.CanaryPassed:
		out.PassedAt = &at
	case bootimage.CanaryFailed:
		out.Failures = append(out.Failures, v1alpha1.CanaryFailure{At: at, Message: text.Truncate(d.CanaryFailure, 500)})
		out.Failures = out.Failures[max(0, len(out.Failures)-maxCanaryFailures):]
	}
	if out.PassedAt == nil && len(out.Failures) == 0 && d.Canary == "" {
		return nil
	}
	return out
}

// ImageOfHistory finds an image by its name, with the attributes by which the object names it.
func ImageOfHistory(history []v1alpha1.BootImageWrite, name string) (bootimage.Image, map[string]string, bool) {
	for _, h := range slices.Backward(history) {
		switch {
		case h.From == name && len(h.FromAttributes) > 0:
			return bootimage.Image{Text: name, OS: h.FromOS, Release: h.FromRelease}, h.FromAttributes, true
		case h.To == name && len(h.Attributes) > 0:
			return bootimage.Image{Text: name, OS: h.OS, Release: h.Release}, h.Attributes, true
		}
	}
	return bootimage.Image{}, nil, false
}

// maxHistory is how many writes a MachineSource lists.
const maxHistory = 16

// TrimHistory keeps the newest entries, and the last one of an image that a rollback needs.
func TrimHistory(h []v1alpha1.BootImageWrite, needed *v1alpha1.ImageRollback) []v1alpha1.BootImageWrite {
	has := func(e v1alpha1.BootImageWrite) bool {
		return needed != nil && (e.From == needed.To || e.To == needed.To)
	}
	for len(h) > maxHistory {
		oldest := 0
		if has(h[0]) && !slices.ContainsFunc(h[1:], has) {
			oldest = 1
		}
		h = slices.Delete(h, oldest, oldest+1)
	}
	return h
}
