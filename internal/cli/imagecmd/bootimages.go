package imagecmd

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/render"
)

// NewBoot returns the command refit bootimage.
func NewBoot(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{Use: "bootimage", Short: "Inspect the boot images of new machines"}
	c.AddCommand(newStatus(a), newList(a), newCheck(a), newDiff(a), newRollback(a), newRetry(a), newAccept(a), newImage(a), newUploads(a), newUploaded(a), newToken(a), newAlerts(a))
	return c
}

// site has the objects of a cluster, or of a dump.
type site struct {
	policies []v1alpha1.BootImagePolicy
	streams  []v1alpha1.BootImageStream
	sources  []v1alpha1.MachineSource
}

func fromCluster(ctx context.Context, a *inputs.Access) (*site, error) {
	cl, err := a.Client()
	if err != nil {
		return nil, err
	}
	var policies v1alpha1.BootImagePolicyList
	var streams v1alpha1.BootImageStreamList
	var sources v1alpha1.MachineSourceList
	for _, l := range []client.ObjectList{&policies, &streams, &sources} {
		if err := cl.List(ctx, l); err != nil {
			return nil, inputs.ListError(err)
		}
	}
	s := &site{policies: policies.Items, streams: streams.Items, sources: sources.Items}
	s.sort()
	return s, nil
}

func (s *site) sort() {
	sort.Slice(s.sources, func(i, j int) bool { return s.sources[i].Name < s.sources[j].Name })
	sort.Slice(s.policies, func(i, j int) bool { return s.policies[i].Name < s.policies[j].Name })
	sort.Slice(s.streams, func(i, j int) bool { return s.streams[i].Name < s.streams[j].Name })
}

// view has the common flags of the commands that show sources: their origin and the
// output format.
type view struct{ format, file string }

func (v *view) add(c *cobra.Command) {
	c.Flags().StringVarP(&v.format, "output", "o", render.Table, "table, wide, json or yaml")
	c.Flags().StringVar(&v.file, "from", "", "read a dump (kubectl get machinesources,bootimagepolicies,bootimagestreams -o yaml) instead of a cluster; - is standard input")
}

// site reads a file if one is named, else the cluster.
func (v *view) site(cmd *cobra.Command, a *inputs.Access) (*site, error) {
	if err := checkFormat(v.format); err != nil {
		return nil, err
	}
	if v.file != "" {
		return fromDump(v.file, cmd.InOrStdin())
	}
	return fromCluster(cmd.Context(), a)
}

// data reports whether the output is for a program.
func (v *view) data() bool { return v.format == render.JSON || v.format == render.YAML }

func (v *view) show(a *inputs.Access, answer interface{ text(io.Writer) }) error {
	if v.data() {
		return render.Value(a.Out, v.format, answer)
	}
	answer.text(a.Out)
	return nil
}

func checkFormat(format string) error {
	if !render.Known(format) {
		return console.UsageError(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", format))
	}
	return nil
}

// Source is one line of the status.
type Source struct {
	Name            string                    `json:"name"`
	State           string                    `json:"state"`
	Policy          string                    `json:"policy,omitempty"`
	Mode            string                    `json:"mode,omitempty"`
	Referenced      *v1alpha1.BootImage       `json:"referenced,omitempty"`
	Wanted          *v1alpha1.BootImage       `json:"wanted,omitempty"`
	Declared        *v1alpha1.DeclaredImage   `json:"declared,omitempty"`
	InstalledImages []v1alpha1.InstalledImage `json:"installedImages,omitempty"`
	SkewMode        string                    `json:"skewMode,omitempty"`
	NewEnough       bool                      `json:"newEnough"`
	Reason          string                    `json:"reason"`
	Message         string                    `json:"message"`
	SkewReason      string                    `json:"skewReason,omitempty"`
	Skew            string                    `json:"skew,omitempty"`
	Written         *time.Time                `json:"written,omitempty"`
	// Wait of the wanted image, if refit writes it later.
	Wait *v1alpha1.BootImageWait `json:"wait,omitempty"`
	// Nodes counts the nodes installed from it, Joining the machines without a node
	// yet, Refused those that did not join because of their boot image.
	Nodes   int32                     `json:"nodes,omitempty"`
	Joining int32                     `json:"joining,omitempty"`
	Refused []v1alpha1.RefusedMachine `json:"refused,omitempty"`
	// Machines has the lowest values that the nodes report of their machines.
	Machines []v1alpha1.MachineFact `json:"machines,omitempty"`
	// ImageBuilt is the day of the image that the next machine starts from,
	// OldestInstalledImage that of the oldest installed image of a node, if their
	// versions have a date.
	ImageBuilt           *time.Time `json:"imageBuilt,omitempty"`
	OldestInstalledImage *time.Time `json:"oldestInstalledImage,omitempty"`
	// Authority of the first-boot configuration, if a policy manages it.
	Authority *Authority `json:"authority,omitempty"`
}

// Authority reports whether new machines trust the server of their configuration.
type Authority struct {
	Secret  string `json:"secret"`
	Trusted bool   `json:"trusted"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Status is all sources.
type Status struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Stream     string   `json:"stream,omitempty"`
	Release    string   `json:"release,omitempty"`
	Sources    []Source `json:"sources"`
	// Policies in one sentence each.
	Policies []string `json:"policies"`
}

func newStatus(a *inputs.Access) *cobra.Command {
	var from view
	c := &cobra.Command{
		Use: "status", Short: "List the sources of machines with their boot images", Args: cobra.NoArgs,
		Long: `List every source of machines: the machine managers that a BootImagePolicy
selects, and declared MachineSources. For each one, show the image that its next
machine starts from, the wanted image, the action of refit, and whether the image
is new enough for the running version.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v := s.status()
			if from.data() {
				return render.Value(a.Out, from.format, v)
			}
			return v.table(a.Out, from.format == render.Wide, time.Now())
		},
	}
	from.add(c)
	return c
}

