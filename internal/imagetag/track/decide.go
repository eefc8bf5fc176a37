package track

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Observe updates the state from an observation. One without news changes nothing.
func Observe(s State, l Observation, now time.Time) State {
	old := map[string]Pointer{}
	for _, p := range s.Pointers {
		old[p.Tag] = p
	}
	var next []Pointer
	for _, i := range l.Images {
		p, known := old[i.Tag]
		if !known || p.Digest != i.Digest {
			s.Serial++
			i.At = now
			next = append(next, Pointer{Image: i, Serial: s.Serial})
			continue
		}
		p.Gone = false
		p.merge(i)
		next = append(next, p)
	}
	if s.Approved != nil {
		for i := range next {
			if a := *s.Approved; a.Digest == next[i].Digest {
				a.merge(next[i].Image)
				s.Approved = &a
			}
		}
	}
	for _, text := range l.Gone {
		if p, known := old[text]; known {
			p.Gone = true
			next = append(next, p)
		}
	}
	slices.SortFunc(next, func(a, b Pointer) int { return cmp.Compare(a.Tag, b.Tag) })
	s.Pointers, s.Minors = next, l.Minors
	return s
}

// merge fills in what was not known of an image.
func (i *Image) merge(from Image) {
	i.Long, i.App, i.Same = or(i.Long, from.Long), or(i.App, from.App), orList(i.Same, from.Same)
	i.Severity, i.Fixes, i.ManifestsChange = or(i.Severity, from.Severity), orList(i.Fixes, from.Fixes), i.ManifestsChange || from.ManifestsChange
	i.Security, i.Vouched, i.Size = i.Security || from.Security, i.Vouched || from.Vouched, max(i.Size, from.Size)
}

func orList(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	return a
}

// Workload is a target with the image of its template.
type Workload struct {
	Key string
	// Named is the digest in its template, "" if it has only a tag; Before is the digest at
	// the observation before.
	Named, Before string
}

// Found has the images that the targets name and run now.
type Found struct {
	Workloads []Workload
	// Running digests of their pods.
	Running []string
	// Signatures by digest, of images of repositories with a rule.
	Signatures map[string]Signature
}

// Decide classifies the candidates, selects at most one that may be rolled out, and remembers
// from which digests users rolled back. It uses now only for ages.
func Decide(t Track, s State, f Found, now time.Time) (State, []Candidate) {
	s.History, s.RolledBack = slices.Clone(s.History), slices.Clone(s.RolledBack)
	s = followRollback(t, s, f, now)
	cs := candidates(t, s, f, now)
	best := -1
	for i, c := range cs {
		if (c.Decision == Approved || c.Decision == Automatic) && (best < 0 || preferred(t, c, cs[best])) {
			best = i
		}
	}
	if best < 0 {
		return s, cs
	}
	return selectCandidate(t, s, cs[best], now), slices.Delete(cs, best, best+1)
}

// preferred reports whether candidate a wins over b: an approved one, then the newer.
func preferred(t Track, a, b Candidate) bool {
	if (a.Decision == Approved) != (b.Decision == Approved) {
		return a.Decision == Approved
	}
	if a.Decision == Approved && a.Serial != b.Serial {
		return a.Serial > b.Serial
	}
	switch c, _ := Classify(t, &b.Image, &a.Image); c {
	case Security, Rebuild, ImageFix, NewVersion:
		return true
	}
	return false
}

// selectCandidate makes a candidate the approved image of the targets.
func selectCandidate(t Track, s State, c Candidate, now time.Time) State {
	s.Selection = &Selection{Class: c.Class, By: t.actor(c), From: s.Approved}
	if old := s.Approved; old != nil {
		s.History = addToHistory(s.History, *old)
		if c.Class == Backwards { // otherwise the next observation would select the newer image again
			s.Serial++
			s.RolledBack = dropRolledBack(s.RolledBack, old.Digest)
			s.RolledBack = append(s.RolledBack, RolledBack{Digest: old.Digest, To: c.Digest, By: "approval", Serial: s.Serial, At: now})
		}
	}
	i := c.Image
	i.At = now
	s.Approved = &i
	s.RolledBack = dropRolledBack(s.RolledBack, c.Digest)
	return s.bounded()
}

func addToHistory(history []Image, i Image) []Image {
	history = slices.DeleteFunc(history, func(h Image) bool { return h.Digest == i.Digest })
	return append([]Image{i}, history...)
}

