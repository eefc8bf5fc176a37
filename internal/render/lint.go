package render

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/imagetag/lint"
)

// Lint writes findings: the headline, then one finding per line in the form
// file:line: severity rule: message, which editors parse.
func Lint(w io.Writer, format string, r lint.Report) error {
	if format == JSON || format == YAML {
		return Value(w, format, r)
	}
	fmt.Fprintln(w, r.Headline)
	fixes := map[string]bool{}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s: %s %s: %s%s\n", f.Place(), f.Severity, f.Rule, f.Message, about(f))
		fixes[f.Rule+": "+f.Fix] = f.Fix != ""
	}
	if len(fixes) > 0 {
		fmt.Fprintln(w, "\nFix:")
	}
	for _, f := range r.Findings { // in the order of the findings, each once
		if key := f.Rule + ": " + f.Fix; fixes[key] {
			fixes[key] = false
			fmt.Fprintln(w, "  "+key)
		}
	}
	if format == Wide {
		for _, f := range r.Off {
			fmt.Fprintf(w, "%s: off %s: %s (reason: %s)\n", f.Place(), f.Rule, f.Message, f.Off)
		}
	}
	return nil
}

// about returns the image of a finding, and the owner of its object.
func about(f lint.Finding) string {
	out := f.Container
	if f.Image != "" {
		out = f.Image
	}
	if out != "" {
		out = " (" + out + ")"
	}
	if f.Owner != "" {
		out += " [change it in " + f.Owner + "]"
	}
	return out
}

// Rules writes the list of rules.
func Rules(w io.Writer, format string, rules []lint.Rule) error {
	if format == JSON || format == YAML {
		return Value(w, format, map[string]any{"apiVersion": "refit.dev/lintrules/v1", "kind": "LintRules", "rules": rules})
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tSEVERITY\tFINDS")
	for _, r := range rules {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.ID, r.Severity, r.Finds)
	}
	return t.Flush()
}
