package tagscmd

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/render"
)

// statusView is what `refit tags status -o json` prints.
type statusView struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Tracks     []trackView `json:"tracks"`
}

type trackView struct {
	Name       string `json:"name"`
	Repository string `json:"repository"`
	Mode       string `json:"mode"`
	Ready      bool   `json:"ready"`
	Reason     string `json:"reason"`
	Message    string `json:"message"`
	Skewed     bool   `json:"skewed"`
	// Status as the API has it, without the conditions.
	Status v1alpha1.ImageTrackStatus `json:"status"`
}

func newStatus(a *inputs.Access) *cobra.Command {
	var output *string
	var patch bool
	c := &cobra.Command{
		Use: "status [TRACK]", Short: "Show image tracks: approved images, candidates and decisions",
		Long: `Show every ImageTrack of the cluster: the image for its workloads, new images behind the tag with their class, and the
pending decisions. With a name, show all of that track: digests with their nodes, candidates with reasons, workloads. --patch
prints the proposed patches for workloads that refit does not change.`,
		Example: "  refit tags status\n  refit tags status shop-app --patch",
		Args:    console.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := console.CheckOutput(*output); err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			tracks, err := tracksOf(cmd.Context(), api, argv)
			if err != nil {
				return err
			}
			if patch {
				return printPatches(cmd.Context(), api, cmd.OutOrStdout(), a, tracks)
			}
			v := statusView{APIVersion: "refit.dev/tagstatus/v1", Kind: "TagStatus", Tracks: []trackView{}}
			for i := range tracks {
				v.Tracks = append(v.Tracks, viewOf(&tracks[i]))
			}
			if !console.IsTable(*output) {
				return render.Value(cmd.OutOrStdout(), *output, v)
			}
			return v.print(cmd.OutOrStdout(), len(argv) > 0, *output == render.Wide)
		},
	}
	output = console.OutputFlag(c)
	c.Flags().BoolVar(&patch, "patch", false, "print the patches that tracks propose")
	return c
}

// tracksOf returns the tracks of the cluster by name, or the named one.
func tracksOf(ctx context.Context, api client.Client, names []string) ([]v1alpha1.ImageTrack, error) {
	var l v1alpha1.ImageTrackList
	if err := api.List(ctx, &l); err != nil {
		return nil, inputs.ListError(err)
	}
	sort.Slice(l.Items, func(i, j int) bool { return l.Items[i].Name < l.Items[j].Name })
	if len(names) == 0 {
		return l.Items, nil
	}
	var have []string
	for i := range l.Items {
		if l.Items[i].Name == names[0] {
			return l.Items[i : i+1], nil
		}
		have = append(have, l.Items[i].Name)
	}
	return nil, console.UsageErrorf("ImageTrack %s not found; there are: %s", names[0], orNone(have))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func viewOf(o *v1alpha1.ImageTrack) trackView {
	v := trackView{Name: o.Name, Repository: o.Spec.Repository, Mode: o.Spec.Mode, Reason: v1alpha1.ReasonPollingRegistry, Message: "not polled yet", Status: o.Status}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		v.Ready, v.Reason, v.Message = c.Status == "True", c.Reason, c.Message
	}
	v.Skewed = meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionSkewed)
	v.Status.Conditions = nil
	return v
}

func (v statusView) print(w io.Writer, details, wide bool) error {
	digest := text.ShortDigest
	if wide {
		digest = func(s string) string { return s }
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "TRACK\tRUNS\tNEW\tCLASS\tDECISION\tPRELOADED\tREASON")
	for i := range v.Tracks {
		t := &v.Tracks[i]
		runs, newer, class, decision := "-", "-", "-", "-"
		if a := t.Status.Approved; a != nil {
			runs = title(a.LongTag, a.Tag, digest(a.Digest))
		}
		if len(t.Status.Candidates) > 0 {
			c := t.Status.Candidates[0]
			newer, class, decision = title(c.LongTag, c.Tag, digest(c.Digest)), c.Class, c.Decision
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, runs, newer, class, decision, orDash(t.Status.Preloaded), t.Reason)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range v.Tracks {
		if details {
			v.Tracks[i].details(w)
		} else if t := &v.Tracks[i]; !t.Ready || t.Reason != v1alpha1.ReasonAsExpected {
			fmt.Fprintf(w, "\n%s: %s\n", t.Name, text.CleanLine(t.Message))
		}
	}
	return nil
}

func title(long, tag, digest string) string {
	if long == "" {
		return tag + "@" + digest
	}
	return long
}

// details prints one track, with full digests for approvals.
func (t *trackView) details(w io.Writer) {
	st := &t.Status
	fmt.Fprintf(w, "\n%s\n", text.CleanLine(t.Message))
	fmt.Fprintf(w, "\nrepository %s, answered by %s\n", t.Repository, orDash(st.Endpoint))
	for _, d := range st.Running {
		fmt.Fprintf(w, "runs       %s %s: %s on %s\n", d.Digest, orDash(d.LongTag), text.Count(int(d.Pods), "pod"), orNone(d.Nodes))
	}
	for _, c := range st.Candidates {
		fmt.Fprintf(w, "candidate  %s %s: %s, %s: %s\n", c.Digest, title(c.LongTag, c.Tag, ""), c.Class, c.Decision, c.Why)
		if len(c.Fixes) > 0 {
			fmt.Fprintf(w, "           its release record names fixes of %s\n", strings.Join(c.Fixes, ", "))
		}
	}
	for _, r := range st.RolledBack {
		fmt.Fprintf(w, "left       %s for %s, by %s\n", r.Digest, orDash(r.To), r.Actor)
	}
	if len(st.History) > 0 {
		fmt.Fprintf(w, "before     %s %s\n", st.History[0].Digest, orDash(st.History[0].LongTag))
	}
	for i := range st.Releases {
		fmt.Fprintf(w, "release    %s %s\n", st.Releases[i].TakenAt.UTC().Format(time.RFC3339), released(&st.Releases[i]))
	}
	for _, k := range st.Workloads {
		fmt.Fprintf(w, "workload   %s: %s %s\n", k.Workload, k.State, k.Message)
	}
}

// released describes one record: its builds, class, user and outcome with time.
func released(r *v1alpha1.TrackRelease) string {
	out := fmt.Sprintf("%s %s", orDash(r.LongTag), r.Digest)
	if r.From != "" {
		out += fmt.Sprintf(" after %s %s", orDash(r.FromLongTag), r.From)
	}
	if r.Class != "" {
		out += ", " + r.Class
	}
	out += ", by " + r.Actor + ": " + r.Result
	if r.FinishedAt != nil {
		out += " " + r.FinishedAt.UTC().Format(time.RFC3339)
	}
	if r.Message != "" {
		out += ", " + r.Message
	}
	return out
}

// printPatches prints the proposed patches, each after the name of its workload.
func printPatches(ctx context.Context, api client.Client, w io.Writer, a *inputs.Access, tracks []v1alpha1.ImageTrack) error {
	found := false
	for i := range tracks {
		var cm corev1.ConfigMap
		err := api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "track-" + tracks[i].Name}, &cm)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the proposals of track %s: %w", tracks[i].Name, err)
		}
		var names []string
		for name := range cm.Data {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			found = true
			fmt.Fprintf(w, "---\n# %s\n%s", strings.TrimSuffix(name, ".yaml"), cm.Data[name])
		}
	}
	if !found {
		a.Note("no patches: every workload has the approved image, or refit writes it itself")
	}
	return nil
}
