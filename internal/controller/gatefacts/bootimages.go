package gatefacts

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// readBootImages are the sources of machines that the policies say are too old for a
// target. From lowest, the oldest version that a node runs, it is known whether
// the update moves a minor version.
func readBootImages(ctx context.Context, c client.Reader, target string, lowest componentversion.OSVersion) ([]gate.BootImage, error) {
	if target == "" {
		return nil, nil
	}
	to, err := componentversion.ParseOS(target)
	if err != nil {
		return nil, fmt.Errorf("the target: %w", err)
	}
	var policies v1alpha1.BootImagePolicyList
	if err := c.List(ctx, &policies); err != nil {
		return nil, fmt.Errorf("list BootImagePolicies: %w", err)
	}
	minor := lowest.Text == "" || lowest.Major != to.Major || lowest.Minor < to.Minor
	var out []gate.BootImage
	for i := range policies.Items {
		for _, b := range policies.Items[i].Status.Blocked {
			if int(b.Major) == to.Major && int(b.Minor) == to.Minor {
				out = append(out, gate.BootImage{Source: b.Source, Message: b.Message, Blocks: minor})
			}
		}
	}
	return out, nil
}

// lowestKubelet is the lowest version of a kubelet; without a Text if none can be read.
func (w Snapshot) lowestKubelet() componentversion.OSVersion {
	var low componentversion.OSVersion
	seen, last := map[string]bool{}, ""
	for _, n := range w.Nodes {
		text := n.Status.NodeInfo.KubeletVersion
		if text == last || seen[text] {
			continue // most nodes run the same
		}
		seen[text], last = true, text
		v, err := componentversion.ParseOS(text)
		if err != nil {
			continue
		}
		if c, err := v.Compare(low); low.Text == "" || err == nil && c < 0 {
			low = v
		}
	}
	return low
}
