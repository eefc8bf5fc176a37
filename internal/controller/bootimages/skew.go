package bootimages

import (
	"cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/controller/bootimages/sourcestatus"
	"github.com/refit-dev/refit/internal/osversion"
)

func (w *machineSnapshot) versionRules() sourcestatus.VersionRules {
	return sourcestatus.VersionRules{Streams: w.streams, Now: w.now}
}

// blocked says why this candidate may not move to a version: its own image must
// be new enough, which is the wanted one as soon as both are written, and a
// control plane waits for all others. The admission policy lets refit's own
// writes pass, because what it sees of this source is still the old image.
func (c *candidate) blocked(w *machineSnapshot, version string) string {
	if version == "" || c.in.Mode != bootimage.Piggyback || minor(version) == minor(c.facts.Version) {
		return ""
	}
	s := c.withWanted()
	if fs := w.versionRules().Findings(s, c.policy, version, true); skew.Blocks(fs) {
		return "version " + version + " is refused: " + sourcestatus.FirstUnwaived(fs).Message
	}
	if c.row.ControlPlane || c.row.Version == "spec.topology.version" {
		return w.others(c.name, version)
	}
	return ""
}

// withWanted is the source as it would be with the wanted image.
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

// tooFresh says which rule about the age of images the wanted image does not meet, or
// cannot be compared with.
func (c *candidate) tooFresh(w *machineSnapshot) string {
	if c.in.WantedErr != "" || c.in.Same {
		return ""
	}
	version := cmp.Or(c.facts.Version, w.running)
	for _, f := range w.versionRules().Ages(c.withWanted(), c.policy, version) {
		if f.Waived == "" {
			return f.Message
		}
	}
	return ""
}

// others are the sources that keep a control plane from a version.
func (w *machineSnapshot) others(than, version string) string {
	for _, o := range w.sorted() {
		if o.Name == than || o.Status.Policy == "" {
			continue
		}
		for _, f := range o.Status.Skew {
			if f.Waived == "" && minor(f.Target) == minor(version) {
				return "version " + version + " is refused: " + o.Name + ": " + f.Message
			}
		}
	}
	return ""
}

// minor of a version, empty if it cannot be read.
func minor(version string) string {
	v, err := osversion.Parse(version)
	if err != nil {
		return ""
	}
	return v.MajorMinor()
}
