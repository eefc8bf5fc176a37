package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxReceipt is the size of a receipt's file in bytes, also for the largest cluster. A
	// payload of maxPayload bytes fits it in every form.
	maxReceipt, maxPayload = 16 << 10, 11_000
	// maxFailedNodes are listed by name; Failures counts all of them.
	maxFailedNodes = 50
	// maxCounts bounds lists of versions and reasons.
	maxCounts = 10
	// maxContacts bounds the lines of contact.
	maxContacts = 3

	maxWord, maxLine, maxText = 64, 253, 400
)

// Others is the word under which the versions and reasons count that a receipt has no room for.
const Others = "others"

// Receipt is what one update did to one cluster, for an office without a line to it. It has counts
// and a bounded list of failed nodes, never all nodes.
type Receipt struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster is the uid of the namespace kube-system, which no other cluster has.
	Cluster string `json:"cluster"`
	// Site is the name that the administrator gave with --site.
	Site string `json:"site,omitempty"`
	// Contact has the lines of --contact.
	Contact []string `json:"contact,omitempty"`
	// CreatedAt is when the cluster was read.
	CreatedAt time.Time `json:"createdAt"`
	// Refit is the version of the command that wrote the receipt.
	Refit string `json:"refit"`
	// Update is the name of the ClusterUpdate, UpdateUID its uid: names are used again.
	Update    string `json:"update"`
	UpdateUID string `json:"updateUID"`
	// Phase of the update, as refit status has it.
	Phase string `json:"phase"`
	// Finished is false for an update that was still waiting or moving nodes.
	Finished bool          `json:"finished"`
	Paused   bool          `json:"paused,omitempty"`
	Bundle   ReceiptBundle `json:"bundle"`
	// PlanDigest is the digest of the plan that runs or ran.
	PlanDigest string            `json:"planDigest,omitempty"`
	Kubernetes ReceiptKubernetes `json:"kubernetes"`
	// StartedAt is when the first node started, FinishedAt when the last one was done.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Unavailable is how long the API server was unavailable while nodes were updated, Longest the
	// longest stretch.
	Unavailable int64        `json:"apiUnavailableSeconds,omitempty"`
	Longest     int64        `json:"apiUnavailableLongestSeconds,omitempty"`
	Nodes       ReceiptNodes `json:"nodes"`
	// Versions counts all nodes of the cluster by the version of their kubelet, the most first.
	Versions []VersionCount `json:"versions,omitempty"`
	// Reason and Message are why the update waits or halted.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Failures counts the failed nodes by their reason, the most first.
	Failures []ReasonCount `json:"failures,omitempty"`
	// FailedNodes are the first of them by name.
	FailedNodes []FailedNode `json:"failedNodes,omitempty"`
}

// ReceiptBundle is the bundle of an update, empty for an update of configuration only.
type ReceiptBundle struct {
	Digest  string `json:"digest,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

// ReceiptKubernetes are the versions of the plan: what the nodes had, the most frequent first, and
// what they get.
type ReceiptKubernetes struct {
	From []string `json:"from,omitempty"`
	To   string   `json:"to,omitempty"`
}

// ReceiptNodes counts the nodes of the plan.
type ReceiptNodes struct {
	Total  int `json:"total"`
	Done   int `json:"done"`
	Failed int `json:"failed"`
	// Waiting nodes are neither done nor failed, also those that move now.
	Waiting int `json:"waiting"`
}

// VersionCount is how many nodes have a version.
type VersionCount struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes"`
}

// ReasonCount is how many nodes have a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
}

// FailedNode is a node that failed, with the reason word and the step.
type FailedNode struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
	Step   string `json:"step,omitempty"`
}

// ReceiptFacts are what a receipt is made of. Update may be one that still runs.
type ReceiptFacts struct {
	Now       time.Time
	Cluster   string
	Site      string
	Contact   []string
	Refit     string
	Update    Update
	UpdateUID string
	Bundle    ReceiptBundle
	// From has the version before the update of each node of the plan, To is the target.
	From []string
	To   string
	// Kubelets has the version of each node of the cluster.
	Kubelets []string
	Failed   []FailedNode
}

