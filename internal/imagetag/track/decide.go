package track

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Take takes in what was found. A look that finds what is known changes nothing.
func Take(s State, l Look, now time.Time) State {
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
		p.learn(i)
		next = append(next, p)
	}
	if s.Approved != nil {
		for i := range next {
			if a := *s.Approved; a.Digest == next[i].Digest {
				a.learn(next[i].Image)
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
	s.Pointers = next
	return s
}

// learn takes over what was not known of an image.
func (i *Image) learn(from Image) {
	i.Long, i.App, i.Same = or(i.Long, from.Long), or(i.App, from.App), orList(i.Same, from.Same)
	i.Security, i.Vouched, i.Size = i.Security || from.Security, i.Vouched || from.Vouched, max(i.Size, from.Size)
}

func orList(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	return a
}

// Workload is a target, as far as it says which image it runs.
type Workload struct {
	Key string
	// Named is the digest in its template, "" if it has only a tag; Before what it
	// was at the look before.
	Named, Before string
}

// Found is what the targets name and run now.
type Found struct {
	Workloads []Workload
	// Running digests of their pods.
	Running []string
}

// Decide says what may be taken, takes what may be, and remembers what somebody
// went back from. It never looks at a clock for anything but ages.
func Decide(t Track, s State, f Found, now time.Time) (State, []Candidate) {
	s.History, s.RolledBack = slices.Clone(s.History), slices.Clone(s.RolledBack)
	s = goBack(t, s, f, now)
	cs := candidates(t, s, f, now)
	best := -1
	for i, c := range cs {
		if (c.Decision == Approved || c.Decision == Automatic) && (best < 0 || before(t, c, cs[best])) {
			best = i
		}
	}
	if best < 0 {
		return s, cs
	}
	return take(t, s, cs[best], now), slices.Delete(cs, best, best+1)
}

// before reports whether candidate a is taken rather than b: what a person
// approved, then the newer.
func before(t Track, a, b Candidate) bool {
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

// take makes a candidate what the targets are to run.
func take(t Track, s State, c Candidate, now time.Time) State {
	s.Taken = &Taken{Class: c.Class, By: t.by(c), From: s.Approved}
	if old := s.Approved; old != nil {
		s.History = remember(s.History, *old)
		if c.Class == Backwards { // whoever asked for it does not want what was left back at the next look
			s.Serial++
			s.RolledBack = forget(s.RolledBack, old.Digest)
			s.RolledBack = append(s.RolledBack, RolledBack{Digest: old.Digest, To: c.Digest, By: "approval", Serial: s.Serial, At: now})
		}
	}
	i := c.Image
	i.At = now
	s.Approved = &i
	s.RolledBack = forget(s.RolledBack, c.Digest)
	return s.bounded()
}

func remember(history []Image, i Image) []Image {
	history = slices.DeleteFunc(history, func(h Image) bool { return h.Digest == i.Digest })
	return append([]Image{i}, history...)
}

func forget(list []RolledBack, digest string) []RolledBack {
	return slices.DeleteFunc(list, func(r RolledBack) bool { return r.Digest == digest })
}

func (s State) bounded() State {
	s.History = s.History[:min(len(s.History), maxHistory)]
	s.RolledBack = s.RolledBack[max(0, len(s.RolledBack)-maxLeft):]
	return s
}

// goBack leaves what is approved if a person refused it, or took a workload back
// from it.
func goBack(t Track, s State, f Found, now time.Time) State {
	if s.Approved == nil {
		return s
	}
	if _, refused := t.Refused[s.Approved.Digest]; refused {
		for _, h := range s.History {
			if _, too := t.Refused[h.Digest]; !too && !s.left(h.Digest) {
				return back(s, h, "spec.refused", now)
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
				return back(s, h, w.Key, now)
			}
		}
		return letGo(s, w.Key, now)
	}
	return s
}

// letGo: somebody took the digest out of a workload, or put in one that is not of
// this track. What the others are to run they did not say, so nothing is approved
// until a person says so, or something newer comes; two who write never take
// turns.
func letGo(s State, by string, now time.Time) State {
	s.Serial++
	s.RolledBack = append(forget(s.RolledBack, s.Approved.Digest), RolledBack{Digest: s.Approved.Digest, By: by, Serial: s.Serial, At: now})
	s.History = remember(s.History, *s.Approved)
	s.Approved = nil
	return s.bounded()
}

func (s *State) left(digest string) bool {
	return slices.ContainsFunc(s.RolledBack, func(r RolledBack) bool { return r.Digest == digest })
}

func back(s State, to Image, by string, now time.Time) State {
	s.Serial++
	from := s.Approved.Digest
	s.RolledBack = append(forget(forget(s.RolledBack, from), to.Digest), RolledBack{Digest: from, To: to.Digest, By: by, Serial: s.Serial, At: now})
	s.History = slices.DeleteFunc(s.History, func(h Image) bool { return h.Digest == to.Digest })
	s.Taken = &Taken{By: by, From: s.Approved}
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
		c.Class, c.Why = classOf(t, s, f, &p.Image)
		for _, r := range s.RolledBack {
			if r.Digest == p.Digest {
				c.Serial = max(c.Serial, r.Serial)
			}
		}
		decide(t, s, &c, now)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		if before(t, a, b) {
			return -1
		}
		if before(t, b, a) {
			return 1
		}
		return 0
	})
	return out
}

// classOf compares with what is approved; at the beginning with what runs, and
// with every one of it: the most careful answer counts.
func classOf(t Track, s State, f Found, to *Image) (Class, string) {
	if s.Approved != nil {
		return Classify(t, s.Approved, to)
	}
	class, why := Classify(t, nil, to)
	for _, d := range append(slices.Clone(f.Running), named(f)...) {
		from := s.Known(d)
		if from == nil {
			from = &Image{Digest: d, Tag: to.Tag}
		}
		if c, w := Classify(t, from, to); rank(c) > rank(class) {
			class, why = c, w
		}
	}
	return class, why
}

func named(f Found) (out []string) {
	for _, w := range f.Workloads {
		if w.Named != "" {
			out = append(out, w.Named)
		}
	}
	return out
}

// rank of a class: how much care it takes.
func rank(c Class) int {
	return slices.Index([]Class{Adopt, Security, Rebuild, ImageFix, NewVersion, Unordered, Backwards, TagVersionMismatch}, c)
}

// decide fills in the decision; it adds to why.
func decide(t Track, s State, c *Candidate, now time.Time) {
	approval, given := t.approval(c.Digest)
	valid := given && approval.Serial >= c.Serial
	say := func(d Decision, why string) {
		c.Decision = d
		c.Why += "; " + why
	}
	if why := blocked(t, s, c, approval, valid); why != "" {
		say(Blocked, why)
		return
	}
	switch {
	case t.Freeze && (valid || c.Class == Adopt):
		say(Waits, "the track is frozen (spec.freeze)")
	case valid:
		say(Approved, "approved by its digest")
	case given:
		say(NeedsApproval, fmt.Sprintf("the approval was for what the tag named before (serial %d, now %d): look again, and approve again", approval.Serial, c.Serial))
	default:
		say(byItself(t, c, now))
	}
}

// blocked says what a plain approval does not help against, "" if nothing.
func blocked(t Track, s State, c *Candidate, approval Approval, valid bool) string {
	reason, refused := t.Refused[c.Digest]
	switch {
	case refused:
		return fmt.Sprintf("refused: %s (take it out of spec.refused to allow it)", or(reason, "no reason given"))
	case c.Class == TagVersionMismatch:
		return "nobody can take it: the publisher must give it the tag of its version"
	case s.left(c.Digest) && !valid:
		return "somebody rolled back from it; it stays refused until a newer one comes, or refit tags approve names it again"
	case c.Class != Backwards && c.Class != Unordered, valid && approval.AnyOrder:
		return ""
	}
	return "nothing goes backwards by itself; if that is meant, refit tags approve --any-order"
}

// byItself says whether a candidate that nobody approved moves, and why not.
func byItself(t Track, c *Candidate, now time.Time) (Decision, string) {
	switch {
	case c.Class == Adopt:
		return Automatic, "nothing changes but the name"
	case c.Class == Security && !c.Vouched && !t.permits(c):
		return NeedsApproval, "a label alone lifts no approval: it counts as Rebuild, which does not move by itself here (spec.automatic)"
	case !t.permits(c):
		return NeedsApproval, string(c.Class) + " does not move by itself here (spec.automatic)"
	case t.Critical && (c.Class != Security || !c.Vouched):
		return NeedsApproval, "a node needs one of the workloads, and only security rebuilds that an approved bundle confirms move by themselves there"
	case t.Freeze:
		return Waits, "the track is frozen (spec.freeze)"
	case now.Sub(c.At) < t.MinAge:
		return Waits, fmt.Sprintf("it moves by itself at %s, when it is %s old", c.At.Add(t.MinAge).UTC().Format(time.RFC3339), t.MinAge)
	}
	return Automatic, string(c.Class) + " moves by itself here"
}

// permits reports whether the track lets a class move by itself. A security rebuild is
// a rebuild too; more only if somebody vouches for its label.
func (t Track) permits(c *Candidate) bool {
	if c.Class == Security {
		return t.Auto[Rebuild] || c.Vouched && t.Auto[Security]
	}
	return t.Auto[c.Class]
}

// by whom a candidate is taken.
func (t Track) by(c Candidate) string {
	a, given := t.approval(c.Digest)
	switch {
	case c.Decision != Approved || !given:
		return "automatic"
	case a.Reason != "":
		return or(a.By, "somebody") + ": " + a.Reason
	}
	return or(a.By, "somebody")
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
