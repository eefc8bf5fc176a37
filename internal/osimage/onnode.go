package osimage

import "github.com/refit-dev/refit/internal/model"

// OnNode is what the agent of a node is told that boots an image made of held; the
// zero value is an image that nobody here made. What the image has below /usr as it
// is wanted is only verified, and the copy in /etc that would hide it goes, if refit
// wrote it. What the image has not, or has otherwise, the agent writes, where that is
// possible: a unit goes to /etc then and hides the image's until the next image; what
// only an image brings waits for it. Verdicts as of Place.
func OnNode(wanted, held model.NodeConfig) (model.NodeConfig, []model.Verdict) {
	to, verdicts := PlaceConfig(wanted)
	if len(verdicts) > 0 {
		return model.NodeConfig{}, verdicts
	}
	has := brought(held)
	own := map[string]model.ConfigFile{}
	for _, f := range wanted.Files {
		own[f.Path] = f
	}
	out := to.Agent
	out.Files, out.Packages = nil, nil
	for _, f := range to.Agent.Files {
		switch {
		case f.InImage && has[f.Path] == f.Value(), !f.InImage && !f.Stale:
			out.Files = append(out.Files, f)
		case f.Stale && has[model.Twin(f.Path)] == own[f.Path].Value():
			out.Files = append(out.Files, f)
		case f.Stale:
			out.Files = append(out.Files, own[f.Path])
		}
	}
	return out, nil
}

// brought are the values of what an image that was made of a configuration has below
// /usr, by path.
func brought(held model.NodeConfig) map[string]string {
	in, _ := PlaceConfig(held) // an image was made of it: it can be placed
	out := map[string]string{}
	for _, f := range in.Agent.Files {
		if f.InImage {
			out[f.Path] = f.Value()
		}
	}
	return out
}
