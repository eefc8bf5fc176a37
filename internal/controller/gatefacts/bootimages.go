package gatefacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// fillBootImages adds the sources of machines that are too old for the target, and those about
// which that is not known. From the oldest version that a node runs follows whether the update
// moves a minor version.
func (g *Gatherer) fillBootImages(ctx context.Context, w Snapshot, in *gate.Input, every time.Duration) error {
	if in.TargetKubernetes == "" {
		return nil
	}
	to, err := componentversion.ParseOS(in.TargetKubernetes)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	var policies v1alpha1.BootImagePolicyList
	if err := g.Live.List(ctx, &policies); err != nil {
		return fmt.Errorf("list BootImagePolicies: %w", err)
	}
	lowest := w.lowestKubelet()
	minor := lowest.Text == "" || lowest.Major != to.Major || lowest.Minor < to.Minor
	var names []string
	for i := range policies.Items {
		p := &policies.Items[i]
		names = append(names, p.Name)
		in.BootImages = append(in.BootImages, tooOldFor(p, to, minor)...)
		if p.Status.ObservedGeneration == 0 || p.Status.ObservedGeneration != p.Generation {
			in.BootImageGaps = append(in.BootImageGaps, gate.BootImageGap{Object: "BootImagePolicy/" + p.Name, Reason: v1alpha1.ReasonBootImageNotChecked, Blocks: minor,
				Message: "it was not evaluated since it was created or changed, so it is not known whether new machines can join", Fix: "wait some seconds; if it stays, see whether refit's controller runs"})
		}
	}
	slices.Sort(names)
	undecided, err := g.looks.undecided.get(ctx, w.Now, every, strings.Join(names, " "), func(ctx context.Context) ([]gate.BootImageGap, error) {
		return readUndecided(ctx, g.Live, names)
	})
	for _, u := range undecided {
		u.Blocks = minor
		in.BootImageGaps = append(in.BootImageGaps, u)
	}
	return err
}

// tooOldFor returns the sources of a policy that are too old for a target.
func tooOldFor(p *v1alpha1.BootImagePolicy, to componentversion.OSVersion, minor bool) (out []gate.BootImage) {
	for _, b := range p.Status.Blocked {
		if int(b.Major) == to.Major && int(b.Minor) == to.Minor {
			out = append(out, gate.BootImage{Source: b.Source, Message: b.Message, Blocks: minor})
		}
	}
	return out
}

// readUndecided returns the sources whose policy was deleted, while no person has decided.
func readUndecided(ctx context.Context, c client.Reader, policies []string) ([]gate.BootImageGap, error) {
	var sources v1alpha1.MachineSourceList
	if err := c.List(ctx, &sources); err != nil {
		return nil, fmt.Errorf("list MachineSources: %w", err)
	}
	var out []gate.BootImageGap
	for i := range sources.Items {
		s := &sources.Items[i]
		if p := convert.DeletedPolicy(s, func(name string) bool { return slices.Contains(policies, name) }); p != "" {
			out = append(out, gate.BootImageGap{Object: "MachineSource/" + s.Name, Reason: v1alpha1.ReasonBootImagePolicyDeleted,
				Message: "BootImagePolicy " + p + " was deleted, and no rule checks whether its new machines can join", Fix: convert.DeletedPolicyFix(s.Name)})
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