// NewReceipt makes the receipt. Texts are cut and cleaned, so that it always has one line for
// each value and fits a file of 16 KiB.
func NewReceipt(f ReceiptFacts) Receipt {
	u := f.Update
	r := Receipt{
		APIVersion: "refit.dev/receipt/v1", Kind: "Receipt", Cluster: word(f.Cluster), Site: line(f.Site, maxWord), CreatedAt: second(f.Now), Refit: word(f.Refit),
		Update: line(u.Name, maxLine), UpdateUID: word(f.UpdateUID), Phase: word(u.Phase), Finished: isFinished(u.Phase), Paused: u.Paused && u.Phase != phaseDone,
		Bundle:     ReceiptBundle{Digest: line(f.Bundle.Digest, 2*maxWord), Name: line(f.Bundle.Name, maxLine), Version: line(f.Bundle.Version, maxWord)},
		PlanDigest: line(u.PlanDigest, 2*maxWord), Kubernetes: ReceiptKubernetes{To: line(f.To, maxWord)},
		StartedAt: second(u.StartedAt), FinishedAt: second(u.FinishedAt), Unavailable: max(0, u.Away), Longest: max(0, u.Longest),
		Nodes: countNodes(u), Versions: countVersions(f.Kubelets),
	}
	for _, c := range f.Contact {
		if l := line(c, 2*maxWord); l != "" && len(r.Contact) < maxContacts {
			r.Contact = append(r.Contact, l)
		}
	}
	for _, v := range countVersions(f.From) {
		r.Kubernetes.From = append(r.Kubernetes.From, v.Version)
	}
	if u.Phase != phaseDone && len(u.Blockers) > 0 {
		r.Reason, r.Message = word(u.Blockers[0].Reason), line(text.HideSecrets(firstWait(&u)), maxText)
	}
	r.addFailed(f.Failed)
	return r
}

const (
	phaseDone   = "Done"
	phaseHalted = "Halted"
)

// isFinished reports whether an update in a phase moves no node any more by itself.
func isFinished(phase string) bool { return phase == phaseDone || phase == phaseHalted }

func countNodes(u Update) ReceiptNodes {
	n := ReceiptNodes{Total: max(0, u.Total)}
	n.Done = min(max(0, u.Done), n.Total)
	n.Failed = min(max(0, u.Failed), n.Total-n.Done)
	n.Waiting = n.Total - n.Done - n.Failed
	return n
}

// addFailed counts the failed nodes, and lists as many as there is room for.
func (r *Receipt) addFailed(failed []FailedNode) {
	all := make([]FailedNode, 0, len(failed))
	var reasons []string
	for _, n := range failed {
		n = FailedNode{Node: orNoWord(joinWords(n.Node, maxLine)), Reason: word(n.Reason), Step: joinWords(n.Step, maxWord)}
		all, reasons = append(all, n), append(reasons, n.Reason)
	}
	slices.SortFunc(all, func(a, b FailedNode) int { return strings.Compare(a.Node, b.Node) })
	for _, c := range countVersions(reasons) {
		r.Failures = append(r.Failures, ReasonCount{c.Version, c.Nodes})
	}
	r.FailedNodes = all[:min(len(all), maxFailedNodes)]
	for len(r.FailedNodes) > 0 && len(encodeReceipt(*r, " ")) > maxPayload {
		r.FailedNodes = r.FailedNodes[:len(r.FailedNodes)-1]
	}
	if len(r.FailedNodes) == 0 {
		r.FailedNodes = nil
	}
}

// countVersions counts equal words, the most frequent first. What does not fit counts as Others.
func countVersions(all []string) []VersionCount {
	byWord := map[string]int{}
	for _, v := range all {
		byWord[v]++
	}
	clean := map[string]int{} // two texts may have one word
	for v, n := range byWord {
		clean[word(v)] += n
	}
	var out []VersionCount
	for v, n := range clean {
		out = append(out, VersionCount{v, n})
	}
	slices.SortFunc(out, func(a, b VersionCount) int {
		if a.Nodes != b.Nodes {
			return b.Nodes - a.Nodes
		}
		return strings.Compare(a.Version, b.Version)
	})
	if len(out) <= maxCounts {
		return out
	}
	rest := 0
	for _, c := range out[maxCounts-1:] {
		rest += c.Nodes
	}
	return append(out[:maxCounts-1:maxCounts-1], VersionCount{Others, rest})
}

// line is a text in one line, without spaces at its ends.
func line(s string, most int) string {
	return strings.TrimSpace(text.Truncate(strings.TrimSpace(text.CleanLine(s)), most))
}

// word is a line without spaces, "-" for none.
func word(s string) string { return orNoWord(joinWords(s, maxWord)) }

func orNoWord(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func joinWords(s string, most int) string {
	return text.Truncate(strings.Join(strings.Fields(text.CleanLine(s)), "_"), most)
}

// second is a time as a receipt has it: whole seconds of UTC, from the years of four digits.
func second(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Second)
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
