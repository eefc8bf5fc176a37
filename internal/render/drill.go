package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// DrillView says whether a node would come back by itself, and what was proved.
type DrillView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	pin.Start
	// LastStart is what the check before the kubelet's last start found.
	LastStart *v1alpha1.ColdStart `json:"lastStart,omitempty"`
	// Proof of a drill that was run.
	Proof *DrillProof `json:"proof,omitempty"`
}

// DrillProof is a drill that was run to its end.
type DrillProof struct {
	ID     string `json:"id"`
	BootID string `json:"bootID"`
	// Seconds from the question to a node that is Ready again.
	Seconds float64 `json:"seconds"`
}

// Drill writes what is said of a node's start.
func Drill(w io.Writer, format string, v DrillView) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	copies := 0
	for _, i := range v.Images {
		if i.Copy {
			copies++
		}
	}
	fmt.Fprintln(w, drillVerdict(v))
	fmt.Fprintf(w, "It holds %d images, and has a copy of its own of %d.\n", len(v.Images), copies)
	for _, x := range v.Verdicts {
		fmt.Fprintf(w, "  %s: %s\n    %s\n", x.Reason, x.Message, x.Fix)
	}
	lastStart(w, v.LastStart)
	for _, u := range v.NotPinned {
		fmt.Fprintf(w, "Not held, so lost with the store: %s (%s)\n", u.Image, strings.Join(u.Pods, ", "))
	}
	if len(v.Images) == 0 || format != Wide && v.ComesBack {
		return nil
	}
	return drillImages(w, v)
}

// drillVerdict says in a sentence whether a node comes back.
func drillVerdict(v DrillView) string {
	switch s := v.LastStart; {
	case v.Proof != nil && s.Missing > 0:
		return fmt.Sprintf("Node %s is back after %.0f s, without %d images.", v.Node, v.Proof.Seconds, s.Missing)
	case v.Proof != nil:
		return fmt.Sprintf("Node %s came back by itself, Ready after %.0f s.", v.Node, v.Proof.Seconds)
	case v.ComesBack:
		return fmt.Sprintf("Node %s would come back by itself after a power cut, without registry and network.", v.Node)
	}
	return fmt.Sprintf("Node %s would NOT come back by itself after a power cut.", v.Node)
}

func drillImages(w io.Writer, v DrillView) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "IMAGE\tCOPY\tNEIGHBOURS WITH ONE")
	for _, i := range v.Images {
		here := "no"
		if i.Copy {
			here = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", i.Name, here, orDash(strings.Join(i.Neighbours, ", ")))
	}
	return t.Flush()
}

func lastStart(w io.Writer, s *v1alpha1.ColdStart) {
	if s == nil || s.CheckedAt == nil {
		return
	}
	after := "an orderly end"
	if s.Unclean {
		after = "an end that was not orderly, or not known"
	}
	fmt.Fprintf(w, "Last start: looked at %s for %d s, after %s: %d files compared by content, %d images restored, %d missing.\n",
		s.CheckedAt.UTC().Format(time.RFC3339), s.CheckSeconds, after, s.Compared, s.Restored, s.Missing)
}
