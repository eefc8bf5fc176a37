package restartforecast

import (
	"fmt"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/model"
)

// always is why a container with that policy pulls.
const always = "policy Always: the kubelet asks the registry at every start, also when the image is on the node"

// pull is what asking the registry gives; because says why it is asked.
func (o *Forecaster) pull(q *question, n *node, because string) verdict {
	reason := ReasonNotCached
	if because == always {
		reason = ReasonAlways
	}
	if q.registry == Down {
		return verdict{outcome: model.OutcomeFails, reason: reason, why: because + ", and the registry does not answer"}
	}
	if q.ref.Digest != "" {
		if o.site.GoneDigests[nameOf(q.ref)] {
			return verdict{outcome: model.OutcomeFails, reason: ReasonGone, why: because + ", and the registry does not have this digest any more"}
		}
		return o.digestStarts(q, ReasonDigest, because+"; a digest gives the same bytes")
	}
	name := nameOf(q.ref)
	p := o.site.Published[name]
	switch {
	case p.Gone:
		return verdict{outcome: model.OutcomeFails, reason: ReasonGone, why: fmt.Sprintf("%s, and the registry does not have %s any more", because, name)}
	case p.Pulled() == "":
		return verdict{outcome: model.OutcomeUnknown, reason: ReasonNotKnown, why: fmt.Sprintf("%s; what it answers for %s is not known here", because, name)}
	}
	return o.pulled(q, n, p, because)
}

func (o *Forecaster) pulled(q *question, n *node, p model.Published, because string) verdict {
	digest, name := p.Pulled(), nameOf(q.ref)
	if q.runs.Empty() {
		return verdict{outcome: model.OutcomeStarts, to: digest, reason: ReasonPulled, why: fmt.Sprintf("%s; for %s it answers %s", because, name, text.ShortDigest(digest))}
	}
	switch o.site.Same.Compare(q.runs, o.published(p, n)) {
	case model.Alike:
		return verdict{outcome: model.OutcomeSame, to: digest, reason: ReasonPulled, why: because + "; it still answers the image that runs"}
	case model.Different:
		return verdict{outcome: model.OutcomeChanges, to: digest, reason: ReasonMoved, why: fmt.Sprintf("%s; for %s it answers %s now", because, name, text.ShortDigest(digest))}
	}
	if p.Mirror == "" && len(p.Same) > 0 { // all digests of the published image are known, and what runs is none of them
		return verdict{outcome: model.OutcomeChanges, to: digest, reason: ReasonMoved, why: fmt.Sprintf("%s; for %s it answers %s now", because, name, text.ShortDigest(digest))}
	}
	return verdict{outcome: model.OutcomeUnknown, to: digest, reason: ReasonNotKnown,
		why: fmt.Sprintf("%s; for %s it answers %s, and whether that is the image that runs is not proven", because, name, text.ShortDigest(digest))}
}

// published is the identity of what a registry answers, as a node would report it
// after a pull. containerd reports the very digest that the registry answered;
// others may report that of the platform's manifest, so those are not compared
// but by what is known to be one image.
func (o *Forecaster) published(p model.Published, n *node) model.ImageIdentity {
	id := model.ImageIdentity{Digests: []string{p.Pulled()}}
	if p.Mirror == "" {
		id.Digests = append(id.Digests, p.Same...)
	}
	if n.Runtime == "containerd" {
		id.Runtime, id.Arch = n.Runtime, n.Arch
	}
	return id
}

// digestStarts: a reference with a digest starts that image and no other.
func (o *Forecaster) digestStarts(q *question, reason, why string) verdict {
	if q.runs.Empty() {
		return verdict{outcome: model.OutcomeStarts, to: q.ref.Digest, reason: reason, why: why}
	}
	return verdict{outcome: model.OutcomeSame, to: q.ref.Digest, reason: reason, why: why}
}
