package gate

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// SilentAfter is how long an agent, which says every so many seconds that it
// lives, may be unheard before the gate closes: three times that, and three
// minutes at least.
func SilentAfter(heartbeatSeconds int32) time.Duration {
	return max(3*time.Minute, 3*time.Duration(heartbeatSeconds)*time.Second)
}

// Answers of a check; the words of the API's CheckResult.
const (
	Passed   = "Passed"
	Closed   = "Closed"
	Warned   = "Warned"
	Accepted = "Accepted"
)

// Answer is what one check said.
type Answer struct {
	Name   string
	Result string
	// Blockers that close the gate, or did before the risk was accepted, and
	// Warnings.
	Blockers, Warnings int
}

// Result of asking every check.
type Result struct {
	Blockers []model.Blocker
	// Warnings do not keep the gate closed.
	Warnings []model.Blocker
	// Closed names the checks that said no, in order.
	Closed []string
	// Answers of all checks, in order.
	Answers []Answer
	// Risks says what became of each accepted risk, by its check's name.
	Risks []RiskOutcome
}

// Open reports whether the update may start.
func (r Result) Open() bool { return len(r.Blockers) == 0 }

// Check is one question.
type Check struct {
	Name string
	// Question is the question in words.
	Question string
	// NeverAcceptable is the reason why this check's "no" cannot be accepted; empty if it
	// can.
	NeverAcceptable string
	// Evaluate returns every reason against, and what is only worth knowing.
	Evaluate func(*Input) (blockers, warnings []model.Blocker)
}

// Checks in the order in which a person should read their answers.
func Checks() []Check {
	return []Check{
		{"bundle-approved", "is the bundle verified and approved?", "nothing unapproved is ever loaded or run", bundleApproved},
		{"plan", "is every change covered, at a supported distance of versions?", "what no updater can do is not done by accepting it", planComplete},
		{"constraints", "is the bundle made for every node that it updates?", "", ofNodes("constraints")},
		{"plan-unchanged", "is the plan the one that was approved?", "the plan that runs is the plan that was shown: check the new plan and approve it", planUnchanged},
		{"no-other-update", "does no other update move nodes?", "two updates at once would spend each other's budgets", noOtherUpdate},
		{"space", "is there room for the images, and for snapshots of etcd?", "a full disk stops the node that it is on, and its pins with it", ofNodes("space")},
		{"agents", "is every node's agent heard?", "without its agent a node can be neither moved nor watched", ofNodes("agents")},
		{"agent-versions", "does every node's agent have what the plan needs?", "a step that an agent cannot run would stop a drained node", ofNodes("agent-versions")},
		{"nodes-ready", "is every node of the plan Ready?", "", ofNodes("nodes-ready")},
		{"control-plane", "is every control-plane node Ready?", "this update does not repair a lost control plane", controlPlane},
		{"quorum", "is every etcd member healthy?", "this update cannot restore a lost quorum", quorum},
		{"etcd-space", "has etcd room left?", "", ofNodes("etcd-space")},
		{"images-held", "does every node hold and pin every image?", "nothing is changed before every node holds what it needs to come back", ofNodes("images-held")},
		{"payloads-held", "does every node hold the files its updaters need?", "nothing is changed before every node holds what it needs to come back", ofNodes("payloads-held")},
		{"os-images-held", "does every node hold the OS image that it is to boot?", "", osImagesReady},
		{"os-images-fit", "can the nodes boot their OS images, and join with them?", "", osImagesFit},
		{OSImagesBuilt, "has every pool the OS image of its current configuration?", "", osImagesBuilt},
		{"kernel-arguments", "does no new kernel argument keep a node from starting?", "", kernelArguments},
		{"pressure", "is no node of the plan short of disk, memory or processes?", "", ofNodes("pressure")},
		{"certificates", "do all certificates outlast the update?", "", ofNodes("certificates")},
		{"clock", "are the clocks of the nodes right?", "", ofNodes("clock")},
		{"drift", "is every node of the plan as refit made it?", "", ofNodes("drift")},
		{"cordons", "has nobody else cordoned a node of the plan?", "", ofNodes("cordons")},
		{HealthChecks, "do the health checks of the pools pass?", "", healthChecks},
		{"budgets", "can the nodes be drained?", "", budgets},
		{"webhooks", "do webhooks that fail closed outlive the drains?", "", webhooks},
		{"removed-apis", "does the target serve every API that clients use?", "", removedAPIs},
		{"boot-images", "can machines join that are made after the update?", "", bootImages},
		{"image-pulls", "does nothing ask a registry for images that are here?", "", imagePulls},
		{"image-references", "does everything that a node needs start again as it is, without a registry?", "", imageReferences},
	}
}

// FindCheck finds a check by its name.
func FindCheck(name string) (Check, bool) {
	for _, c := range Checks() {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// Decide asks every check.
func Decide(in Input) Result { return DecideFrom(in, CheckNodes(in, nil)) }

// DecideFrom asks every check; nodes are the findings of CheckNodes for the same input.
func DecideFrom(in Input, nodes []*NodeFindings) Result {
	var r Result
	in.answers = newAnswers(nodes)
	risks := newRisks(in.Accepted, in.Now)
	for _, c := range Checks() {
		blockers, warnings := c.Evaluate(&in)
		if what, missing := in.Unknown[c.Name]; missing {
			warnings = append(warnings, factsUnknown(c, what))
		}
		if in.Pending[c.Name] {
			blockers = append(blockers, factsPending(c))
		}
		a := Answer{Name: c.Name, Result: Passed, Blockers: len(blockers), Warnings: len(warnings)}
		switch {
		case len(blockers) > 0 && risks.accept(c, len(blockers)):
			a.Result = Accepted
			warnings = append(risks.asWarnings(c, blockers), warnings...)
			blockers = nil
		case len(blockers) > 0:
			a.Result = Closed
			r.Closed = append(r.Closed, c.Name)
		case len(warnings) > 0:
			a.Result = Warned
		}
		r.Answers = append(r.Answers, a)
		r.Blockers = append(r.Blockers, blockers...)
		r.Warnings = append(r.Warnings, warnings...)
	}
	outcomes, said := risks.outcomes()
	r.Risks = outcomes
	r.Warnings = append(r.Warnings, said...)
	return r
}

func factsPending(c Check) model.Blocker {
	return model.Blocker{Reason: reasonFactUnknown, Waiting: true, Message: "check " + c.Name + " (" + c.Question + ") waits until its facts are read"}
}

func factsUnknown(c Check, what string) model.Blocker {
	return model.Blocker{Reason: reasonFactUnknown, Waiting: true,
		Message: "check " + c.Name + " (" + c.Question + ") could not be asked in full: " + what}
}
