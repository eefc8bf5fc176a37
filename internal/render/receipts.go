package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

// maxRejected is how many rejected files a table has.
const maxRejected = 20

// Receipts writes what the receipts of many sites add up to.
func Receipts(w io.Writer, format string, v explain.Receipts) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	fmt.Fprintln(w, receiptsHeadline(v))
	siteTable(w, v.Sites, format == Wide)
	sitesInNeed(w, v)
	fleetTotals(w, v)
	notCounted(w, v)
	return nil
}

func receiptsHeadline(v explain.Receipts) string {
	nodes := 0
	for _, s := range v.Versions {
		nodes += s.Nodes
	}
	out := fmt.Sprintf("%s with %s; sites that need a person: %d.", text.Count(len(v.Sites), "site"), text.Count(nodes, "node"), v.NeedPerson)
	if v.Verified {
		return out + " Each has a valid signature."
	}
	return out + " Signatures were not verified: --pub KEY does."
}

func siteTable(w io.Writer, sites []explain.SiteReceipt, wide bool) {
	if len(sites) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(t, "SITE\tCLUSTER\tUPDATE\tBUNDLE\tPHASE\tDONE\tFAILED\tKUBELETS\tWRITTEN")
	if wide {
		fmt.Fprint(t, "\tFROM\tTO\tAPI UNAVAILABLE\tSIGNED BY\tCONTACT\tFILE")
	}
	fmt.Fprintln(t)
	for _, s := range sites {
		r := s.Receipt
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%s\t%s", orDash(r.Site), text.Prefix(orDash(r.Cluster), 8), orDash(r.Update), orDash(strings.TrimSpace(r.Bundle.Name+" "+r.Bundle.Version)),
			phaseOf(r), r.Nodes.Done, r.Nodes.Total, r.Nodes.Failed, orDash(kubelets(r)), r.CreatedAt.Format("2006-01-02T15:04Z"))
		if wide {
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%s\t%s", orDash(strings.Join(r.Kubernetes.From, ",")), orDash(r.Kubernetes.To), Seconds(r.Unavailable), orDash(strings.Join(s.SignedBy, ",")), orDash(strings.Join(r.Contact, "; ")), orDash(s.File))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func phaseOf(r explain.Receipt) string {
	if r.Paused {
		return orDash(r.Phase) + ",paused"
	}
	return orDash(r.Phase)
}

// kubelets are the versions of a cluster's kubelets, with their numbers if there are several.
func kubelets(r explain.Receipt) string {
	if len(r.Versions) == 1 {
		return r.Versions[0].Version
	}
	var all []string
	for _, v := range r.Versions {
		all = append(all, fmt.Sprintf("%s(%d)", v.Version, v.Nodes))
	}
	return text.FirstOf(all, 3, ",")
}

// sitesInNeed tells for each site that needs a person, or that is in doubt, what and why.
func sitesInNeed(w io.Writer, v explain.Receipts) {
	title := "\nFailed, waiting or in doubt:\n"
	for _, s := range v.Sites {
		if !s.NeedsPerson && s.Receipt.Nodes.Failed == 0 && s.Warning == "" {
			continue
		}
		fmt.Fprint(w, title)
		title = ""
		siteInNeed(w, s)
	}
}

func siteInNeed(w io.Writer, s explain.SiteReceipt) {
	r := s.Receipt
	fmt.Fprintf(w, "  %s (%s), update %s is %s", orDash(r.Site), text.Prefix(orDash(r.Cluster), 8), orDash(r.Update), phaseOf(r))
	if r.Reason != "" {
		fmt.Fprintf(w, ": %s: %s", orDash(r.Reason), orDash(r.Message))
	}
	fmt.Fprintln(w)
	var nodes []string
	for _, n := range r.FailedNodes {
		nodes = append(nodes, text.CleanLine(n.Node+" "+n.Reason))
	}
	if len(nodes) > 0 {
		fmt.Fprintf(w, "    failed: %s\n", text.FirstOf(nodes, 5, ", "))
	}
	if len(r.Contact) > 0 {
		fmt.Fprintf(w, "    contact: %s\n", orDash(strings.Join(r.Contact, "; ")))
	}
	if s.Warning != "" {
		fmt.Fprintf(w, "    warning: %s\n", text.CleanLine(s.Warning))
	}
}

func fleetTotals(w io.Writer, v explain.Receipts) {
	if len(v.Versions) > 0 {
		fmt.Fprintln(w)
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "KUBELET\tSITES\tNODES")
		for _, s := range v.Versions {
			fmt.Fprintf(t, "%s\t%d\t%d\n", orDash(s.Version), s.Sites, s.Nodes)
		}
		t.Flush()
	}
	if len(v.Reasons) > 0 {
		fmt.Fprintln(w)
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "REASON\tSITES\tFAILED NODES")
		for _, r := range v.Reasons {
			fmt.Fprintf(t, "%s\t%d\t%d\n", orDash(r.Reason), r.Sites, r.Nodes)
		}
		t.Flush()
	}
}

func notCounted(w io.Writer, v explain.Receipts) {
	if len(v.Rejected) > 0 {
		fmt.Fprintf(w, "\nRejected, not counted:\n")
	}
	for _, r := range v.Rejected[:min(len(v.Rejected), maxRejected)] {
		fmt.Fprintf(w, "  %s: %s: %s", text.CleanLine(r.File), r.State, text.CleanLine(r.Message))
		if r.Claims != "" {
			fmt.Fprintf(w, " (it claims to be of %s)", text.CleanLine(r.Claims))
		}
		fmt.Fprintln(w)
	}
	if more := len(v.Rejected) - maxRejected; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	if v.Older+v.Copies+v.OtherFiles > 0 {
		fmt.Fprintf(w, "\nAlso there: older receipts: %d, copies: %d, other files: %d\n", v.Older, v.Copies, v.OtherFiles)
	}
	for _, s := range v.Skipped[:min(len(v.Skipped), maxRejected)] {
		fmt.Fprintf(w, "Not read: %s: %s\n", text.CleanLine(s.Path), text.CleanLine(s.Why))
	}
}
