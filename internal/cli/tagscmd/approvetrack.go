package tagscmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// decision is a user's decision about a digest of a track.
type decision struct {
	reason   string
	anyOrder bool
}

func newApprove(a *inputs.Access) *cobra.Command {
	var d decision
	c := &cobra.Command{
		Use: "approve TRACK DIGEST|LONGTAG", Short: "Approve an image of a track, by its digest",
		Long: `Approve a candidate of a track, by its digest or long tag, and print the digest. The approval covers only this digest: it
has no effect if the tag moves before the rollout. An approval replaces an earlier rejection or rollback of the digest.`,
		Example: "  refit tags approve shop-app 2.6.2-rev1-b5.2",
		Args:    console.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			return change(cmd, a, argv[0], func(o *v1alpha1.ImageTrack) (string, error) { return approve(o, argv[1], d) })
		},
	}
	c.Flags().BoolVar(&d.anyOrder, "any-order", false, "approve it even if it is older than the running image, or the order is unknown")
	c.Flags().StringVar(&d.reason, "reason", "", "reason, shown in the status")
	return c
}

func newReject(a *inputs.Access) *cobra.Command {
	var d decision
	c := &cobra.Command{
		Use: "reject TRACK DIGEST|LONGTAG", Short: "Reject an image of a track, by its digest",
		Long: `Reject a candidate of a track, by its digest. It stays rejected under every tag until it is approved; newer images are
classified as usual.`,
		Args: console.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			return change(cmd, a, argv[0], func(o *v1alpha1.ImageTrack) (string, error) { return reject(o, argv[1], d) })
		},
	}
	c.Flags().StringVar(&d.reason, "reason", "", "reason, shown in the status")
	return c
}

func newRollback(a *inputs.Access) *cobra.Command {
	var d decision
	c := &cobra.Command{
		Use: "rollback TRACK", Short: "Roll a track back to its previous image",
		Long: `Reject the current digest of a track. Its workloads roll back to the previous one, which the nodes still have. This lasts
until a newer image, or refit tags approve.`,
		Args: console.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			return change(cmd, a, argv[0], func(o *v1alpha1.ImageTrack) (string, error) { return rollback(o, d) })
		},
	}
	c.Flags().StringVar(&d.reason, "reason", "", "reason, shown in the status")
	return c
}

func newRetry(a *inputs.Access) *cobra.Command {
	return &cobra.Command{
		Use: "retry TRACK", Short: "Retry the nodes on which a track's static pod failed",
		Long: `Retry failed nodes with the same image, after you fixed the cause in the message, and print the digest. When a static pod
is not ready with its new image, its node restores the old manifest, and no other node starts.`,
		Args: console.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, argv []string) error { return change(cmd, a, argv[0], approveRetry) },
	}
}

func approveRetry(o *v1alpha1.ImageTrack) (string, error) {
	for _, k := range o.Status.Workloads {
		if strings.HasPrefix(k.Workload, "StaticPod/") && k.State == v1alpha1.TargetBlocked && o.Status.Approved != nil {
			o.Spec.Retry++
			return o.Status.Approved.Digest, nil
		}
	}
	return "", console.WithExit(console.ExitBlocked, fmt.Errorf("no static pod of track %s has failed: there is nothing to retry", o.Name))
}

// change edits a track's spec if the track is unchanged since it was read, and prints
// the digest.
func change(cmd *cobra.Command, a *inputs.Access, name string, how func(*v1alpha1.ImageTrack) (digest string, err error)) error {
	api, err := a.Client()
	if err != nil {
		return err
	}
	digest := ""
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		digest, err = changeOnce(cmd.Context(), api, name, how)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), digest)
	a.Note("refit tags status %s shows the progress", name)
	return nil
}

func changeOnce(ctx context.Context, api client.Client, name string, how func(*v1alpha1.ImageTrack) (string, error)) (string, error) {
	tracks, err := tracksOf(ctx, api, []string{name})
	if err != nil {
		return "", err
	}
	o := &tracks[0]
	before := o.DeepCopy()
	digest, err := how(o)
	if err != nil {
		return "", err
	}
	err = api.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerCLI))
	if err != nil && !apierrors.IsConflict(err) {
		return "", fmt.Errorf("write track %s: %w", name, err)
	}
	return digest, err
}

