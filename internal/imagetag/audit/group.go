package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// auditor holds what is looked up often.
type auditor struct {
	*Facts
	nodes map[string]*model.ImageNode
	// long is the point of a repository by the digest behind it.
	long map[string]string
	// points of a repository.
	points map[string][]string
	// parsed references, by text.
	refs map[string]parsed
}

type parsed struct {
	ref imagetag.Ref
	ok  bool
}

func newAuditor(f *Facts) *auditor {
	m := &auditor{Facts: f, nodes: map[string]*model.ImageNode{}, long: map[string]string{}, points: map[string][]string{}, refs: map[string]parsed{}}
	for i := range f.Nodes {
		m.nodes[f.Nodes[i].Name] = &f.Nodes[i]
	}
	for name, p := range f.Published {
		r := m.ref(name)
		if !r.ok {
			continue
		}
		if p.Long != "" {
			m.indexLongTag(r.ref.Repository, p, p.Long)
		}
		if s, ok := m.scheme(r.ref.Repository); ok && r.ref.Tag != "" {
			if t, err := s.Parse(r.ref.Tag); err == nil && t.Point() {
				m.points[r.ref.Repository] = append(m.points[r.ref.Repository], r.ref.Tag)
				m.indexLongTag(r.ref.Repository, p, r.ref.Tag)
			}
		}
	}
	return m
}

func (m *auditor) indexLongTag(repository string, p model.Published, long string) {
	for _, d := range append([]string{p.Digest}, p.Same...) {
		if d != "" {
			m.long[repository+"@"+d] = long
		}
	}
}

func (m *auditor) scheme(repository string) (imagetag.Scheme, bool) {
	if m.Scheme == nil {
		return imagetag.Scheme{}, false
	}
	return m.Scheme(repository)
}

func (m *auditor) ref(image string) parsed {
	if p, ok := m.refs[image]; ok {
		return p
	}
	r, err := imagetag.ParseRef(image)
	if r.Tag == "" && r.Digest == "" {
		r.Tag = "latest"
	}
	p := parsed{r, err == nil}
	m.refs[image] = p
	return p
}

// group is what becomes one line: one container of one owner with one reference.
type group struct {
	where, container, image string
	members                 []member
}

type member struct {
	pod *model.ImagePod
	use *model.ImageUse
}

func (m *auditor) groupContainers() []*group {
	type key struct{ where, container, image string }
	byKey := map[key]*group{}
	var out []*group
	for i := range m.Pods {
		p := &m.Pods[i]
		where := p.Owner()
		for j := range p.Uses {
			u := &p.Uses[j]
			if u.Kind == model.UseEphemeral {
				continue
			}
			k := key{where, u.Container, u.Image}
			g := byKey[k]
			if g == nil {
				g = &group{where: where, container: u.Container, image: u.Image}
				byKey[k] = g
				out = append(out, g)
			}
			g.members = append(g.members, member{p, u})
		}
	}
	for _, g := range out { // messages must not depend on the order of a list
		slices.SortFunc(g.members, func(a, b member) int {
			return cmp.Or(strings.Compare(a.pod.Node, b.pod.Node), strings.Compare(a.pod.Name, b.pod.Name))
		})
	}
	return out
}

func kindOf(p *model.ImagePod) string {
	switch {
	case p.Static:
		return KindStatic
	case p.OwnerKind == model.OwnerDaemonSet && p.HostNetwork:
		return KindNetwork
	}
	return KindWorkload
}

// auditGroup returns the line of a group.
func (m *auditor) auditGroup(g *group) Line {
	first := g.members[0]
	l := Line{Where: g.where, Kind: kindOf(first.pod), Container: g.container, Image: g.image, Policy: string(first.use.Policy), Pods: len(g.members)}
	r := m.ref(g.image)
	if !r.ok {
		setStates(&l, []stateReason{{Unknown, "the reference cannot be read"}})
		return l
	}
	l.Running = m.runningDigests(g, r.ref)
	var all []stateReason
	all = append(all, m.findSkew(g, l.Running)...)
	all = append(all, m.compareRegistry(&l, g, r.ref)...)
	all = append(all, m.checkRestarts(g)...)
	all = append(all, m.checkPinned(g, r.ref)...)
	all = append(all, m.checkRollback(g, r.ref)...)
	setStates(&l, all)
	return l
}

func (m *auditor) identity(x member) model.ImageIdentity {
	n := m.nodes[x.pod.Node]
	if n == nil {
		return model.IdentityOf(x.use.Runs, "", "")
	}
	return model.IdentityOf(x.use.Runs, n.Runtime, n.Arch)
}

// runningDigests digests: those that are one image count together.
func (m *auditor) runningDigests(g *group, r imagetag.Ref) []Running {
	byRoot := map[string]*Running{}
	for _, x := range g.members {
		id := m.identity(x)
		if id.Empty() {
			continue
		}
		root := m.Same.Root(id.Digest())
		run := byRoot[root]
		if run == nil {
			run = &Running{Digest: id.Digest(), LongTag: m.long[r.Repository+"@"+id.Digest()]}
			byRoot[root] = run
		}
		run.Pods++
		if x.pod.Node != "" && !slices.Contains(run.Nodes, x.pod.Node) {
			run.Nodes = append(run.Nodes, x.pod.Node)
		}
	}
	out := make([]Running, 0, len(byRoot))
	for _, run := range byRoot {
		slices.Sort(run.Nodes)
		out = append(out, *run)
	}
	slices.SortFunc(out, func(a, b Running) int { return cmp.Or(b.Pods-a.Pods, strings.Compare(a.Digest, b.Digest)) })
	return out
}

