package bootimages

import (
	"cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/componentversion"
)

func (w *machineSnapshot) versionRules() versionRules {
	return versionRules{Streams: w.streams, Now: w.now}
}

// blocked returns why this candidate may not move to a version, empty if it may. Its own image
// must be new enough; if both are written together, that is the wanted image. A control plane
// waits for all others. The admission policy allows refit's own writes, because it sees only
// the old image of this source.
func (c *candidate) blocked(w *machineSnapshot, version string) string {
	if version == "" || c.in.Mode != bootimage.Piggyback || majorMinor(version) == majorMinor(c.facts.Version) {
		return ""
	}
	s := c.withWanted()
	if fs := w.versionRules().Findings(s, c.policy, version, true); skew.Blocks(fs) {
		return "version " + version + " is refused: " + firstUnwaived(fs).Message
	}
	if c.row.ControlPlane || c.row.Version == "spec.topology.version" {
		return w.blockedByOthers(c.name, version)
	}
	return ""
}

// withWanted returns the source as it will be with the wanted image.
func (c *candidate) withWanted() *v1alpha1.MachineSource {
	s := &v1alpha1.MachineSource{}
	if c.source != nil {
		s = c.source.DeepCopy()
	}
	s.Name = c.name
	s.Status.OSStream = cmp.Or(c.facts.OSStream, c.choice.OSStream)
	s.Status.SkewMode, s.Status.Facts, s.Status.State, s.Status.Contradiction = "Automatic", c.choice.Facts, "", ""
	s.Status.Referenced = imageOf(c.in.Wanted)
	return s
}

// minimumAge returns how old the wanted image must be before refit writes it.
func (c *candidate) minimumAge(w *machineSnapshot) bootimage.MinimumAge {
	if c.in.WantedErr != "" || c.in.Same || c.in.Rollback != nil {
		return bootimage.MinimumAge{}
	}
	m := skew.RequiredAge(w.versionRules().input(c.withWanted(), c.policy, cmp.Or(c.facts.Version, w.running), false))
	return bootimage.MinimumAge{Rule: m.Rule, Age: m.Age, Built: m.Built}
}

// blockedByOthers returns which other source keeps a control plane from a version. What is
// incompatible keeps only its own pool back.
func (w *machineSnapshot) blockedByOthers(than, version string) string {
	for _, o := range w.sorted() {
		if o.Name == than || o.Status.Policy == "" {
			continue
		}
		for _, f := range o.Status.Skew {
			if f.Waived == "" && !f.PoolOnly && majorMinor(f.Target) == majorMinor(version) {
				return "version " + version + " is refused: " + o.Name + ": " + f.Message
			}
		}
	}
	return ""
}

// majorMinor returns the minor version, empty if it cannot be parsed.
func majorMinor(version string) string {
	v, err := componentversion.ParseOS(version)
	if err != nil {
		return ""
	}
	return v.MajorMinor()
}
