package restartforecast

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/model"
)

// node is a node with its names indexed.
type node struct {
	*model.ImageNode
	names map[string]*model.CachedImage
	// pulls counts the containers that pull a tag at every start.
	pulls map[string]int
	// fresh: it stands for a node that will join, with no image at all.
	fresh bool
}

func newNode(n *model.ImageNode) *node {
	out := &node{ImageNode: n, names: map[string]*model.CachedImage{}, pulls: map[string]int{}}
	for i := range n.Images {
		for _, name := range n.Images[i].Names {
			out.names[name] = &n.Images[i]
		}
	}
	return out
}

// identity of an image as this node's runtime reports it.
func (n *node) identity(c *model.CachedImage) model.ImageIdentity {
	id := model.ImageIdentity{ID: c.ID, Runtime: n.Runtime, Arch: n.Arch}
	for _, name := range c.Names {
		if _, digest, ok := strings.Cut(name, "@"); ok && !slices.Contains(id.Digests, digest) {
			id.Digests = append(id.Digests, digest)
		}
	}
	return id
}

// startOnNode is one start on one node.
func (o *Forecaster) startOnNode(q *question, n *node) verdict {
	policy, both := o.policyNow(q)
	if !both {
		return o.startWith(q, n, policy)
	}
	// Whether the file of a static pod says Always cannot be seen.
	a, b := o.startWith(q, n, model.PullAlways), o.startWith(q, n, model.DefaultPullPolicy(q.ref.Tag, q.ref.Digest))
	if a.outcome == b.outcome && a.to == b.to {
		return a
	}
	return verdict{outcome: model.OutcomeUnknown, reason: ReasonNotKnown,
		why: "AlwaysPullImages writes Always into every pod that the API server shows; what the file of this static pod says, and the kubelet does, cannot be seen from here"}
}

// policyNow returns the policy that the kubelet would follow. both is true if the API does not
// show which of two it is.
func (o *Forecaster) policyNow(q *question) (policy model.PullPolicy, both bool) {
	if o.site.AlwaysPull != AdmissionOn {
		return q.policy, false
	}
	switch {
	case q.pod.Static:
		return q.policy, q.policy == model.PullAlways && q.home != nil
	case q.event == Crash || q.event == Reboot:
		return q.policy, false // the pod object stays as it is
	}
	return model.PullAlways, false
}

func (o *Forecaster) startWith(q *question, n *node, policy model.PullPolicy) verdict {
	name := nameOf(q.ref)
	if policy == model.PullAlways {
		return o.pull(q, n, always)
	}
	c := n.names[name]
	switch {
	case c != nil:
		return o.fromCache(q, n, c, policy)
	case !n.Complete:
		return o.perhapsCached(q, n, policy)
	case policy == model.PullNever:
		return verdict{outcome: model.OutcomeFails, reason: ReasonNever,
			why: fmt.Sprintf("policy Never, and %s does not have %s", n.label(), name)}
	}
	return o.pull(q, n, fmt.Sprintf("%s does not have %s", n.label(), name))
}

func (n *node) label() string {
	if n.fresh {
		return "a new node"
	}
	return "node " + n.Name
}

// fromCache: the name is on the node.
func (o *Forecaster) fromCache(q *question, n *node, c *model.CachedImage, policy model.PullPolicy) verdict {
	local := o.compareLocal(q, n, c)
	if why := o.mayBeCollected(q, n, c); why != "" {
		return o.eitherWay(q, n, local, policy, ReasonCollected, why)
	}
	if why := o.race(q, n, c); why != "" {
		return verdict{outcome: model.OutcomeUnknown, reason: ReasonRace, why: why}
	}
	allowed, why := o.allowed(q, n, c)
	switch {
	case allowed == yes:
		return local
	case allowed == perhaps:
		return o.eitherWay(q, n, local, policy, ReasonCredentials, why)
	case policy == model.PullNever:
		return verdict{outcome: model.OutcomeFails, reason: ReasonCredentials, why: "policy Never: " + why}
	}
	v := o.pull(q, n, why)
	if v.outcome == model.OutcomeFails {
		v.reason = ReasonCredentials
	}
	return v
}

