package gatefacts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// readOSImages are the images that nodes of the plan boot, and how many of them hold
// theirs: what the OSImages' own look has counted. byPool are those nodes.
func readOSImages(ctx context.Context, c client.Reader, byPool map[string][]string) ([]gate.OSImage, error) {
	if len(byPool) == 0 {
		return nil, nil
	}
	var images v1alpha1.OSImageList
	if err := c.List(ctx, &images); err != nil {
		return nil, fmt.Errorf("list OSImages: %w", err)
	}
	var out []gate.OSImage
	for i := range images.Items {
		for _, p := range images.Items[i].Status.Pools {
			nodes := byPool[p.Name]
			if len(nodes) == 0 || p.Image == "" {
				continue
			}
			o := gate.OSImage{Pool: p.Name, Image: p.Image, Nodes: len(nodes), Ready: len(nodes) - nodesWithoutImage(p, nodes), Reason: p.PrepullReason, Message: p.PrepullMessage}
			if o.Ready < o.Nodes && o.Message == "" {
				o.Message = "nothing is known of it yet"
			}
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b gate.OSImage) int { return strings.Compare(a.Pool, b.Pool) })
	return out, nil
}

// nodesWithoutImage counts the nodes that have not prepulled the image: all of them before
// the first count.
func nodesWithoutImage(p v1alpha1.OSImagePool, nodes []string) int {
	var held, all int
	if _, err := fmt.Sscanf(p.Prepulled, "%d/%d", &held, &all); err != nil {
		return len(nodes)
	}
	if all-held > v1alpha1.MaxMissingNodes { // more than are named
		return min(len(nodes), all-held)
	}
	n := 0
	for _, node := range nodes {
		if slices.Contains(p.Missing, node) {
			n++
		}
	}
	return n
}

// addArguments adds the dangerous kernel arguments that a node gets.
func (m *Moves) addArguments(np *model.NodePlan) {
	for _, a := range model.NewArguments(np) {
		if x := (gate.Argument{Pool: np.Pool, Argument: a, Why: model.DangerousArgument(a)}); x.Why != "" && !slices.Contains(m.arguments, x) {
			m.arguments = append(m.arguments, x)
		}
	}
}
