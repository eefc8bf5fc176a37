package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// DrillView predicts whether a node recovers by itself, with the proof of a drill.
type DrillView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	pin.StartForecast
	// LastStart is the result of the cold-start check before the kubelet's last start.
	LastStart *v1alpha1.ColdStart `json:"lastStart,omitempty"`
	// Proof of a drill that was run.
	Proof *DrillProof `json:"proof,omitempty"`
}

// DrillProof is a drill that was run to its end.
type DrillProof struct {
	ID     string `json:"id"`
	BootID string `json:"bootID"`
	// Seconds from the request to a node that is Ready again.
	Seconds float64 `json:"seconds"`
}

// Drill writes the prediction and the proof.
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
	fmt.Fprintf(w, "%s pinned, %d with a local copy.\n", text.Count(len(v.Images), "image"), copies)
	for _, x := range v.Blockers {
		fmt.Fprintf(w, "  %s: %s\n    %s\n", x.Reason, x.Message, x.Fix)
	}
	lastStart(w, v.LastStart)
	for _, u := range v.NotPinned {
		fmt.Fprintf(w, "Not pinned, so lost with the store: %s (%s)\n", u.Image, strings.Join(u.Pods, ", "))
	}
	if len(v.Images) == 0 || format != Wide && v.ComesBack {
		return nil
	}
	return drillImages(w, v)
}

// drillVerdict returns in a sentence whether a node recovers.
func drillVerdict(v DrillView) string {
	switch s := v.LastStart; {
	case v.Proof != nil && s.Missing > 0:
		return fmt.Sprintf("Node %s recovered after %.0f s, without %s.", v.Node, v.Proof.Seconds, text.Count(int(s.Missing), "image"))
	case v.Proof != nil:
		return fmt.Sprintf("Node %s recovered by itself, Ready after %.0f s.", v.Node, v.Proof.Seconds)
	case v.ComesBack:
		return fmt.Sprintf("Node %s would recover by itself after a power cut, without registry and network.", v.Node)
	}
	return fmt.Sprintf("Node %s would NOT recover by itself after a power cut.", v.Node)
}

func drillImages(w io.Writer, v DrillView) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "IMAGE\tCOPY\tPEERS WITH A COPY")
	for _, i := range v.Images {
		here := "no"
		if i.Copy {
			here = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", i.Name, here, orDash(strings.Join(i.Peers, ", ")))
	}
	return t.Flush()
}

func lastStart(w io.Writer, s *v1alpha1.ColdStart) {
	if s == nil || s.CheckedAt == nil {
		return
	}
	after := "a clean shutdown"
	if s.Unclean {
		after = "an unclean or unknown shutdown"
	}
	fmt.Fprintf(w, "Last start: checked %s for %d s, after %s: %s compared by content, %s restored, %d missing.\n",
		s.CheckedAt.UTC().Format(time.RFC3339), s.CheckSeconds, after, text.Count(int(s.Compared), "file"), text.Count(int(s.Restored), "image"), s.Missing)
}

// RestoreDrillView is a rehearsed restore of a node's datastore.
type RestoreDrillView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	// Restored: the newest snapshot was restored into a scratch directory, and read whole.
	Restored bool `json:"restored"`
	// Result is what the node's agent reported.
	Result *v1alpha1.RestoreDrill `json:"result"`
}

// RestoreDrill writes the result of a rehearsal.
func RestoreDrill(w io.Writer, format string, v RestoreDrillView) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	r := v.Result
	if p := r.Problem; p != nil {
		fmt.Fprintf(w, "Node %s restored no snapshot.\n  %s: %s: %s\n    %s\n", v.Node, p.Reason, p.Object, p.Message, p.Fix)
		return nil
	}
	fmt.Fprintf(w, "Node %s restored its snapshot of %s into a scratch directory and read it whole, in %.1f s.\n", v.Node, r.Datastore, float64(r.Milliseconds)/1000)
	_, err := fmt.Fprintf(w, "%s, %s: %s\nMade %s. The running datastore was not touched.\n", explain.Bytes(r.Bytes), text.Count(int(r.Objects), "object"), r.Snapshot, r.SnapshotAt.UTC().Format(time.RFC3339))
	return err
}
