package bootimages

import (
	"cmp"
	"context"
	"fmt"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"
	"github.com/refit-dev/refit/internal/convert"
)

// canary gathers the facts about the machine that tries the wanted image, nil if none is to.
func (c *candidate) canary(ctx context.Context, w *machineSnapshot) *bootimage.Canary {
	out, attempt := convert.Canary(c.choice.Canary, c.source, c.in.Wanted)
	if out == nil || c.in.WantedErr != "" || c.in.Same || c.in.Rollback != nil {
		return nil
	}
	out.Before = w.openCanary
	if c.source == nil {
		return out
	}
	c.canaryName = bootimage.CanaryName(c.object.GetName(), string(c.source.UID), c.in.Wanted, attempt)
	there := c.listing.ByName[c.object.GetNamespace()+"/"+c.canaryName]
	if there == nil || !machineobjects.IsCanary(there) || there.GetDeletionTimestamp() != nil {
		return out
	}
	w.machines.Observe(out, there, machineobjects.SourceName(c.row.Group, c.row.Kind, there.GetNamespace(), there.GetName()))
	w.poolChecks.Ask(ctx, w.machines, out, w.now)
	if h, err := c.table.Holder(c.row, there.Object); err == nil {
		c.canaryTemplate = h.Name
	}
	return out
}

// bootCanary creates the copy of the manager whose machine starts from the wanted image.
func (r *Reconciler) bootCanary(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if err := r.writeUserData(ctx, w, c); err != nil {
		return err
	}
	template, err := r.template(ctx, w, c)
	switch {
	case err != nil:
		return err
	case template == "" && c.holder.Name != "":
		return fmt.Errorf("%s %s is changed in place, so a canary has no template of its own: set canary.mode None for %s", c.holder.Row.Kind, c.holder.Name, c.name)
	}
	c.staged, c.canaryTemplate = template, template
	c.in.Canary = c.canary(ctx, w) // the name needs the UID of the source
	if c.decision = bootimage.Decide(c.in); c.decision.Action != bootimage.Boot {
		return nil
	}
	edited := c.object.DeepCopy().Object
	if e := c.referenceEdit(template); e.Changed() {
		copied := *c.object
		copied.Object = e.Object
		edited = copied.DeepCopy().Object
	}
	content, err := bootimage.CanaryCopy(edited, string(c.source.UID), c.canaryName)
	if err != nil {
		return fmt.Errorf("%s: %w; set canary.mode None for it", c.name, err)
	}
	return machineobjects.CreateCanary(ctx, r.Objects, c.listing, content, FieldOwner)
}

// keepCanary marks the canary that stays, and the source that others wait for.
func (c *candidate) keepCanary(w *machineSnapshot) {
	if c.decision.Canary != "" {
		w.usedCanaries[c.object.GetNamespace()+"/"+c.canaryName] = true
		c.staged = cmp.Or(c.staged, c.canaryTemplate)
		w.retrySoon = w.retrySoon || c.decision.Canary != bootimage.CanaryRuns
	}
	if c.decision.Canary != "" || c.decision.Reason == v1alpha1.ReasonBootImageCanary || c.decision.Reason == v1alpha1.ReasonBootImageCanaryFailed {
		w.openCanary = cmp.Or(w.openCanary, c.name)
	}
}

// recordCanary returns the record of the canary; that of the last image stays until the next one.
func (c *candidate) recordCanary(w *machineSnapshot, old *v1alpha1.SourceCanary) *v1alpha1.SourceCanary {
	if c.in.Canary == nil {
		return old
	}
	out := convert.CanaryStatus(old, c.in.Wanted, c.decision, w.now)
	if out != nil && c.decision.Canary == bootimage.CanaryRuns {
		out.Object, out.Machine = c.row.Kind+"/"+c.canaryName, c.in.Canary.Machine
	}
	return out
}
