package files

import (
	"context"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/model"
)

// Fields are the current values of the files and units of a configuration, and their drift:
// what others changed since refit set it. Values that cannot be read are left out.
func (u *Updater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	out := map[string]string{}
	g, err := u.record.load()
	if err != nil {
		g = recordData{} // then it is unknown what refit wrote
	}
	drift := drifts{}
	for _, f := range c.Files {
		v := u.fileValue(g, f)
		if v != "" {
			out[model.FieldFile+f.Path] = v
		}
		if why := fileDrift(g, f, v); why != "" {
			drift.add(c.DriftOf(f.Drift), why)
		}
		if why := u.shadowsImageFile(g, f); why != "" {
			drift.add(c.DriftOf(f.Drift), why)
		}
	}
	u.unitFields(ctx, c, g, out, drift)
	drift.fields(c, out)
	if c.Drift != "" {
		out[model.FieldDriftPolicy] = c.Drift
	}
	return out
}

// drifts are the changes of other writers by the policy for them.
type drifts map[string][]string

func (d drifts) add(policy, why string) { d[policy] = append(d[policy], why) }

// fields adds the changes to a node's fields: all of them under one policy, else those that are
// ignored not at all.
func (d drifts) fields(c *model.NodeConfig, out map[string]string) {
	reported, repaired := model.FieldFilesReport, model.FieldFilesRepair
	if !c.HasDriftRules() {
		reported, repaired = model.FieldFilesDrift, model.FieldFilesDrift
		d[model.DriftReport] = append(d[model.DriftReport], d[model.DriftIgnore]...)
	}
	for _, f := range []struct {
		field  string
		drifts []string
	}{{reported, d[model.DriftReport]}, {repaired, d[model.DriftRepair]}} {
		if len(f.drifts) > 0 {
			out[f.field] = joinDrift(f.drifts)
		}
	}
}

// unitFields adds the states of the units, and which of them others changed.
func (u *Updater) unitFields(ctx context.Context, c *model.NodeConfig, g recordData, out map[string]string, drift drifts) {
	for _, w := range c.Units {
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			continue
		}
		is := unitState(s)
		out[model.FieldUnit+w.Name] = is
		if g.Units[w.Name] == w.State && unitDrifted(s, w.State) {
			drift.add(c.DriftOf(w.Drift), fmt.Sprintf("unit %s is %s; refit made it %s", w.Name, is, w.State))
		}
	}
}

// fileDrift says how a file differs from what refit wrote and the configuration still wants,
// without its content; empty if it does not.
func fileDrift(g recordData, f model.ConfigFile, now string) string {
	switch gave := g.Files[f.Path].Value; {
	case f.InImage || f.Stale || f.AsImage || gave == "" || gave != f.Value() || now == gave:
		return ""
	case f.Absent:
		return f.Path + " is there again; refit had removed it"
	case now == "":
		return f.Path + " is missing; refit had written it"
	}
	return f.Path + " is not as refit wrote it"
}

// shadowsImageFile reports a file in /etc that refit did not write and that hides the one of
// the image: refit does not remove it.
func (u *Updater) shadowsImageFile(g recordData, f model.ConfigFile) string {
	if !f.Stale {
		return ""
	}
	s, err := u.fs.Inspect(f.Path)
	if err != nil || !s.Exists || u.isOwn(g, f.Path, s) {
		return ""
	}
	return f.Path + " hides " + model.ImageUnitPath(f.Path) + " of the image; refit did not write it"
}

// maxDriftText is how many bytes of drift a status has.
const maxDriftText = 512

// joinDrift joins sentences to one line.
func joinDrift(all []string) string {
	text := strings.Join(all, "; ")
	if len(text) > maxDriftText {
		text = strings.ToValidUTF8(text[:maxDriftText], "") + fmt.Sprintf(" ... (%d in all)", len(all))
	}
	return text
}

// fileValue is the current value of a file, empty if it is missing or cannot be read. A copy
// that refit must not remove counts as missing: it is drift, and not a difference that a
// step could end.
func (u *Updater) fileValue(g recordData, f model.ConfigFile) string {
	if f.AsImage {
		return u.imageValue(g, f.Path)
	}
	s, err := u.fs.Inspect(f.Path)
	switch {
	case err != nil:
	case f.Absent && !s.Exists, f.Stale && !u.isOwn(g, f.Path, s):
		return model.ValueAbsent
	case isAsWanted(f, s):
		return f.Value()
	case s.Exists && !s.Regular:
		return "not a regular file"
	case s.Exists:
		return model.FileValue(s.Digest, s.Mode, ownerName(f.Owner, s.UID, nodefiles.UserID), ownerName(f.Group, s.GID, nodefiles.GroupID))
	}
	return ""
}