// eitherWay is the answer if it is the same whether the copy on the node is used
// or not.
func (o *Forecaster) eitherWay(q *question, n *node, local verdict, policy model.PullPolicy, reason, why string) verdict {
	other := verdict{outcome: model.OutcomeFails}
	if policy != model.PullNever {
		other = o.pull(q, n, why)
	}
	if other.outcome == local.outcome && o.site.Same.Root(other.to) == o.site.Same.Root(local.to) {
		return local
	}
	return verdict{outcome: model.OutcomeUnknown, reason: reason, why: why}
}

// perhapsCached: the list of the node's images is cut off.
func (o *Forecaster) perhapsCached(q *question, n *node, policy model.PullPolicy) verdict {
	why := fmt.Sprintf("whether %s has %s is not known: its list of images is not complete", n.label(), nameOf(q.ref))
	if q.ref.Digest != "" && policy == model.PullIfNotPresent && q.registry == Up {
		if v := o.pull(q, n, why); v.outcome != model.OutcomeFails {
			return v // the same bytes, from wherever
		}
	}
	return verdict{outcome: model.OutcomeUnknown, reason: ReasonNotKnown, why: why}
}

// compareLocal compares what a name means on the node with what runs.
func (o *Forecaster) compareLocal(q *question, n *node, c *model.CachedImage) verdict {
	id := n.identity(c)
	if q.ref.Digest != "" {
		return o.digestStarts(q, ReasonDigest, fmt.Sprintf("%s has the image under its digest", n.label()))
	}
	name := nameOf(q.ref)
	if q.runs.Empty() {
		return verdict{outcome: model.OutcomeStarts, to: id.Digest(), reason: ReasonCached, why: fmt.Sprintf("%s has %s", n.label(), name)}
	}
	switch o.site.Same.Compare(q.runs, id) {
	case model.Alike:
		return verdict{outcome: model.OutcomeSame, to: q.runs.Digest(), reason: ReasonCached, why: fmt.Sprintf("%s has %s, and it is the image that runs", n.label(), name)}
	case model.Different:
		return verdict{outcome: model.OutcomeChanges, to: id.Digest(), reason: ReasonMoved,
			why: fmt.Sprintf("on %s the tag %s means another image than the one that runs: another pull or import moved it", n.label(), name)}
	}
	return verdict{outcome: model.OutcomeUnknown, to: id.Digest(), reason: ReasonNotKnown,
		why: fmt.Sprintf("%s has %s, but whether it is the image that runs is not proven: %s", n.label(), name, whyIncomparable(q.runs, id))}
}

// whyIncomparable says why two identities could not be compared.
func whyIncomparable(runs, other model.ImageIdentity) string {
	switch {
	case other.Empty():
		return "the node does not say the digest behind the name"
	case runs.Empty():
		return "what runs reports no digest"
	}
	return fmt.Sprintf("%s and %s are digests of different kinds (index, manifest or configuration)", text.ShortDigest(runs.Digest()), text.ShortDigest(other.Digest()))
}

// mayBeCollected says why the kubelet may collect the image before it is used.
func (o *Forecaster) mayBeCollected(q *question, n *node, c *model.CachedImage) string {
	if !n.Pressure || c.Pinned || c.Used || n == q.home && !q.runs.Empty() {
		return ""
	}
	return fmt.Sprintf("%s is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then", n.label())
}

// race: at a reboot all containers start, and one with policy Always moves the
// tag for all that start after it.
func (o *Forecaster) race(q *question, n *node, c *model.CachedImage) string {
	name := nameOf(q.ref)
	if q.event != Reboot || q.registry != Up || q.ref.Digest != "" || n.pulls[name] == 0 {
		return ""
	}
	p, known := o.site.Published[name]
	if known && p.Pulled() != "" && o.site.Same.Compare(n.identity(c), o.published(p, n)) == model.Alike {
		return ""
	}
	return fmt.Sprintf("another container of %s pulls %s at its start: which of the two starts first decides", n.label(), name)
}
