package osimage

import "github.com/refit-dev/refit/internal/model"

// OnNode returns the desired configuration of a node that boots an image built from held; the
// zero value is an image that refit did not build. The agent only verifies wanted files below
// /usr that the image has, and removes a copy in /etc that refit wrote and that would hide them.
// It writes wanted files that the image does not have, where that is possible: a unit goes to
// /etc and hides the image's until the next image. Changes that need an image wait for it.
// Verdicts are those of PlaceConfig.
func OnNode(wanted, held model.NodeConfig) (model.NodeConfig, []model.Blocker) {
	to, verdicts := PlaceConfig(wanted)
	if len(verdicts) > 0 {
		return model.NodeConfig{}, verdicts
	}
	has := filesInImage(held)
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
		case f.Stale && has[model.ImageUnitPath(f.Path)] == own[f.Path].Value():
			out.Files = append(out.Files, f)
		case f.Stale:
			out.Files = append(out.Files, own[f.Path])
		}
	}
	return out, nil
}

// filesInImage returns the values of the files below /usr in an image that was built from a
// configuration, by path.
func filesInImage(held model.NodeConfig) map[string]string {
	in, _ := PlaceConfig(held) // an image was made of it: it can be placed
	out := map[string]string{}
	for _, f := range in.Agent.Files {
		if f.InImage {
			out[f.Path] = f.Value()
		}
	}
	return out
}
