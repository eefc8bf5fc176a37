package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/explain"
)

// Status writes the view.
func Status(w io.Writer, format string, v explain.View) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	fmt.Fprintln(w, text.CleanLine(v.Headline))
	if v.NodesTotal > 0 {
		fmt.Fprintf(w, "%s %d/%d nodes", bar(v.Percent, 100), v.NodesDone, v.NodesTotal)
		if step := v.Step(); step != "" {
			fmt.Fprintf(w, ", %s", text.CleanLine(step))
		}
		if v.Elapsed > 0 {
			fmt.Fprintf(w, ", %s", Seconds(v.Elapsed))
		}
		if v.Left != "" {
			fmt.Fprintf(w, ", %s", v.Left)
		}
		fmt.Fprintln(w)
	}
	if v.Away > 0 {
		fmt.Fprintf(w, "The API server was unavailable for %s during the update, at most %s in a row\n", Seconds(v.Away), Seconds(v.Longest))
	}
	if v.Next != "" {
		fmt.Fprintf(w, "Next: %s\n", text.CleanLine(v.Next))
	}
	waits(w, v)
	nodes(w, v.Nodes, format == Wide)
	bundles(w, v.Bundles, format == Wide)
	return nil
}

// waits writes what the update waits for, and what would stop it later.
func waits(w io.Writer, v explain.View) {
	reasons(w, "Waiting for:", v.Waiting)
	if v.MoreWaits > 0 {
		fmt.Fprintf(w, "  and %d more\n", v.MoreWaits)
	}
	reasons(w, "Warnings:", v.Warnings)
}

func reasons(w io.Writer, title string, bs []explain.Blocker) {
	if len(bs) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, b := range bs {
		first, more, _ := strings.Cut(b.Message, "\n")
		fmt.Fprintf(w, "  %s: %s", text.CleanLine(b.Reason), text.CleanLine(first))
		if !b.Since.IsZero() {
			fmt.Fprintf(w, " (since %s)", b.Since.UTC().Format("15:04:05Z"))
		}
		fmt.Fprintln(w)
		for line := range strings.Lines(more) { // the last lines of a failed program
			fmt.Fprintf(w, "    | %s\n", strings.TrimRight(line, "\n"))
		}
		if b.Fix != "" {
			fmt.Fprintf(w, "    fix: %s\n", text.CleanLine(b.Fix))
		}
	}
}

func nodes(w io.Writer, ns []explain.Node, wide bool) {
	if len(ns) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(t, "NODE\tROLE\tREADY\tKUBELET\tPHASE\tSTEP\tPINNED\tCOPIED")
	fetched := slices.ContainsFunc(ns, func(n explain.Node) bool { return n.FromRegistry > 0 })
	if wide {
		fmt.Fprint(t, "\tFROM STICK\tFROM PEERS")
		if fetched {
			fmt.Fprint(t, "\tFROM REGISTRY")
		}
		fmt.Fprint(t, "\tAGENT\tMESSAGE")
	}
	fmt.Fprintln(t)
	for _, n := range ns {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%s/%s", text.CleanLine(n.Name), n.Role, ready(n), orDash(n.Kubelet), orDash(n.Phase), orDash(n.Step),
			n.ImagesPinned, n.ImagesTotal, explain.Bytes(n.BytesDone), explain.Bytes(n.BytesTotal))
		if wide {
			fmt.Fprintf(t, "\t%s\t%s", explain.Bytes(n.FromMedia), explain.Bytes(n.FromPeers))
			if fetched {
				fmt.Fprintf(t, "\t%s", explain.Bytes(n.FromRegistry))
			}
			fmt.Fprintf(t, "\t%s\t%s", orDash(n.Agent), orDash(message(n)))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func bundles(w io.Writer, bs []explain.Bundle, wide bool) {
	if len(bs) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "BUNDLE\tVERSION\tDIGEST\tAPPROVED\tLOADED\tUSE\tFOUND AT\tREASON")
	for _, b := range bs {
		d := text.ShortDigest(text.CleanLine(b.Digest))
		if wide {
			d = text.CleanLine(b.Digest)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%t\t%s\t%s\t%s\t%s\n", text.CleanLine(b.Name), orDash(b.Version), orDash(d), b.Approved, orDash(b.Loaded), use(b), orDash(strings.Join(b.Locations, ",")), orDash(b.Reason))
	}
	t.Flush()
}

// use returns what nodes hold a bundle for, and what a released one freed on each of them.
func use(b explain.Bundle) string {
	if b.Use == "Released" && b.FreesBytes > 0 {
		return "Released (up to " + explain.Bytes(b.FreesBytes) + " per node)"
	}
	return orDash(b.Use)
}

func ready(n explain.Node) string {
	s := "no"
	if n.Ready {
		s = "yes"
	}
	if n.Unschedulable {
		s += ",cordoned"
	}
	if n.OnHold {
		s += ",on hold"
	}
	return s
}

// message returns the message of a node; a hold comes first.
func message(n explain.Node) string {
	if n.OnHold && n.OnHoldReason != "" {
		return "on hold: " + n.OnHoldReason
	}
	return n.Message
}

// orDash returns a cell: one line, from any text of a node or a medium.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return text.CleanLine(s)
}

func bar(done, total int) string {
	const width = 30
	n := 0
	if total > 0 {
		n = min(width, done*width/total)
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

// Seconds returns a duration for people: 4m05s.
func Seconds(s int64) string {
	if s < 60 {
		return fmt.Sprintf("%ds", s)
	}
	if s < 3600 {
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
}
