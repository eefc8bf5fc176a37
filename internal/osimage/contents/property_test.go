package contents

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

// drawn layers: a few names, so that they meet.
func drawn(t *rapid.T, label string) []entry {
	names := []string{"etc/a", "etc/d/a", "etc/d/b", "etc/d/e/a", "usr/a", "etc/d"}
	n := rapid.IntRange(0, 4).Draw(t, label+" entries")
	var out []entry
	var have, dirs []string
	for range n {
		name := rapid.SampledFrom(names).Draw(t, label+" name")
		below := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
		clash := slices.ContainsFunc(have, func(h string) bool { return below(h, name) || below(name, h) })
		overDir := slices.ContainsFunc(dirs, func(d string) bool { return below(d, name) })
		switch kind := rapid.SampledFrom([]string{"file", "file", "directory", "link", "gone", "emptied"}).Draw(t, label+" kind"); {
		case kind == "gone":
			out = append(out, e(path.Dir(name)+"/.wh."+path.Base(name)))
		case kind == "emptied":
			out = append(out, e(path.Dir(name)+"/.wh..wh..opq"))
		case clash || kind != "directory" && overDir:
		case kind == "directory":
			dirs = append(dirs, name)
			out = append(out, e(name+"/", mode(rapid.SampledFrom([]int64{0o755, 0o700}).Draw(t, label+" mode"))))
		case kind == "link":
			have = append(have, name)
			out = append(out, e(name+"->"+rapid.SampledFrom([]string{"x", "y"}).Draw(t, label+" target")))
		default:
			have = append(have, name)
			out = append(out, e(name+"="+rapid.SampledFrom([]string{"1", "2"}).Draw(t, label+" text")))
		}
	}
	return out
}

// flat is an image laid out the plain way, lowest layer first: the whole of it, path by
// path. Directories that nothing names are not listed.
func flat(t *rapid.T, layers [][]entry) map[string]Entry {
	out := map[string]Entry{}
	drop := func(name string, self bool) {
		maps.DeleteFunc(out, func(p string, _ Entry) bool { return self && p == name || strings.HasPrefix(p, name+"/") })
	}
	for _, l := range layers {
		for _, x := range l {
			h, _ := headerOf(x.say)
			dir, base := path.Split(h.Name)
			switch {
			case base == opaque:
				drop(strings.TrimSuffix(dir, "/"), false)
			case strings.HasPrefix(base, whiteout):
				drop(dir+strings.TrimPrefix(base, whiteout), true)
			}
		}
		for _, x := range l {
			h, body := headerOf(x.say)
			if x.set != nil {
				x.set(h)
			}
			name := strings.TrimSuffix(h.Name, "/")
			if strings.HasPrefix(path.Base(name), whiteout) {
				continue
			}
			for at := path.Dir(name); at != "."; at = path.Dir(at) { // what was in the way of a directory
				if have, ok := out[at]; ok && have.Kind != Directory {
					delete(out, at)
				}
			}
			n := Entry{Kind: File, Mode: uint32(h.Mode), Link: h.Linkname, Digest: model.DigestOf([]byte(body)), Size: int64(len(body))}
			switch {
			case strings.HasSuffix(x.say, "/"):
				n = Entry{Kind: Directory, Mode: uint32(h.Mode)}
			case h.Linkname != "":
				n = Entry{Kind: Symlink, Mode: uint32(h.Mode), Link: h.Linkname}
			}
			if n.Kind != Directory {
				drop(name, true)
			}
			out[name] = n
		}
	}
	return out
}

func imageOf(t *rapid.T, layers [][]entry) Image {
	var out []Layer
	for _, l := range layers {
		out = append(out, layer(t, l...))
	}
	return image(out...)
}

