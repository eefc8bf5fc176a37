package files

import (
	"context"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/model"
)

// Fields are the values of the files and units of a configuration as they are
// on the node now, and what of them somebody changed since refit made them so. What
// cannot be seen is left out.
func (u *Updater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	out := map[string]string{}
	g, err := u.record.read()
	if err != nil {
		g = given{} // then nothing is known of what refit gave
	}
	var drift []string
	for _, f := range c.Files {
		v := u.value(g, f)
		if v != "" {
			out[model.FieldFile+f.Path] = v
		}
		if why := drifted(g, f, v); why != "" {
			drift = append(drift, why)
		}
		if why := u.hidden(g, f); why != "" {
			drift = append(drift, why)
		}
	}
	drift = append(drift, u.unitFields(ctx, c, g, out)...)
	if len(drift) > 0 {
		out[model.FieldFilesDrift] = told(drift)
	}
	if c.Drift != "" {
		out[model.FieldDriftPolicy] = c.Drift
	}
	return out
}

// unitFields adds the states of the units, and says which somebody changed.
func (u *Updater) unitFields(ctx context.Context, c *model.NodeConfig, g given, out map[string]string) (drift []string) {
	for _, w := range c.Units {
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			continue
		}
		is := unitState(s)
		out[model.FieldUnit+w.Name] = is
		if g.Units[w.Name] == w.State && strayed(s, w.State) {
			drift = append(drift, fmt.Sprintf("unit %s is %s, and refit made it %s", w.Name, is, w.State))
		}
	}
	return drift
}

// drifted says what became of a file that is wanted as refit gave it, without its
// content; empty if it is so still.
func drifted(g given, f model.ConfigFile, now string) string {
	switch gave := g.Files[f.Path].Value; {
	case f.InImage || f.Stale || f.AsImage || gave == "" || gave != f.Value() || now == gave:
		return ""
	case f.Absent:
		return f.Path + " is there again, and refit had removed it"
	case now == "":
		return f.Path + " is gone, and refit had written it"
	}
	return f.Path + " is not as refit wrote it"
}

// hidden says that a file which refit did not write is in /etc in front of the one of
// the image: it is not refit's to remove.
func (u *Updater) hidden(g given, f model.ConfigFile) string {
	if !f.Stale {
		return ""
	}
	s, err := u.fs.Look(f.Path)
	if err != nil || !s.Exists || u.ours(g, f.Path, s) {
		return ""
	}
	return f.Path + " hides " + model.Twin(f.Path) + " of the image, and refit did not write it"
}

// mostTold is how much of it a status repeats, in bytes.
const mostTold = 512

// told are sentences in one line.
func told(all []string) string {
	text := strings.Join(all, "; ")
	if len(text) > mostTold {
		text = strings.ToValidUTF8(text[:mostTold], "") + fmt.Sprintf(" ... (%d in all)", len(all))
	}
	return text
}

// value of a file as it is now, empty if it is not there or cannot be seen. A copy
// that refit may not remove counts as gone: it is drift, and no difference that a step
// could end.
func (u *Updater) value(g given, f model.ConfigFile) string {
	if f.AsImage {
		return u.asImage(g, f.Path)
	}
	s, err := u.fs.Look(f.Path)
	switch {
	case err != nil:
	case f.Absent && !s.Exists, f.Stale && !u.ours(g, f.Path, s):
		return model.ValueAbsent
	case as(f, s):
		return f.Value()
	case s.Exists && !s.Regular:
		return "not a regular file"
	case s.Exists:
		return model.FileValue(s.Digest, s.Mode, named(f.Owner, s.UID, nodefiles.UserID), named(f.Group, s.GID, nodefiles.GroupID))
	}
	return ""
}