// findSkew: two pods of one template that run two images, which is proven.
func (m *auditor) findSkew(g *group, running []Running) []stateReason {
	if len(running) < 2 {
		return nil
	}
	byRoot := map[string]model.ImageIdentity{}
	for _, x := range g.members {
		if id := m.identity(x); !id.Empty() {
			if root := m.Same.Root(id.Digest()); byRoot[root].Empty() {
				byRoot[root] = id
			}
		}
	}
	ids := make([]model.ImageIdentity, 0, len(byRoot))
	for _, id := range byRoot {
		ids = append(ids, id)
	}
	for i := range ids {
		for j := range ids[:i] {
			if m.Same.Compare(ids[i], ids[j]) == model.Different {
				return []stateReason{{Skewed, fmt.Sprintf("its replicas run %d images: %s", len(running), listRunning(running))}}
			}
		}
	}
	return []stateReason{{Unknown, fmt.Sprintf("its replicas report %d digests that may be of one image: %s", len(running), listRunning(running))}}
}

func listRunning(running []Running) string {
	parts := make([]string, len(running))
	for i, r := range running {
		name := r.LongTag
		if name == "" {
			name = text.ShortDigest(r.Digest)
		}
		parts[i] = fmt.Sprintf("%s on %s", name, firstNames(r.Nodes))
	}
	return strings.Join(parts, ", ")
}

func firstNames(names []string) string { return text.FirstOf(names, 4, " ") }

// checkRestarts: what the forecaster answers for a crash and a reboot.
func (m *auditor) checkRestarts(g *group) []stateReason {
	if m.Restart == nil {
		return nil
	}
	worst := map[string]stateReason{}
	nodes := map[string][]string{}
	for _, x := range g.members {
		for _, a := range m.Restart(x.pod, x.use) {
			word := map[string]string{model.OutcomeFails: Unrestartable, model.OutcomeChanges: Latent}[a.Outcome]
			if word == "" {
				continue
			}
			if _, ok := worst[word]; !ok {
				worst[word] = stateReason{word, fmt.Sprintf("a %s would not start it: %s", a.Event, a.Why)}
				if word == Latent {
					worst[word] = stateReason{word, fmt.Sprintf("a %s would run %s: %s", a.Event, text.ShortDigest(a.To), a.Why)}
				}
			}
			if !slices.Contains(nodes[word], x.pod.Node) {
				nodes[word] = append(nodes[word], x.pod.Node)
			}
		}
	}
	var out []stateReason
	for _, word := range []string{Unrestartable, Latent} {
		if s, ok := worst[word]; ok {
			slices.Sort(nodes[word])
			s.why += " (on " + firstNames(nodes[word]) + ")"
			out = append(out, s)
		}
	}
	return out
}

// checkPinned: without a registry an image that the kubelet may collect is lost.
func (m *auditor) checkPinned(g *group, r imagetag.Ref) []stateReason {
	if !m.Offline {
		return nil
	}
	name := r.Repository + ":" + r.Tag
	if r.Digest != "" {
		name = r.Repository + "@" + r.Digest
	}
	var on []string
	for _, x := range g.members {
		n := m.nodes[x.pod.Node]
		if n == nil || !n.PinnedKnown || slices.Contains(on, n.Name) {
			continue
		}
		if !pinnedOn(n, name) {
			on = append(on, n.Name)
		}
	}
	if len(on) == 0 {
		return nil
	}
	slices.Sort(on)
	return []stateReason{{Unpinned, "refit does not pin it on " + firstNames(on)}}
}

func pinnedOn(n *model.ImageNode, name string) bool {
	return slices.ContainsFunc(n.Images, func(c model.CachedImage) bool { return c.Pinned && slices.Contains(c.Names, name) })
}

// checkRollback: without a registry the image that ran before is on the nodes, or lost.
func (m *auditor) checkRollback(g *group, r imagetag.Ref) []stateReason {
	previous := m.Previous[r.Repository]
	if previous == "" || !m.Offline {
		return nil
	}
	var on []string
	for _, x := range g.members {
		n := m.nodes[x.pod.Node]
		if n == nil || !n.Complete || slices.Contains(on, n.Name) {
			continue
		}
		if !slices.ContainsFunc(n.Images, func(c model.CachedImage) bool { return slices.Contains(c.Names, r.Repository+"@"+previous) }) {
			on = append(on, n.Name)
		}
	}
	if len(on) == 0 {
		return nil
	}
	return []stateReason{{RollbackLost, fmt.Sprintf("%s, which ran before, is not on %s any more", nameOr(m.long[r.Repository+"@"+previous], previous), firstNames(on))}}
}
