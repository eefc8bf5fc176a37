package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/bundlecmd"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/render"
)

type applyFlags struct {
	plan    string
	yes     bool
	noWait  bool
	timeout time.Duration
}

func newApply(o *options) *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use:   "apply [UPDATE]",
		Short: "Start a planned update",
		Long: `Start a planned update. The command approves the current plan by its digest; if
the plan changes before nodes start, nothing starts.

Without UPDATE, start the current update. If there is none and nodes differ from
their NodeConfigs, create one without a bundle that applies the NodeConfigs, and
show its plan.

On a terminal the command shows the plan and asks; use --yes in scripts. Then it
watches the update. Ending the command does not stop the update.

Exit codes: 0 done, 3 blocked, 4 still in progress after --timeout, 5 halted.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			return o.apply(cmd.Context(), args, f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.plan, "plan", "", "digest of the plan to approve (default: the current plan)")
	fl.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	fl.BoolVar(&f.noWait, "no-wait", false, "start and return")
	fl.DurationVar(&f.timeout, "timeout", 0, "stop watching after this time with exit code 4 (0: never)")
	o.outputFlag(c)
	return c
}

func (o *options) apply(ctx context.Context, args []string, f applyFlags) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	u, err := o.toApply(ctx, c, args)
	if err != nil || u == nil {
		return err
	}
	if u.Status.PlanDigest == "" {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("ClusterUpdate %s has no plan: %s", u.Name, planWait(u, nil)))
	}
	digest := f.plan
	if digest == "" {
		digest = u.Status.PlanDigest
	}
	if digest != u.Status.PlanDigest {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("the current plan of %s is %s, not %s: show it with refit plan, then approve it", u.Name, u.Status.PlanDigest, digest))
	}
	if was := nothingToStart(u, digest); was != "" {
		o.Note("%s %s: nothing to start", u.Name, was)
		return o.follow(ctx, c, u, f)
	}
	if err := o.confirm(ctx, c, u, f.yes); err != nil {
		return err
	}
	patch := client.MergeFrom(u.DeepCopy())
	u.Spec.Start, u.Spec.PlanDigest = v1alpha1.StartImmediate, digest
	if err := c.Patch(ctx, u, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
		return fmt.Errorf("cannot start ClusterUpdate %s: %w", u.Name, err)
	}
	o.Note("started %s with plan %s; this command only watches: ending it does not stop the update", u.Name, text.ShortDigest(digest))
	return o.follow(ctx, c, u, f)
}

// nothingToStart returns why there is nothing to start, "" if there is.
func nothingToStart(u *v1alpha1.ClusterUpdate, digest string) string {
	switch {
	case u.Status.Phase == v1alpha1.PhaseDone:
		return "is done"
	case u.Spec.Start == v1alpha1.StartImmediate && u.Spec.PlanDigest == digest:
		return "was started with plan " + text.ShortDigest(digest) + " before"
	}
	return ""
}

// follow watches the update, unless the user asked not to.
func (o *options) follow(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, f applyFlags) error {
	if f.noWait {
		return nil
	}
	return o.watchUpdate(ctx, c, u, f.timeout)
}

// watchUpdate waits until the controller has observed the start, then watches.
func (o *options) watchUpdate(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, timeout time.Duration) error {
	want := u.Generation
	for range 60 {
		var now v1alpha1.ClusterUpdate
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), &now); err == nil && now.Status.ObservedGeneration >= want && now.Status.Phase != v1alpha1.PhaseReady {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return o.watch(ctx, c, timeout)
}

func (o *options) confirm(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, yes bool) error {
	if yes {
		return nil
	}
	if err := console.RequireTerminal(os.Stdin, "refit apply asks before it updates nodes"); err != nil {
		return err
	}
	v, err := updatecmd.ViewPlan(ctx, c, u, time.Now())
	if err != nil {
		return err
	}
	if err := render.Plan(o.Err, render.Table, v); err != nil {
		return err
	}
	return console.Confirm(ctx, os.Stdin, o.Err, "Start this update?")
}

func newApprove(o *options) *cobra.Command {
	var mismatch bool
	var from registryFlags
	c := &cobra.Command{
		Use:   "approve DIGEST|BUNDLE-FILE",
		Short: "Approve a bundle by its digest",
		Long: `Approve a bundle by its digest: nodes may copy, load and pin it. This starts no
update; use refit plan and refit apply for that.

Nodes refuse a stick with another bundle. The Bundle then shows the digest on the
stick and the expected one.

The command first compares the bundle with the nodes: platforms, runtimes, the step
between the Kubernetes versions, and constraints of the bundle (refit bundle create
--constraint). A bundle that does not fit a node is refused with exit code 3; use
--allow-mismatch to approve it. The gate of the update compares the nodes again
(check constraints). Of a file, it also shows how many of the images
the nodes have.

With --registry one node fetches the bundle from there, if no stick brings it. Push it
with refit bundle push.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := from.read()
			if err != nil {
				return err
			}
			return o.approve(cmd.Context(), args[0], at, mismatch)
		},
	}
	f := c.Flags()
	f.BoolVar(&mismatch, "allow-mismatch", false, "approve it even if it does not fit some nodes")
	f.StringVar(&from.at.Reference, "registry", "", "reference of the bundle in a registry, as refit bundle push prints it")
	f.StringArrayVar(&from.at.Mirrors, "mirror", nil, "repository with the same content, asked before the registry; may be repeated")
	f.StringVar(&from.authorities, "registry-ca", "", "file with the certificates of authorities (PEM) that nodes trust for the registry")
	return c
}

