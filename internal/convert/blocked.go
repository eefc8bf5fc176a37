package convert

import (
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxBlocked is how many blocked targets a policy lists, and maxBlockedMessage the length of
	// a message of one, in bytes.
	maxBlocked        = 100
	maxBlockedMessage = 1000
)

// BlockedTargets returns the versions that the images of a policy's sources are too old for, each
// once for a source: with a finding that concerns the whole cluster if there is one.
func BlockedTargets(p *v1alpha1.BootImagePolicy, sources []*v1alpha1.MachineSource) []v1alpha1.BlockedTarget {
	var out []v1alpha1.BlockedTarget
	for _, s := range sources {
		if s.Status.Policy == p.Name {
			out = append(out, blockedOf(s)...)
		}
	}
	return out[:min(len(out), maxBlocked)]
}

func blockedOf(s *v1alpha1.MachineSource) []v1alpha1.BlockedTarget {
	var out []v1alpha1.BlockedTarget
	at := map[string]int{}
	for _, f := range s.Status.Skew {
		v, err := componentversion.ParseOS(f.Target)
		if err != nil || f.Waived != "" || strings.TrimPrefix(f.Target, "v") == "" {
			continue
		}
		b := v1alpha1.BlockedTarget{Major: int32(v.Major), Minor: int32(v.Minor), Source: s.Name, PoolOnly: f.PoolOnly, Message: text.Truncate(s.Name+": "+f.Message+"; "+SkewFix(s), maxBlockedMessage)}
		if m := s.Spec.Manager; m != nil {
			b.Kind, b.Namespace, b.Name = m.Kind, m.Namespace, m.Name
		}
		i, seen := at[f.Target]
		switch {
		case !seen:
			at[f.Target] = len(out)
			out = append(out, b)
		case out[i].PoolOnly && !f.PoolOnly:
			out[i] = b
		}
	}
	return out
}
