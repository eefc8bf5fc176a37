package restartforecast

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// spreadKey is what an answer for any node depends on.
type spreadKey struct {
	image, policy, event, registry, runs, home, form, secrets, selector string
	static                                                              bool
}

// spread asks every node that the event may be on; the worst answer counts.
func (o *Forecaster) spread(q *question, a model.RestartAnswer) model.RestartAnswer {
	switch q.event {
	case Crash, Recreate, Reboot:
		if q.home == nil {
			return finish(a, verdict{outcome: model.OutcomeUnknown, reason: ReasonNotKnown, why: "nothing is known of node " + q.pod.Node})
		}
		return finish(a, o.startOnNode(q, q.home))
	case NewNode:
		return finish(a, o.startOnNode(q, o.freshNode(q)))
	}
	key := o.keyOf(q)
	if known, ok := o.memo[key]; ok {
		known.From = a.From
		return known
	}
	a = o.worstOfNodes(q, a)
	o.memo[key] = a
	return a
}

func (o *Forecaster) keyOf(q *question) spreadKey {
	k := spreadKey{image: q.use.Image, policy: string(q.policy), event: q.event, registry: q.registry, runs: q.use.Runs, static: q.pod.Static,
		secrets: strings.Join(secretsOf(q.pod), ","), selector: fmt.Sprint(q.pod.NodeSelector, q.pod.Tolerates)}
	if q.home != nil {
		k.form = q.home.Runtime + "/" + q.home.Arch
		k.home = q.home.Name
	}
	return k
}

// freshNode has no image: it is like the pod's own node otherwise.
func (o *Forecaster) freshNode(q *question) *node {
	n := model.ImageNode{Complete: true, Takes: true}
	like := q.home
	if like == nil && len(o.order) > 0 {
		like = o.order[0]
	}
	if like != nil {
		n.Runtime, n.Arch, n.Kubelet, n.Verification, n.Allowed = like.Runtime, like.Arch, like.Kubelet, like.Verification, like.Allowed
	}
	out := newNode(&n)
	out.fresh = true
	return out
}

// outcomeOrder orders outcomes, the worst last.
var outcomeOrder = []string{model.OutcomeNone, model.OutcomeSame, model.OutcomeStarts, model.OutcomeUnknown, model.OutcomeChanges, model.OutcomeFails}

// CompareOutcomes compares two outcomes: negative if a is the better one.
func CompareOutcomes(a, b string) int {
	return slices.Index(outcomeOrder, a) - slices.Index(outcomeOrder, b)
}

func (o *Forecaster) worstOfNodes(q *question, a model.RestartAnswer) model.RestartAnswer {
	var worst verdict
	var on []string
	asked := 0
	for _, n := range o.order {
		if !canSchedule(n, q.pod) || q.event == Reschedule && n == q.home {
			continue
		}
		asked++
		v := o.startOnNode(q, n)
		switch c := CompareOutcomes(v.outcome, worst.outcome); {
		case asked == 1 || c > 0:
			worst, on = v, []string{n.Name}
		case c == 0:
			on = append(on, n.Name)
		}
	}
	if asked == 0 {
		return finish(a, verdict{outcome: model.OutcomeNone, reason: ReasonNoNode, why: "no other node takes this pod now"})
	}
	a = finish(a, worst)
	if len(on) < asked {
		a.Nodes = on
	}
	return a
}

func canSchedule(n *node, p *model.ImagePod) bool {
	return n.Takes && p.Bears(n.Taints) && matches(p.NodeSelector, n.Labels)
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
