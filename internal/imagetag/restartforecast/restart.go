package restartforecast

import (
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// Events that start a container.
const (
	Crash      = "crash"      // the container ends; the kubelet starts it again in its pod
	Recreate   = "recreate"   // the pod is made again on its node
	Reboot     = "reboot"     // of its node
	Reschedule = "reschedule" // the pod is made again on another node of now
	NewNode    = "new-node"   // a replica on a node that has no images yet
	ScaleUp    = "scale-up"   // one more replica, on any node
)

// Events in the order in which they are shown.
func Events() []string { return []string{Crash, Recreate, Reboot, Reschedule, NewNode, ScaleUp} }

// States of the registry.
const (
	Up   = "up"
	Down = "down"
)

// Admission says whether the API server forces the policy Always on new pods.
type Admission string

// What is known of the admission plugin AlwaysPullImages.
const (
	AdmissionOff     Admission = "off"
	AdmissionOn      Admission = "on"
	AdmissionUnknown Admission = "unknown" // counts as off, as it is by default
)

// Site is what is known of the cluster and its registries.
type Site struct {
	Nodes []model.ImageNode
	// Pods of all nodes: another pod's pull may move a tag.
	Pods []model.ImagePod
	// Published by repository:tag.
	Published map[string]model.Published
	// GoneDigests are repository@digest that a registry says it does not have.
	GoneDigests map[string]bool
	Same        *model.SameImages
	AlwaysPull  Admission
}

// Forecaster answers questions about one site.
type Forecaster struct {
	site  Site
	nodes map[string]*node
	order []*node
	refs  map[string]parsed
	memo  map[spreadKey]model.RestartAnswer
}

type parsed struct {
	ref imagetag.Ref
	err error
}

// New reads the site once, so that many questions are cheap. The site must not
// change afterwards. One Forecaster is used by one goroutine at a time.
func New(s Site) *Forecaster {
	o := &Forecaster{site: s, nodes: map[string]*node{}, refs: map[string]parsed{}, memo: map[spreadKey]model.RestartAnswer{}}
	if o.site.Same == nil {
		o.site.Same = &model.SameImages{}
	}
	for i := range s.Nodes {
		n := newNode(&s.Nodes[i])
		o.nodes[n.Name] = n
		o.order = append(o.order, n)
	}
	for i := range s.Pods {
		o.countPulls(&s.Pods[i])
	}
	return o
}

// countPulls remembers which tags a reboot of the node would pull anew.
func (o *Forecaster) countPulls(p *model.ImagePod) {
	n := o.nodes[p.Node]
	if n == nil {
		return
	}
	for i := range p.Uses {
		if r := o.parseRef(p.Uses[i].Image); r.err == nil && policyOf(&p.Uses[i], r.ref) == model.PullAlways && r.ref.Digest == "" {
			n.pulls[nameOf(r.ref)]++
		}
	}
}

// parseRef parses a reference once. A missing tag is latest, as for the kubelet.
func (o *Forecaster) parseRef(image string) parsed {
	if p, ok := o.refs[image]; ok {
		return p
	}
	r, err := imagetag.ParseRef(image)
	if r.Tag == "" && r.Digest == "" {
		r.Tag = "latest"
	}
	p := parsed{r, err}
	o.refs[image] = p
	return p
}

// nameOf is the name under which a runtime looks for the image: with a digest
// the tag counts for nothing.
func nameOf(r imagetag.Ref) string {
	if r.Digest != "" {
		return r.Repository + "@" + r.Digest
	}
	return r.Repository + ":" + r.Tag
}

func policyOf(u *model.ImageUse, r imagetag.Ref) model.PullPolicy {
	if u.Policy != "" {
		return u.Policy
	}
	return model.DefaultPullPolicy(r.Tag, r.Digest)
}

// question is one container, event and state of the registry.
type question struct {
	pod      *model.ImagePod
	use      *model.ImageUse
	ref      imagetag.Ref
	policy   model.PullPolicy
	event    string
	registry string
	// runs is what runs now; home the node it runs on, nil for a template.
	runs model.ImageIdentity
	home *node
}

// Forecast answers one question. use is one of the pod's.
func (o *Forecaster) Forecast(p *model.ImagePod, u *model.ImageUse, event, registry string) model.RestartAnswer {
	a := model.RestartAnswer{Event: event, Registry: registry}
	r := o.parseRef(u.Image)
	q := &question{pod: p, use: u, ref: r.ref, event: event, registry: registry, home: o.nodes[p.Node]}
	if q.home != nil {
		q.runs = model.IdentityOf(u.Runs, q.home.Runtime, q.home.Arch)
	} else {
		q.runs = model.IdentityOf(u.Runs, "", "")
	}
	if !q.runs.Empty() {
		a.From = q.runs.Digest()
	}
	if word, why := notStarted(p, u, event); word != "" {
		return finish(a, verdict{outcome: model.OutcomeNone, reason: word, why: why})
	}
	if r.err != nil {
		return finish(a, verdict{outcome: model.OutcomeFails, reason: ReasonName, why: r.err.Error()})
	}
	q.policy = policyOf(u, r.ref)
	return o.spread(q, a)
}

// ForecastAll answers every event with the registry up and down.
func (o *Forecaster) ForecastAll(p *model.ImagePod, u *model.ImageUse) []model.RestartAnswer {
	var out []model.RestartAnswer
	for _, e := range Events() {
		for _, r := range []string{Up, Down} {
			out = append(out, o.Forecast(p, u, e, r))
		}
	}
	return out
}

// notStarted says why an event does not start a container, "" if it does.
func notStarted(p *model.ImagePod, u *model.ImageUse, event string) (word, why string) {
	for _, r := range exceptions {
		if r.holds(p, u, event) {
			return ReasonNotStarted, r.why
		}
	}
	return "", ""
}

// keepsPod: the pod object stays, its containers are started again.
func keepsPod(event string) bool { return event == Crash || event == Reboot }

// exceptions are containers that some events do not start.
var exceptions = []struct {
	holds func(p *model.ImagePod, u *model.ImageUse, event string) bool
	why   string
}{
	{func(_ *model.ImagePod, u *model.ImageUse, _ string) bool { return u.Kind == model.UseEphemeral },
		"an ephemeral container is never started again"},
	{func(_ *model.ImagePod, u *model.ImageUse, event string) bool {
		return u.Kind == model.UseInit && event == Crash
	}, "an init container that ended is not run again when another container crashes"},
	{func(p *model.ImagePod, _ *model.ImageUse, event string) bool {
		return p.Node == "" && (keepsPod(event) || event == Recreate)
	}, "there is no pod of this template yet"},
	{func(p *model.ImagePod, _ *model.ImageUse, event string) bool {
		return p.NotRestarted && keepsPod(event)
	},
		"restartPolicy Never: the kubelet does not start it again"},
	{func(p *model.ImagePod, _ *model.ImageUse, event string) bool {
		return p.Static && !keepsPod(event) && event != Recreate
	}, "a static pod stays on its node"},
	{func(p *model.ImagePod, _ *model.ImageUse, event string) bool {
		return p.OwnerKind == model.OwnerDaemonSet && (event == Reschedule || event == ScaleUp)
	}, "a DaemonSet has one pod on each node: only a new node adds one"},
	{func(p *model.ImagePod, _ *model.ImageUse, event string) bool {
		return p.OwnerKind == model.OwnerNone && !p.Static && p.Node != "" && !keepsPod(event)
	}, "no controller recreates this pod: it has no owner"},
}

// verdict is the answer for one node.
type verdict struct {
	outcome, to, reason, why string
}

// Reasons of answers.
const (
	ReasonCached      = "Cached"      // the name is on the node
	ReasonDigest      = "Digest"      // the digest names one image for ever
	ReasonMoved       = "TagMoved"    // on the node or in the registry the tag means another image than runs
	ReasonPulled      = "Pulled"      // the registry is asked and has it
	ReasonNotCached   = "NotCached"   // not on the node, and no registry answers
	ReasonAlways      = "PullAlways"  // the registry is asked although the image is there
	ReasonNever       = "NeverPulled" // not on the node, and it may not be pulled
	ReasonCredentials = "Credentials" // on the node, and the kubelet asks the registry whether this pod may have it
	ReasonGone        = "Gone"        // the registry does not have it any more
	ReasonNotKnown    = "NotKnown"    // a fact is missing
	ReasonRace        = "Race"        // two containers want one tag, and one pulls it
	ReasonCollected   = "Collected"   // the kubelet may collect the image before
	ReasonNoNode      = "NoNode"      // no node takes the pod
	ReasonName        = "IllegalName" // the reference cannot be read
	ReasonNotStarted  = "NotStarted"  // this event does not start the container
)

func finish(a model.RestartAnswer, v verdict) model.RestartAnswer {
	a.Outcome, a.To, a.Reason, a.Why = v.outcome, v.to, v.reason, v.why
	return a
}
