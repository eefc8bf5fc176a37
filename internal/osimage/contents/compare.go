package contents

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// errStop ends the comparison at a change that is not covered.
var errStop = errors.New("the difference is not covered")

// Compare returns the differences between two images of one platform. It stops at the first
// change for which covers is false; a nil covers compares to the end. An error means that the
// images are unreadable now.
func Compare(was, is Image, lim Limits, covers func(Change) bool) (Result, error) {
	c := &comparison{covers: covers, below: Shared}
	c.out.Shared = sharedLayers(was.Layers, is.Layers)
	if c.out.Shared == 0 {
		c.below = Absent
	}
	err := c.compare(was, is, lim)
	var why incomparable
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
	below    Presence
	old, now *tree
}

func (c *comparison) compare(was, is Image, lim Limits) error {
	if was.Platform != is.Platform {
		if err := c.addChange(Change{Path: "platform", What: []string{"content"}}); err != nil {
			return err
		}
	}
	for _, l := range changedLabels(was.Labels, is.Labels) {
		if err := c.addChange(l); err != nil {
			return err
		}
	}
	a, b := was.Layers[c.out.Shared:], is.Layers[c.out.Shared:]
	if why := lim.refusal(a, b); why != "" {
		return incomparable(why)
	}
	r := &reader{lim: lim}
	defer func() { c.out.Read = r.read }()
	var err error
	if c.old, err = r.readTree(a, c.below, nil); err != nil {
		return err
	}
	r.kept = 0 // agents write no content of the old image
	if c.now, err = r.readTree(b, c.below, c.stopEarly); err != nil {
		return err
	}
	return c.compareAll()
}

// addChange records a change; it returns errStop if the change is not covered.
func (c *comparison) addChange(x Change) error {
	c.out.Changes = append(c.out.Changes, x)
	if c.covers != nil && !c.covers(x) {
		return errStop
	}
	return nil
}

// stopEarly returns errStop at the first file that is not covered.
func (c *comparison) stopEarly(name string, e Entry) error {
	if e.Kind == Directory || c.covers == nil {
		return nil // the content of the directory is not known yet
	}
	x := Change{Path: "/" + name, Was: c.old.side(name), Is: Side{There, e}}
	if x.What = differences(x); len(x.What) == 0 || c.covers(x) {
		return nil
	}
	c.out.Changes = append(c.out.Changes, x)
	return errStop
}

// compareAll compares all paths of both images, sorted.
func (c *comparison) compareAll() error {
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
		if err := c.addChange(x); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) differs(name string, x Change) []string {
	if c.isIncidental(name, x) {
		x.What = nil
	} else {
		x.What = differences(x)
	}
	if len(x.What) == 0 && c.emptiedDiffers(name) {
		x.What = []string{"emptied"}
	}
	return x.What
}

// differences returns in which respects a path differs.
func differences(x Change) []string {
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

// isIncidental reports whether a path is a parent directory that only one image names.
func (c *comparison) isIncidental(name string, x Change) bool {
	known, other, in := x.Was, x.Is, c.old
	if known.Presence != There {
		known, other, in = x.Is, x.Was, c.now
	}
	if known.Presence != There || !known.Entry.ordinary() || !in.parents[name] && strings.Contains(name, "/") {
		return false
	}
	return other.Presence == Shared || other.Presence == Absent && in == c.now
}

// emptiedDiffers reports whether content of the shared layers is visible in a directory of one
// image, and hidden in that of the other.
func (c *comparison) emptiedDiffers(name string) bool {
	below := name + "/x"
	return c.below == Shared && c.old.isHidden(below) != c.now.isHidden(below)
}
