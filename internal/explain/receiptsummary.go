package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Receipts is what the receipts of many sites add up to.
type Receipts struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Verified is true if each counted receipt has a valid signature of one of the keys of --pub.
	Verified bool `json:"verified"`
	// Sites have the newest receipt of each cluster; those that need a person come first.
	Sites []SiteReceipt `json:"sites"`
	// Versions and Reasons add up the sites.
	Versions []FleetVersion `json:"versions,omitempty"`
	Reasons  []FleetReason  `json:"reasons,omitempty"`
	// NeedPerson is the number of sites where a person must act.
	NeedPerson int `json:"needPerson"`
	// Older receipts of a site, Copies of a receipt and OtherFiles do not count.
	Older      int `json:"older,omitempty"`
	Copies     int `json:"copies,omitempty"`
	OtherFiles int `json:"otherFiles,omitempty"`
	// Rejected files are receipts that do not count: damaged, or not signed by a key of --pub.
	Rejected []RejectedReceipt `json:"rejected,omitempty"`
	// Skipped are parts of the directory that were not read, with the reason.
	Skipped []SkippedPath `json:"skipped,omitempty"`
}

// SiteReceipt is the newest receipt of a cluster.
type SiteReceipt struct {
	// File has the receipt.
	File     string   `json:"file"`
	SignedBy []string `json:"signedBy,omitempty"`
	// NeedsPerson: the update halted, or waits for a person.
	NeedsPerson bool `json:"needsPerson"`
	// Warning is a doubt about the receipt.
	Warning string  `json:"warning,omitempty"`
	Receipt Receipt `json:"receipt"`
}

// FleetVersion is on how many nodes of how many sites a kubelet version runs.
type FleetVersion struct {
	Version string `json:"version"`
	Sites   int    `json:"sites"`
	Nodes   int    `json:"nodes"`
}

// FleetReason is at how many sites a reason word is why nodes failed or the update waits.
type FleetReason struct {
	Reason string `json:"reason"`
	Sites  int    `json:"sites"`
	// Nodes that failed with it.
	Nodes int `json:"nodes"`
}

// RejectedReceipt is a file that does not count.
type RejectedReceipt struct {
	File    string `json:"file"`
	State   string `json:"state"`
	Message string `json:"message"`
	// Claims is the site or cluster that the file names, which may be wrong.
	Claims string `json:"claims,omitempty"`
}

// SkippedPath is a file or directory that was not read.
type SkippedPath struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// clockDoubt is how far in the future a receipt may be before it is doubted.
const clockDoubt = 24 * time.Hour

// AddReceipts adds checked receipts up. A receipt counts once. For each update the newest receipt
// counts, and for each cluster the newest update: an old receipt that arrives again changes nothing.
func AddReceipts(now time.Time, all []CheckedReceipt, verified bool) Receipts {
	out := Receipts{APIVersion: "refit.dev/receipts/v1", Kind: "Receipts", Verified: verified, Sites: []SiteReceipt{}}
	seen := map[string]bool{}
	updates := map[[2]string]*CheckedReceipt{}
	for i := range all {
		c := &all[i]
		switch {
		case c.State != ReceiptCounted:
			out.Rejected = append(out.Rejected, RejectedReceipt{c.File, c.State, c.Message, c.Receipt.claims()})
			continue
		case seen[c.Digest]:
			out.Copies++
			continue
		}
		seen[c.Digest] = true
		id := [2]string{c.Receipt.Cluster, c.Receipt.UpdateUID}
		if best := updates[id]; best == nil || isNewer(c, best, writtenAt) {
			updates[id] = c
		}
	}
	newest := map[string]*CheckedReceipt{}
	for _, c := range updates {
		if best := newest[c.Receipt.Cluster]; best == nil || isNewer(c, best, updatedAt) {
			newest[c.Receipt.Cluster] = c
		}
	}
	out.Older = len(seen) - len(newest)
	for _, c := range newest {
		out.Sites = append(out.Sites, SiteReceipt{File: c.File, SignedBy: c.SignedBy, NeedsPerson: c.Receipt.needsPerson(), Warning: doubt(now, c.Receipt), Receipt: c.Receipt})
	}
	slices.SortFunc(out.Sites, compareSites)
	slices.SortFunc(out.Rejected, func(a, b RejectedReceipt) int { return strings.Compare(a.File, b.File) })
	out.addUp()
	return out
}

func writtenAt(r *Receipt) time.Time { return r.CreatedAt }

// updatedAt orders the updates of a cluster, by its own clock where it can: a receipt of an old
// update may be written again later.
func updatedAt(r *Receipt) time.Time {
	if r.StartedAt.IsZero() {
		return r.CreatedAt
	}
	return r.StartedAt
}

// isNewer compares receipts by a time of them. Equal ones are compared by their digest, so that
// the order of the files does not matter.
func isNewer(a, b *CheckedReceipt, by func(*Receipt) time.Time) bool {
	return cmp.Or(by(&a.Receipt).Compare(by(&b.Receipt)), a.Receipt.CreatedAt.Compare(b.Receipt.CreatedAt), strings.Compare(a.Digest, b.Digest)) > 0
}

func (r *Receipt) claims() string { return cmp.Or(r.Site, r.Cluster) }

// needsPerson reports whether the update goes on only if a person acts.
func (r *Receipt) needsPerson() bool {
	return r.Paused || r.Phase == phaseHalted || r.Phase == "Blocked" || r.Phase == "Ready"
}

func doubt(now time.Time, r Receipt) string {
	if r.CreatedAt.After(now.Add(clockDoubt)) {
		return fmt.Sprintf("written at %s, which is in the future: check the clock of the computer there", r.CreatedAt.Format(time.RFC3339))
	}
	return ""
}

func compareSites(a, b SiteReceipt) int {
	if a.NeedsPerson != b.NeedsPerson {
		if a.NeedsPerson {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.Receipt.Site, b.Receipt.Site), strings.Compare(a.Receipt.Cluster, b.Receipt.Cluster))
}

func (s *Receipts) addUp() {
	versions, reasons := map[string]*FleetVersion{}, map[string]*FleetReason{}
	for i := range s.Sites {
		site := &s.Sites[i]
		if site.NeedsPerson {
			s.NeedPerson++
		}
		for _, v := range site.Receipt.Versions {
			if versions[v.Version] == nil {
				versions[v.Version] = &FleetVersion{Version: v.Version}
			}
			versions[v.Version].Sites++
			versions[v.Version].Nodes += v.Nodes
		}
		for reason, nodes := range site.Receipt.reasons() {
			if reasons[reason] == nil {
				reasons[reason] = &FleetReason{Reason: reason}
			}
			reasons[reason].Sites++
			reasons[reason].Nodes += nodes
		}
	}
	for _, v := range versions {
		s.Versions = append(s.Versions, *v)
	}
	for _, r := range reasons {
		s.Reasons = append(s.Reasons, *r)
	}
	slices.SortFunc(s.Versions, func(a, b FleetVersion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Version, b.Version))
	})
	slices.SortFunc(s.Reasons, func(a, b FleetReason) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Reason, b.Reason))
	})
}

// reasons has the failed nodes of each reason word, and the word of the wait with none.
func (r *Receipt) reasons() map[string]int {
	out := map[string]int{}
	for _, c := range r.Failures {
		out[c.Reason] += c.Nodes
	}
	if r.Reason != "" {
		out[r.Reason] += 0
	}
	return out
}
