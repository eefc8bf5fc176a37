package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// behind compares what runs with what the registry answers for the tag.
func (m *maker) behind(l *Line, g *group, r imagetag.Ref) []said {
	if r.Tag == "" {
		return nil // a digest alone follows nothing
	}
	p, ok := m.Published[r.Repository+":"+r.Tag]
	switch {
	case !ok && (m.Offline || r.Digest != ""): // applying a bundle is all that moves a tag here
		return nil
	case !ok:
		return []said{{Unasked, ""}}
	}
	l.Newest, l.LongTag = p.Digest, m.long[r.Repository+"@"+p.Digest]
	all := m.lies(r, p)
	if p.Mirror != "" && p.Digest != "" && m.Same.Root(p.Mirror) != m.Same.Root(p.Digest) {
		all = append(all, said{MirrorBehind, fmt.Sprintf("the mirror answers %s, the registry %s", text.ShortDigest(p.Mirror), text.ShortDigest(p.Digest))})
	}
	if p.Digest == "" {
		return all
	}
	return append(append(all, m.compared(l, g, r, p)...), m.newer(l, r)...)
}

func (m *maker) compared(l *Line, g *group, r imagetag.Ref, p model.Published) []said {
	different, unproven := m.against(g, p)
	switch {
	case different != nil:
		return []said{m.direction(*different, l, r, p)}
	case unproven:
		return []said{{Unknown, fmt.Sprintf("whether %s is the image that runs is not proven: they are digests of different kinds", text.ShortDigest(p.Digest))}}
	}
	return nil
}

// against finds a pod that provably runs another image than the tag means.
func (m *maker) against(g *group, p model.Published) (different *model.ImageIdentity, unproven bool) {
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

// direction of the difference, by long tags.
func (m *maker) direction(runs model.ImageIdentity, l *Line, r imagetag.Ref, p model.Published) said {
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
		return said{Stale, fmt.Sprintf("tag %s means %s now, a newer image%s; %s runs", r.Tag, to, kind, from)}
	case imagetag.Older:
		return said{Backwards, fmt.Sprintf("tag %s means %s now, which is older than %s that runs", r.Tag, to, from)}
	}
	return said{Differs, fmt.Sprintf("tag %s means %s now%s; %s runs, and which is newer is not known", r.Tag, nameOr(to, p.Digest), kind, nameOr(from, runs.Digest()))}
}

func nameOr(long, digest string) string {
	if long != "" {
		return long
	}
	return text.ShortDigest(digest)
}

// lies: the tag says another version than the image itself.
func (m *maker) lies(r imagetag.Ref, p model.Published) []said {
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
	return []said{{TagVersionMismatch, fmt.Sprintf("tag %s says version %s, the image says %s", r.Tag, t.App, p.Version)}}
}

// newer points of the repository than the newest that runs.
func (m *maker) newer(l *Line, r imagetag.Ref) []said {
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
		return []said{{NewerApp, fmt.Sprintf("version %s is published as %s", best.App, best.Text)}}
	case best.Rev != base.Rev:
		return []said{{NewerRev, fmt.Sprintf("revision %d of %s is published as %s", best.Rev, best.App, best.Text)}}
	}
	return nil
}
