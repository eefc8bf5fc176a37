package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag/audit"
	"github.com/refit-dev/refit/internal/model"
)

// Images writes the table of images: the summary, the images that need an action with
// a sentence each, then (wide) all images.
func Images(w io.Writer, format string, r audit.Report) error {
	if format == JSON || format == YAML {
		return Value(w, format, r)
	}
	fmt.Fprintln(w, r.Verdict)
	shown := r.Lines
	if format != Wide { // the summary counts current images
		shown = slices.DeleteFunc(slices.Clone(shown), func(l audit.Line) bool { return l.State == audit.Current })
	}
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "STATE\tWHERE\tCONTAINER\tIMAGE\tPODS\tRUNS")
	for _, l := range shown {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", l.State, l.Where, orDash(l.Container), l.Image, l.Pods, orDash(runs(l.Running)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return sentences(w, shown)
}

func runs(all []audit.Running) string {
	parts := make([]string, len(all))
	for i, r := range all {
		parts[i] = text.ShortDigest(r.Digest)
		if r.LongTag != "" {
			parts[i] = r.LongTag
		}
		if len(all) > 1 {
			parts[i] += fmt.Sprintf(" (%d)", r.Pods)
		}
	}
	return strings.Join(parts, ", ")
}

// sentences follow the lines; the fix is printed once per state.
func sentences(w io.Writer, lines []audit.Line) error {
	said := map[string]bool{}
	for _, l := range lines {
		if l.Message == "" {
			continue
		}
		if len(said) == 0 {
			fmt.Fprintln(w)
		}
		what := l.Where
		if l.Container != "" {
			what += " " + l.Container
		}
		fmt.Fprintf(w, "%s: %s: %s\n", l.State, what, l.Message)
		if !said[l.State] && l.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", l.Fix)
		}
		said[l.State] = true
	}
	return nil
}

// Forecast is the effect of one event on many containers.
type Forecast struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Verdict    string         `json:"verdict"`
	Event      string         `json:"event"`
	Registry   string         `json:"registry"`
	Node       string         `json:"node,omitempty"`
	Counts     map[string]int `json:"counts"`
	Answers    []ForecastRow  `json:"answers"`
}

// ForecastRow is one container.
type ForecastRow struct {
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	Owner     string `json:"owner"`
	Container string `json:"container"`
	Kind      string `json:"kind"`
	Image     string `json:"image"`
	Policy    string `json:"policy,omitempty"`
	Critical  bool   `json:"critical,omitempty"`
	model.RestartAnswer
}

// Forecasts writes predictions: the summary, then the containers that change.
func Forecasts(w io.Writer, format string, v Forecast) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	fmt.Fprintln(w, v.Verdict)
	shown := slices.DeleteFunc(slices.Clone(v.Answers), func(r ForecastRow) bool {
		return format != Wide && (r.Outcome == model.OutcomeSame || r.Outcome == model.OutcomeNone)
	})
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tCONTAINER\tEVENT\tOUTCOME\tRUNS\tWOULD RUN\tREASON")
	for _, r := range shown {
		why := r.Why
		if len(r.Nodes) > 0 {
			why += " (on " + strings.Join(r.Nodes, " ") + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Pod, r.Container, r.Event, r.Outcome, orDash(text.ShortDigest(r.From)), orDash(text.ShortDigest(r.To)), why)
	}
	return t.Flush()
}