func dropRolledBack(list []RolledBack, digest string) []RolledBack {
	return slices.DeleteFunc(list, func(r RolledBack) bool { return r.Digest == digest })
}

func (s State) bounded() State {
	s.History = s.History[:min(len(s.History), maxHistory)]
	s.RolledBack = s.RolledBack[max(0, len(s.RolledBack)-maxLeft):]
	return s
}

// followRollback gives up the approved image if a user refused it or rolled a workload back
// from it.
func followRollback(t Track, s State, f Found, now time.Time) State {
	if s.Approved == nil {
		return s
	}
	if _, refused := t.Refused[s.Approved.Digest]; refused {
		for _, h := range s.History {
			if _, too := t.Refused[h.Digest]; !too && !s.wasRolledBack(h.Digest) {
				return rollBackTo(s, h, "spec.refused", now)
			}
		}
		return s
	}
	for _, w := range f.Workloads {
		if !s.Approved.Is(w.Before) || s.Approved.Is(w.Named) {
			continue
		}
		for _, h := range s.History {
			if h.Is(w.Named) {
				return rollBackTo(s, h, w.Key, now)
			}
		}
		return withdrawApproved(s, w.Key, now)
	}
	return s
}

// withdrawApproved: a user removed the digest from a workload, or wrote one that is not of this
// track. The image of the other workloads is unknown then, so none is approved until a user
// approves one or a newer one appears. Thus two writers never alternate.
func withdrawApproved(s State, by string, now time.Time) State {
	s.Serial++
	s.RolledBack = append(dropRolledBack(s.RolledBack, s.Approved.Digest), RolledBack{Digest: s.Approved.Digest, By: by, Serial: s.Serial, At: now})
	s.History = addToHistory(s.History, *s.Approved)
	s.Approved = nil
	return s.bounded()
}

func (s *State) wasRolledBack(digest string) bool {
	return slices.ContainsFunc(s.RolledBack, func(r RolledBack) bool { return r.Digest == digest })
}

func rollBackTo(s State, to Image, by string, now time.Time) State {
	s.Serial++
	from := s.Approved.Digest
	s.RolledBack = append(dropRolledBack(dropRolledBack(s.RolledBack, from), to.Digest), RolledBack{Digest: from, To: to.Digest, By: by, Serial: s.Serial, At: now})
	s.History = slices.DeleteFunc(s.History, func(h Image) bool { return h.Digest == to.Digest })
	s.Selection = &Selection{By: by, From: s.Approved}
	to.At = now
	s.Approved = &to
	return s.bounded()
}

func candidates(t Track, s State, f Found, now time.Time) []Candidate {
	var out []Candidate
	for _, p := range s.Pointers {
		if p.Gone || s.Approved.Is(p.Digest) || slices.ContainsFunc(out, func(c Candidate) bool { return c.Digest == p.Digest }) {
			continue
		}
		c := Candidate{Image: p.Image, Serial: p.Serial}
		c.Vouched = c.Vouched || c.Security && f.Signatures[p.Digest].Signer != ""
		c.Class, c.Why = classOf(t, s, f, &c.Image)
		c.Skips = skippedMinors(t, s, f, &c)
		for _, r := range s.RolledBack {
			if r.Digest == p.Digest {
				c.Serial = max(c.Serial, r.Serial)
			}
		}
		decide(t, s, &c, f.Signatures[p.Digest], now)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		if preferred(t, a, b) {
			return -1
		}
		if preferred(t, b, a) {
			return 1
		}
		return 0
	})
	return out
}

// classOf compares with the approved image. Without one, it compares with every running image,
// and the class that needs most care counts.
func classOf(t Track, s State, f Found, to *Image) (Class, string) {
	if s.Approved != nil {
		return Classify(t, s.Approved, to)
	}
	class, why := Classify(t, nil, to)
	for _, d := range append(slices.Clone(f.Running), namedDigests(f)...) {
		from := s.Known(d)
		if from == nil {
			from = &Image{Digest: d, Tag: to.Tag}
		}
		if c, w := Classify(t, from, to); careRank(c) > careRank(class) {
			class, why = c, w
		}
	}
	return class, why
}

func namedDigests(f Found) (out []string) {
	for _, w := range f.Workloads {
		if w.Named != "" {
			out = append(out, w.Named)
		}
	}
	return out
}

// careRank orders classes by how much care they need.
func careRank(c Class) int {
	return slices.Index([]Class{Adopt, Security, Rebuild, ImageFix, NewVersion, Unordered, Backwards, TagVersionMismatch}, c)
}

