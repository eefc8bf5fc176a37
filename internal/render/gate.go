package render

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/drain"
)

// GateCheck is one check and its result.
type GateCheck struct {
	Name   string `json:"name"`
	Asks   string `json:"asks,omitempty"`
	Answer string `json:"answer"`
	// Never is the reason why its failure cannot be accepted.
	Never    string `json:"never,omitempty"`
	Verdicts int    `json:"verdicts,omitempty"`
	Warnings int    `json:"warnings,omitempty"`
}

// GateRisk is an accepted risk and its state.
type GateRisk struct {
	Check  string    `json:"check"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
	State  string    `json:"state"`
	Covers int       `json:"covers,omitempty"`
}

// GateView is every check before an update.
type GateView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Update     string `json:"update"`
	// Hop is the hop that the checks are about, of an update that has several.
	Hop      string            `json:"hop,omitempty"`
	Open     bool              `json:"open"`
	Checks   []GateCheck       `json:"checks"`
	Risks    []GateRisk        `json:"acceptedRisks,omitempty"`
	Waiting  []explain.Blocker `json:"waiting,omitempty"`
	Warnings []explain.Blocker `json:"warnings,omitempty"`
}

// Gate writes the checks.
func Gate(w io.Writer, format string, v GateView) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	state := "closed"
	if v.Open {
		state = "open"
	}
	of := v.Update
	if v.Hop != "" {
		of += ", " + v.Hop + ","
	}
	fmt.Fprintf(w, "The gate of %s is %s.\n\n", of, state)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tANSWER\tASKS")
	for _, c := range v.Checks {
		asks := orDash(c.Asks)
		if format == Wide && c.Never != "" {
			asks += " (cannot be accepted: " + c.Never + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, c.Answer, asks)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(v.Risks) > 0 {
		fmt.Fprintln(w, "\nAccepted risks:")
	}
	for _, r := range v.Risks {
		fmt.Fprintf(w, "  %s until %s (%s): %s\n", r.Check, r.Until.UTC().Format(time.RFC3339), r.State, r.Reason)
	}
	reasons(w, "Waiting for:", v.Waiting)
	reasons(w, "Warnings:", v.Warnings)
	return nil
}

// DrainView is the effect of a drain of one node on each pod.
type DrainView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	Headline   string `json:"headline"`
	// Options are the drain options of this update, if they differ from the default.
	Options string `json:"options,omitempty"`
	// Held are the settings that refit changed on the node for the time of the update.
	Held []string    `json:"held,omitempty"`
	Pods []drain.Row `json:"pods"`
}

// Drain writes the table of a node's pods.
func Drain(w io.Writer, format string, v DrainView) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	fmt.Fprintln(w, v.Headline)
	if v.Options != "" {
		fmt.Fprintln(w, v.Options)
	}
	for _, h := range v.Held {
		fmt.Fprintln(w, "Set for the update: "+h)
	}
	if len(v.Pods) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return podTable(w, v.Pods)
}

func podTable(w io.Writer, pods []drain.Row) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tFATE\tREASON\tSINCE\tMESSAGE")
	for _, r := range pods {
		since := "-"
		if !r.Since.IsZero() {
			since = r.Since.UTC().Format("15:04:05Z")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Pod, r.Fate, orDash(r.Reason), since, r.Message)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	said := map[string]bool{}
	for _, r := range pods {
		if r.Fix != "" && !said[r.Fix] {
			said[r.Fix] = true
			fmt.Fprintf(w, "fix for %s: %s\n", r.Pod, r.Fix)
		}
	}
	return nil
}