// registryFlags say where a registry has a bundle.
type registryFlags struct {
	at v1alpha1.BundleRegistry
	// authorities is a file.
	authorities string
}

// read returns what the flags say, nil without a registry.
func (f *registryFlags) read() (*v1alpha1.BundleRegistry, error) {
	if f.at.Reference == "" {
		if len(f.at.Mirrors) > 0 || f.authorities != "" {
			return nil, console.UsageErrorf("--mirror and --registry-ca need --registry")
		}
		return nil, nil
	}
	if f.authorities != "" {
		pem, err := os.ReadFile(f.authorities)
		if err != nil {
			return nil, console.UsageError(fmt.Errorf("--registry-ca: %w", err))
		}
		f.at.CABundle = string(pem)
	}
	return &f.at, nil
}

// approve approves a bundle. at is where a registry has it, nil leaves that as it is. mismatch
// approves a bundle that does not fit all nodes.
func (o *options) approve(ctx context.Context, arg string, at *v1alpha1.BundleRegistry, mismatch bool) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	digest, err := resolveBundle(ctx, c, arg)
	if err != nil {
		return err
	}
	o.noteProofs(arg)
	if err := o.checkFit(ctx, c, arg, digest, mismatch); err != nil {
		return err
	}
	b, found, err := bundleToApprove(ctx, c, digest)
	if err != nil {
		return err
	}
	before := b.DeepCopy()
	if b.Spec.Digest = digest; at != nil {
		if b.Spec.Registry != nil {
			at.NodeSelector = b.Spec.Registry.NodeSelector
		}
		b.Spec.Registry = at
	}
	note := ""
	if found {
		err = c.Patch(ctx, b, client.MergeFrom(before), client.FieldOwner(v1alpha1.FieldOwnerCLI))
	} else {
		note = " (not seen on any medium yet)"
		err = c.Create(ctx, b, client.FieldOwner(v1alpha1.FieldOwnerCLI))
	}
	if at != nil {
		note = " (a node fetches it from " + at.Reference + ")"
	}
	if err != nil {
		return approveError("bundle "+digest, err)
	}
	o.awaitApproved(ctx, c, b)
	fmt.Fprintf(o.Out, "approved %s %s%s\n", b.Name, digest, note)
	return nil
}

// bundleToApprove returns the Bundle with that digest, or a new one.
func bundleToApprove(ctx context.Context, c client.Client, digest string) (b *v1alpha1.Bundle, found bool, err error) {
	var list v1alpha1.BundleList
	if err := c.List(ctx, &list); err != nil {
		return nil, false, inputs.ListError(err)
	}
	for i := range list.Items {
		if b := &list.Items[i]; b.Spec.Digest == digest || (b.Spec.Digest == "" && b.Status.Digest == digest) {
			return b, true, nil
		}
	}
	return &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "sha256-" + digest[len("sha256:"):][:12]}}, false, nil
}

// checkFit refuses a bundle that does not fit the nodes. An account that must not list nodes may
// approve all the same, with a note.
func (o *options) checkFit(ctx context.Context, c client.Client, arg, digest string, mismatch bool) error {
	var h *bundle.Header
	if isFile(arg) {
		var err error
		if h, err = bundleHeader(arg); err != nil {
			return err
		}
	}
	f, err := bundlecmd.FitBundle(ctx, c, h, digest)
	switch {
	case apierrors.IsForbidden(err):
		o.Note("this account must not list nodes, so the bundle was not compared with them")
		return nil
	case err != nil:
		return err
	case f == nil:
		o.Note("nothing is known of this bundle yet, so it was not compared with the nodes; name its file to compare it")
		return nil
	}
	f.Print(o.Err)
	if mismatch {
		return nil
	}
	return f.Err(digest)
}

// noteProofs prints who signed the images of a bundle that is a file here. It decides nothing:
// an unreadable archive of signatures is a warning.
func (o *options) noteProofs(arg string) {
	if !isFile(arg) {
		return
	}
	summary, err := bundlecmd.ProofSummary(arg)
	switch {
	case err != nil:
		fmt.Fprintf(o.Err, "warning: signatures of images: %v\n", err)
	case summary != "":
		fmt.Fprintln(o.Err, summary)
	}
}

// approveError names the missing right: an operator of updates may not approve.
func approveError(what string, err error) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot approve %s: %w", what, err)
	}
	return fmt.Errorf("cannot approve %s: this account does not have the verb approve on bundles.refit.dev, nor does refit-operator. Let an approver run refit approve, or bind the role: "+
		"kubectl create clusterrolebinding refit-approver --clusterrole=refit-approver --user=NAME: %w", what, err)
}

// awaitApproved waits a moment until the controller has observed the approval,
// so that the next command sees it. The approval is valid without a controller too.
func (o *options) awaitApproved(ctx context.Context, c client.Client, b *v1alpha1.Bundle) {
	for range 20 {
		var now v1alpha1.Bundle
		if err := c.Get(ctx, client.ObjectKeyFromObject(b), &now); err == nil && now.Status.ObservedGeneration >= b.Generation &&
			meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionApproved) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
	o.Note("the controller has not observed the approval yet; refit status shows when it has")
}
