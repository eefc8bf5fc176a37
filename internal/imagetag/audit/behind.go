package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// compareRegistry compares what runs with what the registry answers for the tag.
func (m *auditor) compareRegistry(l *Line, g *group, r imagetag.Ref) []stateReason {
	if r.Tag == "" {
		return nil // a digest alone follows nothing
	}
	p, ok := m.Published[r.Repository+":"+r.Tag]
	switch {
	case !ok && (m.Offline || r.Digest != ""): // applying a bundle is all that moves a tag here
		return nil
	case !ok:
		return []stateReason{{Unasked, ""}}
	}
	l.Newest, l.LongTag = p.Digest, m.long[r.Repository+"@"+p.Digest]
	all := m.versionMismatch(r, p)
	if p.Mirror != "" && p.Digest != "" && m.Same.Root(p.Mirror) != m.Same.Root(p.Digest) {
		all = append(all, stateReason{MirrorBehind, fmt.Sprintf("the mirror answers %s, the registry %s", text.ShortDigest(p.Mirror), text.ShortDigest(p.Digest))})
	}
	if p.Digest == "" {
		return all
	}
	return append(append(all, m.compareRunning(l, g, r, p)...), m.findNewer(l, r)...)
}

func (m *auditor) compareRunning(l *Line, g *group, r imagetag.Ref, p model.Published) []stateReason {
	different, unproven := m.findDifferent(g, p)
	switch {
	case different != nil:
		return []stateReason{m.classifyDifference(*different, l, r, p)}
	case unproven:
		return []stateReason{{Unknown, fmt.Sprintf("whether %s is the image that runs is not proven: they are digests of different kinds", text.ShortDigest(p.Digest))}}
	}
	return nil
}

// findDifferent finds a pod that provably runs another image than the tag means.
func (m *auditor) findDifferent(g *group, p model.Published) (different *model.ImageIdentity, unproven bool) {
	for _, x := range g.members {
		id := m.identity(x)
		if id.Empty() {
			continue
		}
		now := model.ImageIdentity{Digests: append([]string{p.Digest}, p.Same...)}
		if id.Runtime == "containerd" || len(p.Same) > 0 { // containerd reports the digest that the registry answered
			now.Runtime, now.Arch = id.Runtime, id.Arch
		}
		switch m.Same.Compare(id, now) {
		case model.Different:
			return &id, false
		case model.Unproven:
			unproven = true
		}
	}
	return nil, unproven
}

// classifyDifference of the difference, by long tags.
func (m *auditor) classifyDifference(runs model.ImageIdentity, l *Line, r imagetag.Ref, p model.Published) stateReason {
	from, to := m.long[r.Repository+"@"+runs.Digest()], l.LongTag
	s, declared := m.scheme(r.Repository)
	order := imagetag.Incomparable
	if declared && from != "" && to != "" {
		order, _ = s.Compare(to, from)
	}
	kind := ""
	if p.Security {
		kind = " that closes security holes"
	}
	switch order {
	case imagetag.Newer:
		return stateReason{Stale, fmt.Sprintf("tag %s means %s now, a newer image%s; %s runs", r.Tag, to, kind, from)}
	case imagetag.Older:
		return stateReason{Backwards, fmt.Sprintf("tag %s means %s now, which is older than %s that runs", r.Tag, to, from)}
	}
	return stateReason{Differs, fmt.Sprintf("tag %s means %s now%s; %s runs, and which is newer is not known", r.Tag, nameOr(to, p.Digest), kind, nameOr(from, runs.Digest()))}
}

func nameOr(long, digest string) string {
	if long != "" {
		return long
	}
	return text.ShortDigest(digest)
}

// versionMismatch reports a tag whose version differs from the image's.
func (m *auditor) versionMismatch(r imagetag.Ref, p model.Published) []stateReason {
	s, declared := m.scheme(r.Repository)
	if !declared || p.Version == "" {
		return nil
	}
	t, err := s.Parse(r.Tag)
	if err != nil || t.Tier == imagetag.Floating || t.App == "" {
		return nil
	}
	app, inside := strings.TrimPrefix(t.App, "v"), strings.TrimPrefix(p.Version, "v")
	if app == inside || slices.Contains(imagetag.Aggregates(inside), app) {
		return nil
	}
	if order, _ := imagetag.CompareApps(app, inside); order == imagetag.Same {
		return nil
	}
	return []stateReason{{TagVersionMismatch, fmt.Sprintf("tag %s says version %s, the image says %s", r.Tag, t.App, p.Version)}}
}

// findNewer points of the repository than the newest that runs.
func (m *auditor) findNewer(l *Line, r imagetag.Ref) []stateReason {
	s, declared := m.scheme(r.Repository)
	if !declared {
		return nil
	}
	from := l.LongTag
	for _, run := range l.Running {
		if run.LongTag != "" {
			from = run.LongTag
			break
		}
	}
	base, err := s.Parse(from)
	if from == "" || err != nil {
		return nil
	}
	best := base
	for _, point := range m.points[r.Repository] {
		t, err := s.Parse(point)
		if err != nil {
			continue
		}
		if order, _ := s.CompareTags(t, best); order == imagetag.Newer {
			best = t
		}
	}
	switch {
	case best.App != base.App:
		return []stateReason{{NewerApp, fmt.Sprintf("version %s is published as %s", best.App, best.Text)}}
	case best.Rev != base.Rev:
		return []stateReason{{NewerRev, fmt.Sprintf("revision %d of %s is published as %s", best.Rev, best.App, best.Text)}}
	}
	return nil
}