// An image is as itself; what differs, laid over the one, gives the other, if all of both
// was read.
func TestAppliedItIsTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := [][]entry{append(drawn(t, "a0"), e("zero=a")), drawn(t, "a1")}
		b := [][]entry{append(drawn(t, "b0"), e("zero=b")), drawn(t, "b1"), drawn(t, "b2")}
		if r, err := Compare(imageOf(t, a), imageOf(t, a), DefaultLimits(), nil); err != nil || !r.Same() {
			t.Fatalf("an image differs from itself: %+v %v", r, err)
		}
		r, err := Compare(imageOf(t, a), imageOf(t, b), DefaultLimits(), nil)
		if err != nil || r.Uncompared != "" || r.Shared != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		got, want := flat(t, a), flat(t, b)
		for _, c := range r.Changes {
			name := strings.TrimPrefix(c.Path, "/")
			switch c.Is.Presence {
			case Absent:
				delete(got, name)
			case There:
				got[name] = c.Is.Entry
			case Shared:
				t.Fatalf("nothing is shared, but %s counts as shared", c)
			}
		}
		plain := func(in map[string]Entry) map[string]Entry {
			return maps.Collect(func(yield func(string, Entry) bool) {
				for k, v := range in {
					if v.ordinary() { // made on the way
						continue
					}
					v.Data = nil
					if !yield(k, v) {
						return
					}
				}
			})
		}
		if diff := cmp.Diff(plain(want), plain(got), cmpopts.IgnoreUnexported(Entry{})); diff != "" {
			t.Fatalf("%s\nof %v and %v: %v", diff, says(a), says(b), r.Changes)
		}
	})
}

func says(layers [][]entry) (out [][]string) {
	for _, l := range layers {
		var one []string
		for _, x := range l {
			one = append(one, x.say)
		}
		out = append(out, one)
	}
	return out
}

// With any content of the layers that are not read, no difference is missed, but for ordinary
// directories on the way.
func TestNoDifferenceIsMissed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bottom := append(drawn(t, "shared"), e("zero=0"))
		a := [][]entry{bottom, append(drawn(t, "a1"), e("usr/one=a"))}
		b := [][]entry{bottom, append(drawn(t, "b1"), e("usr/one=b")), drawn(t, "b2")}
		r, err := Compare(imageOf(t, a), imageOf(t, b), DefaultLimits(), nil)
		if err != nil || r.Uncompared != "" || r.Shared != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		reported := map[string]bool{}
		for _, c := range r.Changes {
			reported[strings.TrimPrefix(c.Path, "/")] = true
		}
		covered := func(name string) bool { // itself, or a directory above it that was emptied or taken away
			for at := range reported { // or something below it, which makes it a directory
				if strings.HasPrefix(at, name+"/") {
					return true
				}
			}
			for at := name; at != "."; at = path.Dir(at) {
				if reported[at] {
					return true
				}
			}
			return false
		}
		was, is := flat(t, a), flat(t, b)
		for _, name := range append(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is))...) {
			x, inA := was[name]
			y, inB := is[name]
			same := inA == inB && len(x.differs(y)) == 0
			onTheWay := (!inA || x.Kind == Directory) && (!inB || y.Kind == Directory) && (x.ordinary() || y.ordinary())
			if !same && !onTheWay && !covered(name) {
				t.Fatalf("%s was %+v, is %+v, and no change reports it: %v\nof %v and %v", name, x, y, r.Changes, says(a), says(b))
			}
		}
	})
}

// Hostile layers end in an answer: never in a panic, and within the limits.
func FuzzLayer(f *testing.F) {
	f.Add(tarOf(f, e("etc/a=1"), e("etc/.wh.b"), e("etc/c=>etc/a"), e("etc/d->/x")))
	f.Add(tarOf(f, e("etc/../a=1")))
	f.Add(tarOf(f, e("etc/"), e("etc/.wh..wh..opq"), e("etc/.wh.")))
	f.Add(tarOf(f, e(strings.Repeat("n", 5000)+"=1")))
	f.Add([]byte("no tar"))
	lim := Limits{Bytes: 1 << 20, Unpacked: 1 << 20, Entries: 100, File: 1 << 10, Kept: 4 << 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		known := layer(t, e("etc/a=1"))
		rules := Rules{Pool: chrony}
		for _, pair := range [][2]Image{{image(plain(data)), image(known)}, {image(known), image(plain(data))}, {image(sealed("x"), known), image(sealed("x"), plain(data))}} {
			r, err := Compare(pair[0], pair[1], lim, rules.Covers)
			if err != nil {
				t.Fatal(err)
			}
			live, why := rules.Live(r)
			kept := 0
			for _, f := range live.Files {
				kept += len(f.Data)
				if !strings.HasPrefix(f.Path, "/etc/") || path.Clean(f.Path) != f.Path || f.Mode > 0o777 || len(f.Data) > 1<<10 {
					t.Errorf("agents would write %+v", f)
				}
			}
			if kept > 4<<10 || why != "" && live.Files != nil {
				t.Errorf("%d bytes, %s", kept, why)
			}
		}
	})
}
