package osimage

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// PlacedOnNode returns where each part of a node's rendered configuration is now, sorted by name. held
// is the configuration in the pool's image; the zero value is no image, or one that refit did not
// build.
func PlacedOnNode(rendered, held model.NodeConfig) []PlacedItem {
	in, _ := PlaceConfig(held) // an image was built from it
	inImage := map[string]PlacedItem{}
	for _, i := range in.Items {
		inImage[i.What] = i
	}
	values := map[string]string{}
	for _, f := range held.Files {
		values[f.Path] = f.Value()
	}
	var out []PlacedItem
	for _, f := range rendered.Files {
		out = append(out, placedFile(f, inImage[f.Path], values[f.Path]))
	}
	for _, u := range rendered.Units {
		item := PlacedItem{What: "unit " + u.Name, Where: ByAgent, Rule: "the agent has it " + u.State}
		if i, ok := inImage[item.What]; ok && slices.ContainsFunc(held.Units, func(h model.ConfigUnit) bool { return h.Name == u.Name && h.State == u.State }) {
			item.Where, item.At, item.Rule = i.Where, i.At, i.Rule+"; the agent verifies it"
		}
		out = append(out, item)
	}
	for _, i := range in.Items {
		if i.Where == KargsD || i.Where == ByBuilder {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b PlacedItem) int { return strings.Compare(a.What, b.What) })
	return out
}

// placedFile is the place of one file of a node. item and value are what the image has of the path.
func placedFile(f model.ConfigFile, item PlacedItem, value string) PlacedItem {
	out := PlacedItem{What: f.Path}
	switch {
	case f.InImage:
		out.Where, out.At, out.Rule = InUsr, f.Path, "the image brings it; the agent verifies it and never writes it"
	case f.AsImage:
		out.Where, out.At, out.Rule = InEtc, f.Path, "the agent restores the image's file over the one that it wrote earlier"
	case f.Stale:
		out.Where, out.Rule = ByAgent, "the agent removes it, if refit wrote it: it would hide what the image has in /usr"
	case item.Where == InEtc && value == f.Value():
		out.Where, out.At, out.Rule = InEtc, item.At, item.Rule
	case item.Where == InEtc:
		out.Where, out.Rule = ByAgent, "the image has an older one, and the agent writes the new one over it"
	case item.Where == ByAgent:
		out.Where, out.Rule = ByAgent, item.Rule
	default:
		out.Where, out.Rule = ByAgent, "the image does not have it; the agent writes it"
		if why := agentOnly(f); why != "" {
			out.Rule = why
		}
	}
	return out
}
