package oci

import (
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// OnlyAddsMirrors reports whether a registries.conf differs from an older one in nothing but new
// mirrors that are asked by digest alone and over TLS: no name means another image then. A text that
// cannot be read differs in more.
func OnlyAddsMirrors(old, wanted string) bool {
	was, err := readMirrorFile(old)
	if err != nil {
		return false
	}
	is, err := readMirrorFile(wanted)
	if err != nil || !reflect.DeepEqual(was.others, is.others) {
		return false
	}
	for i := range was.entries {
		e := is.entry(was.entries[i].Prefix)
		if e == nil || !addsDigestMirrors(&was.entries[i], e) {
			return false
		}
	}
	for i := range is.entries {
		if e := &is.entries[i]; was.entry(e.Prefix) == nil && !isHarmless(e, was.entries) {
			return false
		}
	}
	return true
}

// mirrorFile is a registries.conf: its registries, and the other keys.
type mirrorFile struct {
	entries []mirrorEntry
	others  map[string]any
}

func readMirrorFile(text string) (f mirrorFile, err error) {
	parsed, err := ParseMirrors(text)
	if err != nil {
		return f, err
	}
	if _, err := toml.Decode(text, &f.others); err != nil {
		return f, err
	}
	// A key of a registry that is not known here is compared with the others.
	unknown := []string{}
	var known struct {
		Registry []mirrorEntry `toml:"registry"`
	}
	md, err := toml.Decode(text, &known)
	for _, key := range md.Undecoded() {
		if len(key) > 1 && key[0] == "registry" {
			unknown = append(unknown, key.String())
		}
	}
	if len(unknown) > 0 {
		f.others["registry"] = append(unknown, text)
	} else {
		delete(f.others, "registry")
	}
	f.entries = parsed.registries
	return f, err
}

func (f *mirrorFile) entry(prefix string) *mirrorEntry {
	for i := range f.entries {
		if f.entries[i].Prefix == prefix {
			return &f.entries[i]
		}
	}
	return nil
}

// addsDigestMirrors: an entry has all older mirrors in their order, and other ones for digests alone.
func addsDigestMirrors(was, is *mirrorEntry) bool {
	a, b := *was, *is
	a.Mirrors, b.Mirrors = nil, nil
	if !reflect.DeepEqual(a, b) {
		return false
	}
	left := slices.Clone(was.Mirrors)
	for _, m := range is.Mirrors {
		switch {
		case len(left) > 0 && m == left[0]:
			left = left[1:]
		case !asksDigestsOnly(is, m):
			return false
		}
	}
	return len(left) == 0
}

func asksDigestsOnly(e *mirrorEntry, m mirror) bool {
	return !m.Insecure && (m.Pull == "digest-only" || m.Pull == "" && e.ByDigestOnly)
}

// isHarmless: a new entry names its own registry, has mirrors for digests alone, and hides no older
// entry for a wider name.
func isHarmless(e *mirrorEntry, old []mirrorEntry) bool {
	own := e.Location == e.Prefix && !e.Insecure && !e.Blocked && e.Prefix[0] != '*'
	hides := slices.ContainsFunc(old, func(o mirrorEntry) bool { _, below := o.pathBelow(e.Prefix); return below })
	return own && !hides && !slices.ContainsFunc(e.Mirrors, func(m mirror) bool { return !asksDigestsOnly(e, m) })
}
