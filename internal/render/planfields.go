package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/model"
)

// shape is a list of steps and changes that several nodes share. A pool of thousands of
// nodes has a few of them.
type shape struct {
	role  string
	steps []model.Step
	nodes []string
	notes []string
}

// shapes of a plan in the order in which their first nodes start.
func shapes(p *model.Plan) []*shape {
	var out []*shape
	byKey := map[string]*shape{}
	for _, n := range p.Nodes {
		key, err := json.Marshal([]any{n.Role, n.Steps, n.Notes})
		if err != nil {
			continue // a plan has only strings and numbers
		}
		s := byKey[string(key)]
		if s == nil {
			s = &shape{role: n.Role, steps: n.Steps, notes: n.Notes}
			byKey[string(key)] = s
			out = append(out, s)
		}
		s.nodes = append(s.nodes, n.Node)
	}
	return out
}

// planFields writes the changes of each updater field by field, once per shape.
func planFields(w io.Writer, v PlanView, wide bool) {
	for _, s := range shapes(v.Plan) {
		fmt.Fprintf(w, "\n%s (%s):\n", names(s.nodes, wide), s.role)
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "  STEP\tOWNER\tFIELD\tFROM\tTO\tDISRUPTION\tUNDO")
		for _, step := range s.steps {
			stepFields(t, step, wide)
		}
		t.Flush()
		for _, note := range s.notes {
			fmt.Fprintf(w, "  note: %s\n", note)
		}
	}
}

func stepFields(w io.Writer, s model.Step, wide bool) {
	undo := "yes"
	switch {
	case s.NotReversible != "":
		undo = "no"
	case len(s.Changes) == 0:
		undo = "-"
	}
	if len(s.Changes) == 0 {
		fmt.Fprintf(w, "  %s\t%s\t-\t\t\t%s\t%s\n", s.ID, s.Updater, s.Disruption, undo)
		return
	}
	id := s.ID
	for _, c := range s.Changes {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", id, s.Updater, c.Path, value(c.From, wide), value(c.To, wide), s.Disruption, undo)
		id = "" // the same step continues
	}
}

// value returns the text of a field; digests are short unless wide.
func value(v string, wide bool) string {
	if v == "" {
		return "(absent)"
	}
	if wide {
		return v
	}
	words := strings.Fields(v)
	for i, x := range words {
		if strings.HasPrefix(x, "sha256:") {
			words[i] = text.ShortDigest(x)
		}
	}
	return strings.Join(words, " ")
}

// names returns the first names of many nodes.
func names(all []string, wide bool) string {
	if wide {
		return strings.Join(all, ", ")
	}
	return text.FirstOf(all, 6, ", ")
}
