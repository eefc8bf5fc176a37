package imagecmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert"
)

// HistoryEntry is one write of a boot image.
type HistoryEntry struct {
	Source    string    `json:"source"`
	WrittenAt time.Time `json:"writtenAt"`
	From      string    `json:"from,omitempty"`
	FromOS    string    `json:"fromOS,omitempty"`
	To        string    `json:"to"`
	OS        string    `json:"os,omitempty"`
	// By is who wanted it: BootImagePolicy/NAME, or the person who rolled it back.
	By       string `json:"by,omitempty"`
	Rollback bool   `json:"rollback,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// InUse: new machines start from To now.
	InUse bool `json:"inUse,omitempty"`
	// Refused is why the policy refuses To.
	Refused string `json:"refused,omitempty"`
}

// Rejected is an image that a person rejected with a rollback.
type Rejected struct {
	Source string     `json:"source"`
	Image  string     `json:"image"`
	OS     string     `json:"os,omitempty"`
	To     string     `json:"to"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	At     *time.Time `json:"at,omitempty"`
}

// History is the writes of all sources, the newest first.
type History struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Items      []HistoryEntry `json:"items"`
	Rejected   []Rejected     `json:"rejected"`
}

func newList(a *inputs.Access) *cobra.Command {
	var from view
	c := &cobra.Command{
		Use: "list [SOURCE]", Short: "List the boot images that refit wrote", Args: console.Args(cobra.MaximumNArgs(1)),
		Long: `List the boot images that refit wrote to each source of machines, the newest first:
when, from which image to which, and who wanted it. Images that a rollback rejected
or that the policy refuses are marked. refit keeps the last 16 writes of a source.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v, err := s.history(args)
			if err != nil {
				return err
			}
			return from.show(a, v)
		},
	}
	from.add(c)
	return c
}

func (s *site) history(args []string) (History, error) {
	v := History{APIVersion: "refit.dev/bootimagehistory/v1", Kind: "BootImageHistory", Items: []HistoryEntry{}, Rejected: []Rejected{}}
	sources, err := s.selected(args)
	if err != nil {
		return v, err
	}
	for _, m := range sources {
		v.add(m, s.policy(m.Status.Policy))
	}
	slices.SortStableFunc(v.Items, func(a, b HistoryEntry) int { return b.WrittenAt.Compare(a.WrittenAt) })
	return v, nil
}

// add adds the writes of a source, the newest first.
func (v *History) add(m *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy) {
	var refused []bootimage.Refusal
	if p != nil {
		refused = convert.RefusedImages(p.Spec.Refused)
	}
	current := ""
	if m.Status.Referenced != nil {
		current = m.Status.Referenced.Image
	}
	for _, h := range slices.Backward(m.Status.History) {
		e := HistoryEntry{Source: m.Name, WrittenAt: h.WrittenAt.UTC(), From: h.From, FromOS: h.FromOS, To: h.To, OS: h.OS, By: h.By, Rollback: h.Rollback, Reason: h.Reason,
			Refused: bootimage.Refused(refused, bootimage.Image{Text: h.To, OS: h.OS})}
		if h.To == current {
			e.InUse, current = true, ""
		}
		v.Items = append(v.Items, e)
	}
	if r := m.Spec.Rollback; r != nil {
		one := Rejected{Source: m.Name, Image: r.Rejected.Image, OS: r.Rejected.OS, To: r.To, By: r.By, Reason: r.Reason}
		if r.At != nil {
			at := r.At.UTC()
			one.At = &at
		}
		v.Rejected = append(v.Rejected, one)
	}
}

func (v History) text(w io.Writer) {
	if len(v.Items) == 0 {
		fmt.Fprintln(w, "refit has written no boot image yet.")
	} else {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "WRITTEN\tSOURCE\tFROM\tTO\tBY\tNOTE")
		for _, e := range v.Items {
			fmt.Fprintln(tw, strings.Join([]string{e.WrittenAt.Format(time.RFC3339), e.Source, dash(nameImage(e.From, e.FromOS)), nameImage(e.To, e.OS), dash(e.By), dash(e.note())}, "\t"))
		}
		_ = tw.Flush()
	}
	for _, r := range v.Rejected {
		fmt.Fprintf(w, "\n%s: %s rejected %s for %s%s. End it: refit bootimage rollback %s --end\n", r.Source, cmp.Or(r.By, "an administrator"), nameImage(r.Image, r.OS), r.To, inBrackets(r.Reason), r.Source)
	}
}

// note returns what is special about an entry.
func (e HistoryEntry) note() string {
	var out []string
	if e.InUse {
		out = append(out, "in use")
	}
	if e.Rollback {
		out = append(out, "rollback"+inBrackets(e.Reason))
	}
	if e.Refused != "" {
		out = append(out, "refused"+inBrackets(e.Refused))
	}
	return strings.Join(out, ", ")
}

func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func nameImage(image, os string) string {
	if os == "" {
		return image
	}
	return image + " (" + os + ")"
}