// decide sets the decision of a candidate and extends its reason.
func decide(t Track, s State, c *Candidate, signature Signature, now time.Time) {
	approval, given := t.approval(c.Digest)
	valid := given && approval.Serial >= c.Serial
	say := func(d Decision, why string) {
		c.Decision = d
		c.Why += "; " + why
	}
	if why := cmp.Or(signature.Refused, blocked(t, s, c, approval, valid)); why != "" {
		say(Blocked, why)
		return
	}
	switch {
	case t.Freeze && (valid || c.Class == Adopt):
		say(Waits, "the track is frozen (spec.freeze)")
	case valid:
		say(Approved, "approved by its digest")
	case given:
		say(NeedsApproval, fmt.Sprintf("the approval was for an earlier image of the tag (serial %d, now %d): check it and approve again", approval.Serial, c.Serial))
	default:
		say(decideAutomatic(t, c, now))
	}
}

// blocked returns why a plain approval does not suffice, "" if it does.
func blocked(t Track, s State, c *Candidate, approval Approval, valid bool) string {
	reason, refused := t.Refused[c.Digest]
	switch {
	case refused:
		return fmt.Sprintf("refused: %s (take it out of spec.refused to allow it)", or(reason, "no reason given"))
	case c.Class == TagVersionMismatch:
		return "no approval helps: the publisher must push it under the tag of its version"
	case len(c.Skips) > 0:
		return describeSkipped(c.Skips)
	case s.wasRolledBack(c.Digest) && !valid:
		return "it was rolled back; it stays refused until a newer image appears, or until refit tags approve names it again"
	case c.Class != Backwards && c.Class != Unordered, valid && approval.AnyOrder:
		return ""
	}
	return "refit never moves to an older image by itself; to allow it, use refit tags approve --any-order"
}

// decideAutomatic decides about a candidate without an approval.
func decideAutomatic(t Track, c *Candidate, now time.Time) (Decision, string) {
	if c.Class == Adopt {
		return Automatic, "only the name changes"
	}
	if why := t.needsApproval(c); why != "" {
		return NeedsApproval, why
	}
	switch {
	case t.Freeze:
		return Waits, "the track is frozen (spec.freeze)"
	case now.Sub(c.At) < t.MinAge:
		return Waits, fmt.Sprintf("it moves by itself at %s, when it is %s old", c.At.Add(t.MinAge).UTC().Format(time.RFC3339), t.MinAge)
	}
	return Automatic, string(c.Class) + " moves by itself here"
}

// needsApproval returns why a candidate does not move by itself, "" if it does.
func (t Track) needsApproval(c *Candidate) string {
	switch {
	case c.Severity == Disruptive:
		return "its publisher calls it disruptive (label " + SecurityLabel + ", or its release record): it never moves by itself"
	case c.ManifestsChange:
		return "manifests change with it, says its release record: apply them, then approve the image"
	case c.Class == Security && !c.Vouched && !t.permits(c):
		return "a label alone lifts no approval: it counts as Rebuild, which does not move by itself here (spec.automatic)"
	case !t.permits(c):
		return string(c.Class) + " does not move by itself here (spec.automatic)"
	case t.Critical && (c.Class != Security || !c.Vouched):
		return "a node needs one of the workloads, and only security rebuilds that an approved bundle or a signature confirms move by themselves there"
	}
	return ""
}

// permits reports whether the track rolls out a class by itself. A security rebuild is also a
// rebuild; its own class counts only if an approved bundle or a signature confirms the label.
func (t Track) permits(c *Candidate) bool {
	if c.Class == Security {
		return t.Auto[Rebuild] || c.Vouched && t.Auto[Security]
	}
	return t.Auto[c.Class]
}

// actor returns by whom a candidate was selected.
func (t Track) actor(c Candidate) string {
	a, given := t.approval(c.Digest)
	switch {
	case c.Decision != Approved || !given:
		return "automatic"
	case a.Reason != "":
		return or(a.By, "an unnamed user") + ": " + a.Reason
	}
	return or(a.By, "an unnamed user")
}

// approval of a digest, the latest.
func (t Track) approval(digest string) (a Approval, ok bool) {
	for _, x := range t.Approvals {
		if x.Digest == digest && (!ok || x.Serial > a.Serial) {
			a, ok = x, true
		}
	}
	return a, ok
}