func (s *site) status() Status {
	v := Status{APIVersion: "refit.dev/bootimages/v1", Kind: "BootImages", Sources: []Source{}, Policies: []string{}}
	for i := range s.policies {
		p := &s.policies[i]
		if v.Stream == "" {
			v.Stream, v.Release = p.Status.Stream, p.Status.Release
		}
		sentence := "not evaluated yet"
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			sentence = c.Message
		}
		v.Policies = append(v.Policies, p.Name+": "+sentence)
	}
	for i := range s.sources {
		v.Sources = append(v.Sources, sourceView(&s.sources[i]))
	}
	return v
}

func sourceView(m *v1alpha1.MachineSource) Source {
	st := m.Status
	v := Source{Name: m.Name, State: st.State, Policy: st.Policy, Mode: string(st.Mode), Referenced: st.Referenced, Wanted: st.Wanted, Declared: m.Spec.Declared, InstalledImages: st.InstalledImages, SkewMode: st.SkewMode}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil {
		v.Reason, v.Message = c.Reason, c.Message
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionNewEnough); c != nil {
		v.NewEnough, v.SkewReason, v.Skew = c.Status == "True", c.Reason, c.Message
	}
	v.Nodes, v.Joining, v.Refused, v.Machines, v.Wait = st.Nodes, st.Joining, st.Refused, st.Machines, st.Wait
	v.describeAges()
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionAuthority); c != nil && st.Authority != nil {
		v.Authority = &Authority{Secret: st.Authority.Secret, Trusted: c.Status == "True", Reason: c.Reason, Message: c.Message}
	}
	if n := len(st.History); n > 0 {
		at := st.History[n-1].WrittenAt.UTC()
		v.Written = &at
	}
	return v
}

func (v Status) table(w io.Writer, wide bool, now time.Time) error {
	for _, p := range v.Policies {
		fmt.Fprintln(w, p)
	}
	if len(v.Sources) == 0 {
		fmt.Fprintln(w, "No source of machines: create a BootImagePolicy or a MachineSource.")
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "\nSOURCE\tSTATE\tMODE\tSTARTS FROM\tAGE\tWANTED\tSKEW\tNEW ENOUGH\tREASON")
	for _, s := range v.Sources {
		enough := "no"
		if s.NewEnough {
			enough = "yes"
		}
		fmt.Fprintln(tw, strings.Join([]string{s.Name, dash(s.State), dash(s.Mode), image(s.Referenced, wide), age(s.ImageBuilt, now), image(s.Wanted, wide), dash(s.SkewMode), enough, dash(s.Reason)}, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, s := range v.Sources {
		if lines := s.describeState(wide, now); len(lines) > 0 {
			fmt.Fprintf(w, "\n%s: %s\n", s.Name, strings.Join(lines, "\n  "))
		}
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// image returns the text of its column: the version, or the name if there is none.
func image(i *v1alpha1.BootImage, wide bool) string {
	switch {
	case i == nil:
		return "-"
	case wide && i.Image != "" && i.OS != "":
		return i.Image + " (" + i.OS + ")"
	case i.OS != "":
		return i.OS
	case i.Image != "":
		return i.Image
	}
	return dash(i.Release)
}
