package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

// current returns the running update, a new one for pending NodeConfigs, or the last
// one.
func (o *options) current(ctx context.Context, c client.Client, all []v1alpha1.ClusterUpdate) (*v1alpha1.ClusterUpdate, error) {
	last := rolloutfacts.ChooseUpdate(all)
	if last != nil && last.Status.Phase != v1alpha1.PhaseDone {
		return last, nil
	}
	name, err := configsWaiting(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case name != "":
		return o.createUpdate(ctx, c, name, v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartManual})
	case last == nil:
		return nil, console.UsageError(errors.New("there is no update yet, and every node matches its NodeConfigs and OS image: name the target with --to BUNDLE|VERSION|DIGEST"))
	}
	return last, nil
}

// configsWaiting returns the name of an update for the current NodeConfigs and OS images, "" if
// all nodes match them. The same edits give the same name.
func configsWaiting(ctx context.Context, c client.Client) (name string, err error) {
	var list v1alpha1.NodeConfigList
	if err := c.List(ctx, &list); err != nil {
		return "", inputs.ListError(err)
	}
	h := sha256.New()
	waits := false
	for i := range list.Items {
		nc := &list.Items[i]
		waits = waits || nc.Status.ObservedGeneration < nc.Generation || nc.Status.Current < nc.Status.Nodes
		fmt.Fprintf(h, "%s %d\n", nc.UID, nc.Generation)
	}
	images, err := imagesWaiting(ctx, c)
	if err != nil || !waits && len(images) == 0 {
		return "", err
	}
	for _, state := range images {
		fmt.Fprintln(h, state)
	}
	return "config-" + hex.EncodeToString(h.Sum(nil))[:12], nil
}

// imagesWaiting names the desired states with an OS image that one of their nodes has not booted.
// No NodeConfig tells of a node that none matches.
func imagesWaiting(ctx context.Context, c client.Client) (states []string, err error) {
	var pools v1alpha1.UpdatePoolList
	var reports v1alpha1.NodeUpdateList
	err = c.List(ctx, &pools)
	if err == nil && slices.ContainsFunc(pools.Items, func(p v1alpha1.UpdatePool) bool { return p.Spec.OSImage != "" }) {
		err = c.List(ctx, &reports, client.InNamespace(v1alpha1.NodesNamespace))
	}
	if err != nil {
		return nil, inputs.ListError(err)
	}
	wanted := map[string]string{}
	for i := range reports.Items {
		state, booted := reports.Items[i].Spec.Config, bootedImage(&reports.Items[i])
		if state == "" || booted == "" {
			continue
		}
		if _, known := wanted[state]; !known {
			if wanted[state], err = imageOf(ctx, c, state); err != nil {
				return nil, err
			}
		}
		if want := wanted[state]; want != "" && booted != want {
			states = append(states, state)
		}
	}
	slices.Sort(states)
	return slices.Compact(states), nil
}

// bootedImage is the digest of the OS image that a node has booted, "none" without one; "" if refit
// does not move its OS, or no agent has reported on it.
func bootedImage(nu *v1alpha1.NodeUpdate) string {
	if seen := nu.Status.Observed; seen != nil && seen.Fields[model.FieldOSUnsupported] == "" {
		return cmp.Or(seen.Fields[model.FieldOSImage], "none")
	}
	return ""
}

// imageOf is the digest of the OS image of a desired state, "" if it has none.
func imageOf(ctx context.Context, c client.Client, state string) (string, error) {
	var content v1alpha1.Content
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: state}, &content)
	if apierrors.IsNotFound(err) { // the controller has replaced it meanwhile
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the desired state %s of nodes: %w", state, err)
	}
	var config model.NodeConfig
	if err := json.Unmarshal([]byte(content.Data), &config); err != nil {
		return "", fmt.Errorf("desired state %s of nodes: %w", state, err)
	}
	return config.Fields()[model.FieldOSImage], nil
}

// toApply returns the update to start. Without a name and without a running update it
// creates one for the NodeConfigs, and shows its plan. A nil update means that there
// is nothing to do.
func (o *options) toApply(ctx context.Context, c client.Client, args []string) (*v1alpha1.ClusterUpdate, error) {
	if len(args) > 0 {
		return inputs.FindUpdate(ctx, c, args)
	}
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	u, err := o.current(ctx, c, list.Items)
	if err != nil || u.Status.Phase != "" || u.Spec.Bundle != "" {
		return u, err
	}
	if u, err = o.waitPlanned(ctx, c, u.Name, planFlags{wait: true}); err != nil {
		return nil, err
	}
	v, err := updatecmd.ViewPlan(ctx, c, u, time.Now())
	if err != nil {
		return nil, err
	}
	if err := render.Plan(o.Err, render.Table, v); err != nil {
		return nil, err
	}
	switch v.State {
	case updatecmd.PlanNothing:
		return nil, nil
	case updatecmd.PlanBlocked:
		return nil, console.SilentExit(console.ExitBlocked)
	}
	return u, nil
}