// pickDigest finds a candidate by its digest or long tag.
func pickDigest(o *v1alpha1.ImageTrack, what string) (*v1alpha1.TrackCandidate, error) {
	var found []*v1alpha1.TrackCandidate
	var have []string
	for i := range o.Status.Candidates {
		c := &o.Status.Candidates[i]
		have = append(have, title(c.LongTag, c.Tag, c.Digest))
		if c.Digest == what || c.LongTag == what && what != "" {
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, console.UsageErrorf("%s matches %d candidates of track %s: name the digest", what, len(found), o.Name)
	case o.Status.Approved != nil && (o.Status.Approved.Digest == what || o.Status.Approved.LongTag == what):
		return nil, console.UsageErrorf("track %[2]s runs %[1]s already", what, o.Name)
	}
	return nil, console.UsageErrorf("track %s has no candidate %s; it has: %s", o.Name, what, orNone(have))
}

func approve(o *v1alpha1.ImageTrack, what string, d decision) (string, error) {
	c, err := pickDigest(o, what)
	if err != nil {
		return "", err
	}
	switch {
	case c.Class == v1alpha1.ClassTagVersionMismatch:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("%s cannot be approved: %s", what, c.Why))
	case (c.Class == v1alpha1.ClassBackwards || c.Class == v1alpha1.ClassUnordered) && !d.anyOrder:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("%s is %s: %s. To approve it anyway: --any-order", what, c.Class, c.Why))
	}
	o.Spec.Refused = slices.DeleteFunc(o.Spec.Refused, func(r v1alpha1.TrackRefusal) bool { return r.Digest == c.Digest })
	o.Spec.Approvals = slices.DeleteFunc(o.Spec.Approvals, func(x v1alpha1.TrackApproval) bool { return x.Digest == c.Digest || !isCandidate(o, x.Digest) })
	o.Spec.Approvals = append(o.Spec.Approvals, v1alpha1.TrackApproval{Digest: c.Digest, Serial: c.Serial, AnyOrder: d.anyOrder, ApprovedBy: inputs.CurrentUser(), Reason: d.reason})
	return c.Digest, nil
}

func isCandidate(o *v1alpha1.ImageTrack, digest string) bool {
	return slices.ContainsFunc(o.Status.Candidates, func(c v1alpha1.TrackCandidate) bool { return c.Digest == digest })
}

func reject(o *v1alpha1.ImageTrack, what string, d decision) (string, error) {
	c, err := pickDigest(o, what)
	if err != nil {
		return "", err
	}
	refuse(o, c.Digest, d.reason)
	return c.Digest, nil
}

// maxRefused is the limit of the API; the oldest entries are removed.
const maxRefused = 64

func refuse(o *v1alpha1.ImageTrack, digest, reason string) {
	o.Spec.Approvals = slices.DeleteFunc(o.Spec.Approvals, func(x v1alpha1.TrackApproval) bool { return x.Digest == digest })
	o.Spec.Refused = slices.DeleteFunc(o.Spec.Refused, func(r v1alpha1.TrackRefusal) bool { return r.Digest == digest })
	o.Spec.Refused = append(o.Spec.Refused, v1alpha1.TrackRefusal{Digest: digest, Reason: reason})
	o.Spec.Refused = o.Spec.Refused[max(0, len(o.Spec.Refused)-maxRefused):]
}

func rollback(o *v1alpha1.ImageTrack, d decision) (string, error) {
	if o.Status.Approved == nil {
		return "", console.WithExit(console.ExitBlocked, errors.New("no image is approved, so there is nothing to roll back"))
	}
	for i := range o.Status.History {
		h := o.Status.History[i].Digest
		if !slices.ContainsFunc(o.Spec.Refused, func(r v1alpha1.TrackRefusal) bool { return r.Digest == h }) &&
			!slices.ContainsFunc(o.Status.RolledBack, func(r v1alpha1.RolledBack) bool { return r.Digest == h }) {
			refuse(o, o.Status.Approved.Digest, d.reason)
			return h, nil
		}
	}
	return "", console.WithExit(console.ExitBlocked, fmt.Errorf("track %s has no earlier image that was not rolled back: approve another digest instead", o.Name))
}
