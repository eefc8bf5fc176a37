package contents

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// errStop ends the reading at a change that is not covered.
var errStop = errors.New("what differs is not covered")

// Compare says what differs between two images of one platform. covers says of a change
// whether the reading goes on; nil goes on to the end. An error means that nothing could
// be read now.
func Compare(was, is Image, lim Limits, covers func(Change) bool) (Result, error) {
	c := &comparison{covers: covers, rest: Shared}
	c.out.Shared = shared(was.Layers, is.Layers)
	if c.out.Shared == 0 {
		c.rest = Absent
	}
	err := c.compare(was, is, lim)
	var why odd
	switch {
	case errors.Is(err, errStop):
		c.out.Stopped = true
	case errors.As(err, &why):
		return Result{Uncompared: string(why), Shared: c.out.Shared, Read: c.out.Read}, nil
	case err != nil:
		return Result{}, err
	}
	return c.out, nil
}

type comparison struct {
	covers   func(Change) bool
	out      Result
	rest     Presence
	old, now *tree
}

func (c *comparison) compare(was, is Image, lim Limits) error {
	if was.Platform != is.Platform {
		if err := c.note(Change{Path: "platform", What: []string{"content"}}); err != nil {
			return err
		}
	}
	for _, l := range labels(was.Labels, is.Labels) {
		if err := c.note(l); err != nil {
			return err
		}
	}
	a, b := was.Layers[c.out.Shared:], is.Layers[c.out.Shared:]
	if why := lim.tooMuch(a, b); why != "" {
		return odd(why)
	}
	r := &reader{lim: lim}
	defer func() { c.out.Read = r.read }()
	var err error
	if c.old, err = r.tree(a, c.rest, nil); err != nil {
		return err
	}
	r.kept = 0 // what was there is not written anywhere
	if c.now, err = r.tree(b, c.rest, c.early); err != nil {
		return err
	}
	return c.all()
}

// note a change; an error if it is not covered.
func (c *comparison) note(x Change) error {
	c.out.Changes = append(c.out.Changes, x)
	if c.covers != nil && !c.covers(x) {
		return errStop
	}
	return nil
}

// early ends the reading as soon as a file is seen that is not covered.
func (c *comparison) early(name string, e Entry) error {
	if e.Kind == Directory || c.covers == nil {
		return nil // what lies below is not known yet
	}
	x := Change{Path: "/" + name, Was: c.old.side(name), Is: Side{There, e}}
	if x.What = what(x); len(x.What) == 0 || c.covers(x) {
		return nil
	}
	c.out.Changes = append(c.out.Changes, x)
	return errStop
}

// all paths that either has, sorted.
func (c *comparison) all() error {
	names := map[string]bool{}
	for _, t := range []*tree{c.old, c.now} {
		for name := range t.nodes {
			names[name] = true
		}
		maps.Copy(names, t.gone)
		maps.Copy(names, t.emptied)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x := Change{Path: "/" + name, Was: c.old.side(name), Is: c.now.side(name)}
		if x.What = c.differs(name, x); len(x.What) == 0 {
			continue
		}
		if err := c.note(x); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) differs(name string, x Change) []string {
	if c.passing(name, x) {
		x.What = nil
	} else {
		x.What = what(x)
	}
	if len(x.What) == 0 && c.unlike(name) {
		x.What = []string{"emptied"}
	}
	return x.What
}

// what differs of a path.
func what(x Change) []string {
	switch was, is := x.Was.Presence, x.Is.Presence; {
	case was == There && is == There:
		return x.Was.Entry.differs(x.Is.Entry)
	case was == is:
		return nil
	case is == Absent:
		return []string{"removed"}
	case was == Absent && is == There:
		return []string{"added"}
	}
	return []string{"unread"}
}

// passing: a directory that only one image names, on the way to something else.
func (c *comparison) passing(name string, x Change) bool {
	known, other, in := x.Was, x.Is, c.old
	if known.Presence != There {
		known, other, in = x.Is, x.Was, c.now
	}
	if known.Presence != There || !known.Entry.ordinary() || !in.parents[name] && strings.Contains(name, "/") {
		return false
	}
	return other.Presence == Shared || other.Presence == Absent && in == c.now
}

// unlike: something of the shared layers is in a directory of one image, and nothing in
// that of the other.
func (c *comparison) unlike(name string) bool {
	below := name + "/x"
	return c.rest == Shared && c.old.hidden(below) != c.now.hidden(below)
}
