package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// States of agents and bundles, and values of labels that stand for all others.
const (
	agentReporting = "Reporting"
	agentSilent    = "Silent"
	agentMissing   = "Missing"
	bundleFound    = "Found"
	bundleApproved = "Approved"
	phaseNoAgent   = "NoAgent"
	labelUnknown   = "Unknown"
)

// nodePhases are those that agents report. An agent that reports another word adds no label.
var nodePhases = map[string]bool{"Idle": true, "Waiting": true, "Copying": true, "Loading": true, "Ready": true, "Updating": true, "Failed": true}

// reasonWords are the words of the catalogue.
var reasonWords = func() map[string]bool {
	out := map[string]bool{}
	for _, r := range explain.Reasons {
		out[r.Word] = true
	}
	return out
}()

// nodeCounts are the nodes of a cluster, counted. Sums are floating point numbers: reports of
// agents cannot make them overflow.
type nodeCounts struct {
	phases, agents, problems, hosts                 map[string]int
	outdated, lowDisk, incomplete, unpinned         int
	wanted, ready, pinned, bytesWanted, bytesCopied float64
}

// countNodes counts all nodes in one pass. silent reports whether a heartbeat is overdue.
func countNodes(f *siteFacts, silent func(*v1alpha1.NodeUpdate, time.Time) bool) *nodeCounts {
	c := &nodeCounts{phases: map[string]int{}, problems: map[string]int{}, hosts: map[string]int{},
		agents: map[string]int{agentReporting: 0, agentSilent: 0, agentMissing: 0}}
	for _, nu := range f.view.Reports {
		if nu == nil || nu.Status.Agent == nil {
			c.phases[phaseNoAgent]++
			c.agents[agentMissing]++
			continue
		}
		c.phases[phaseOf(nu)]++
		if silent(nu, f.now) {
			c.agents[agentSilent]++
		} else {
			c.agents[agentReporting]++
		}
		if nu.Status.Agent.Version != f.release {
			c.outdated++
		}
		c.countProblems(nu.Status.Problems)
		c.countHost(nu.Status.Observed)
		if p := nu.Status.Pins; p != nil {
			c.countPins(p)
			if needsSpace(p, nu.Status.FileSystems) {
				c.lowDisk++
			}
		}
	}
	return c
}

func phaseOf(nu *v1alpha1.NodeUpdate) string {
	switch phase := nu.Status.Phase; {
	case phase == "":
		return phaseNoAgent
	case nodePhases[phase]:
		return phase
	}
	return labelUnknown
}

// countProblems counts a node once for each reason.
func (c *nodeCounts) countProblems(problems []v1alpha1.NodeProblem) {
	var seen map[string]bool
	for i := range problems {
		p := &problems[i]
		word := p.Reason
		if !reasonWords[word] {
			word = labelUnknown
		}
		if p.Repaired || seen[word] {
			continue
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		seen[word] = true
		c.problems[word]++
	}
}

// osDrivers are those that agents report.
var osDrivers = map[string]bool{"bootc": true, "rpm-ostree": true, "ostree": true, "sysext": true, "package": true}

// countHost counts a node whose agent reports how its OS is updated.
func (c *nodeCounts) countHost(o *v1alpha1.Observed) {
	if o == nil || o.Fields[model.FieldOSDriver] == "" {
		return
	}
	driver := o.Fields[model.FieldOSDriver]
	if !osDrivers[driver] {
		driver = labelUnknown
	}
	c.hosts[driver]++
}

func (c *nodeCounts) countPins(p *v1alpha1.PinStatus) {
	total := max(0, p.ImagesTotal)
	ready, pinned := min(max(0, p.ImagesReady), total), min(max(0, p.ImagesPinned), total)
	bytes := max(0, p.BytesTotal)
	copied := min(max(0, p.BytesDone), bytes)
	c.wanted += float64(total)
	c.ready += float64(ready)
	c.pinned += float64(pinned)
	c.bytesWanted += float64(bytes)
	c.bytesCopied += float64(copied)
	if ready < total {
		c.incomplete++
	}
	if pinned < total && copied == bytes {
		c.unpinned++
	}
}

// needsSpace reports whether a file system has less room than is still needed. Names with one ID
// share the room.
func needsSpace(p *v1alpha1.PinStatus, systems []v1alpha1.FileSystem) bool {
	if len(p.NeededBytes) == 0 {
		return false
	}
	for i := range systems {
		needed := 0.0
		for j := range systems {
			if systems[j].ID == systems[i].ID {
				needed += float64(max(0, p.NeededBytes[systems[j].Name]))
			}
		}
		if needed > float64(systems[i].FreeBytes) {
			return true
		}
	}
	return false
}

func updateProgress(u *v1alpha1.ClusterUpdate) float64 {
	switch {
	case u.Status.Phase == v1alpha1.PhaseDone:
		return 1
	case u.Status.NodesTotal > 0:
		return float64(u.Status.NodesDone) / float64(u.Status.NodesTotal)
	}
	return 0
}

// waitStarts returns for each reason of an update since when it has waited for it at most.
func waitStarts(u *v1alpha1.ClusterUpdate) map[string]time.Time {
	out := map[string]time.Time{}
	for _, b := range u.Status.Blockers {
		if b.Since == nil {
			continue
		}
		if at, known := out[b.Reason]; !known || b.Since.Time.Before(at) {
			out[b.Reason] = b.Since.Time
		}
	}
	return out
}

func bundleState(b *v1alpha1.Bundle) string {
	switch {
	case b.Status.Retention != nil:
		return string(b.Status.Retention.Use)
	case b.Spec.Digest != "", meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved):
		return bundleApproved
	}
	return bundleFound
}
