package updatecmd

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// describeOSImages describes the new OS image of every pool: its build, and the changed packages.
// It returns nothing for a user who may not read OSImages.
func describeOSImages(ctx context.Context, c client.Reader, p model.Plan) ([]string, error) {
	pools := withAnotherImage(p)
	if len(pools) == 0 {
		return nil, nil
	}
	var images v1alpha1.OSImageList
	if err := c.List(ctx, &images); err != nil {
		if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) { // OS images may be left out
			err = nil
		}
		return nil, err
	}
	var out []string
	for i := range images.Items {
		for _, s := range images.Items[i].Status.Pools {
			if len(pools[s.Name]) > 0 && s.Image != "" {
				out = append(out, "pool "+s.Name+" boots "+s.Image+": "+s.Message)
			}
		}
	}
	slices.Sort(out)
	fallback, err := describeFallback(ctx, c, pools)
	return append(out, fallback...), err
}

// describeFallback says of every pool which nodes return by themselves from an image that does not
// come up. It returns nothing for a user who may not read NodeUpdates.
func describeFallback(ctx context.Context, c client.Reader, pools map[string][]string) ([]string, error) {
	var all v1alpha1.NodeUpdateList
	if err := c.List(ctx, &all, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		if apierrors.IsForbidden(err) {
			err = nil
		}
		return nil, err
	}
	fields := map[string]map[string]string{}
	for i := range all.Items {
		if o := all.Items[i].Status.Observed; o != nil {
			fields[all.Items[i].Name] = o.Fields
		}
	}
	var out []string
	for pool, nodes := range pools {
		if says := fallbackOf(nodes, fields); says != "" {
			out = append(out, "pool "+pool+", if the image does not come up: "+says)
		}
	}
	slices.Sort(out)
	return out, nil
}

// fallbackOf groups nodes by what they miss, "" if none of them boots a kernel of an image.
func fallbackOf(nodes []string, fields map[string]map[string]string) string {
	by := map[string][]string{}
	for _, n := range nodes {
		answer := "not reported"
		switch v := fields[n][model.FieldOSBootFallback]; {
		case v == model.ValueComplete:
			answer = "return by themselves"
		case v != "":
			answer = "stay down, without " + strings.ReplaceAll(v, ",", ", ")
		case fields[n][model.FieldOSDriver] == "sysext" || fields[n][model.FieldOSDriver] == "package":
			continue
		}
		by[answer] = append(by[answer], n)
	}
	var says []string
	for answer, names := range by {
		slices.Sort(names)
		says = append(says, answer+": "+text.FirstOf(names, maxFallbackNames, ", "))
	}
	slices.Sort(says)
	return strings.Join(says, "; ")
}

// maxFallbackNames is how many nodes with the same answer are named.
const maxFallbackNames = 5

// withAnotherImage are the nodes of each pool that boot another image.
func withAnotherImage(p model.Plan) map[string][]string {
	pools := map[string][]string{}
	for i := range p.Nodes {
		for _, s := range p.Nodes[i].Steps {
			if slices.ContainsFunc(s.Changes, func(c model.Change) bool { return c.Path == model.FieldOSImage }) {
				pools[p.Nodes[i].Pool] = append(pools[p.Nodes[i].Pool], p.Nodes[i].Node)
			}
		}
	}
	return pools
}
