package imagetag

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/distribution/reference"
	"pgregory.net/rapid"
)

// points draws point tags of one scheme, with one precision: small numbers, so
// that equal parts are frequent.
func points(scheme string) *rapid.Generator[string] {
	n := func(t *rapid.T) int { return rapid.IntRange(0, 12).Draw(t, "n") }
	return rapid.Custom(func(t *rapid.T) string {
		app := fmt.Sprintf("%d.%d.%d", n(t), n(t), n(t))
		pre := rapid.SampledFrom([]string{"", "", "-rc.1", "-rc.10", "-alpha", "-1", "a", "w"}).Draw(t, "pre")
		build := fmt.Sprint(n(t))
		if rapid.Bool().Draw(t, "two parts") {
			build += fmt.Sprintf(".%d", n(t))
		}
		switch scheme {
		case "rev":
			return fmt.Sprintf("%s%s-rev%d-b%s", app, pre, 1+n(t), build)
		case "dotted":
			return fmt.Sprintf("%s-%d.%s", app, 1+n(t), build)
		case "dashed":
			return fmt.Sprintf("%s-%d-%s", app, 1+n(t), build)
		case "release":
			return app + "-" + build
		case "distro-r":
			return fmt.Sprintf("%s-debian-12-r%d", app, n(t))
		case "date":
			return fmt.Sprintf("2026%02d%02d.%s", 1+n(t)%12, 1+n(t), build)
		}
		return app + strings.TrimRight(pre, "aw")
	})
}

// The order is total, antisymmetric and transitive within one scheme, repository
// and project.
func TestOrderIsAnOrder(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		if name == "floating" {
			continue // has no points
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheme(t, name)
			rapid.Check(t, func(t *rapid.T) {
				a, b, c := points(name).Draw(t, "a"), points(name).Draw(t, "b"), points(name).Draw(t, "c")
				ab, why := s.Compare(a, b)
				if ab == Incomparable {
					t.Fatalf("%s and %s have no order: %s", a, b, why)
				}
				if ba, _ := s.Compare(b, a); ba != opposite(ab) {
					t.Fatalf("%s is %s as seen from %s, and that is %s as seen from it", a, ab, b, ba)
				}
				transitive(t, s, a, b, c)
			})
		})
	}
}

func transitive(t *rapid.T, s Scheme, a, b, c string) {
	ab, _ := s.Compare(a, b)
	bc, _ := s.Compare(b, c)
	ac, _ := s.Compare(a, c)
	if (ab == bc || bc == Same) && (ab == Older || ab == Newer) && ac != ab {
		t.Fatalf("%s is %s as seen from %s, that is %s as seen from %s, but %s is %s as seen from it", a, ab, b, bc, c, a, ac)
	}
}

// For any tags, a chain of answers never contradicts itself, and Sort
// puts no newer tag before an older one.
func TestPartialOrder(t *testing.T) {
	t.Parallel()
	anyTag := rapid.Custom(func(t *rapid.T) string {
		app := rapid.SampledFrom([]string{"1.0.0", "1.0", "v1.0.0", "1.0.1", "1.0.0-rc.1", "1.0.0-rc.1.1", "1.0.0rc1", "1.0.0rc2", "1.0.0a", "1.0.0alpha", "1.0.0w", "1.0.0_1", "1.0.0-alpine", "main", "2.0.0-rc.1-alpine"}).Draw(t, "app")
		return app + rapid.SampledFrom([]string{"", "-rev1", "-rev1-b1", "-rev1-b1.0", "-rev2-b1", "-rev10-b1"}).Draw(t, "end")
	})
	for _, name := range []string{"rev", "rev:alpine", "semver", "single", "release"} {
		s := scheme(t, name)
		rapid.Check(t, func(t *rapid.T) {
			tags := rapid.SliceOfN(anyTag, 3, 9).Draw(t, "tags")
			transitive(t, s, tags[0], tags[1], tags[2])
			sorted := s.Sort(tags)
			n := len(sorted.Pointers) + len(sorted.Refused)
			for _, l := range sorted.Lines {
				n += len(l.Tags)
				for i, a := range l.Tags {
					for _, b := range l.Tags[i+1:] {
						if o, why := s.Compare(a, b); o == Newer || o == Incomparable {
							t.Fatalf("%s stands before %s, and is %s: %s", a, b, o, why)
						}
					}
				}
			}
			if n != len(tags) {
				t.Fatalf("%d tags went in, %d came out", len(tags), n)
			}
		})
	}
}

// Within semantic versions, the order is the one that everybody knows.
func TestSemverAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	s := scheme(t, "semver")
	rapid.Check(t, func(t *rapid.T) {
		a, b := points("semver").Draw(t, "a"), points("semver").Draw(t, "b")
		want := orderOf(semver.MustParse(a).Compare(semver.MustParse(b)))
		if got, why := s.Compare(a, b); got != want {
			t.Fatalf("%s as seen from %s: %s (%s), the library says %s", a, b, got, why, want)
		}
	})
}

// Ranges over releases mean what they mean in the library that others use.
func TestRangeAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3)
		v := fmt.Sprintf("%d.%d.%d", n.Draw(t, "major"), n.Draw(t, "minor"), n.Draw(t, "patch"))
		bounds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			op := rapid.SampledFrom([]string{"", "=", "!=", ">", ">=", "<", "<=", "~", "^"}).Draw(t, "op")
			w := fmt.Sprintf("%d.%d.%d", n.Draw(t, "major"), n.Draw(t, "minor"), n.Draw(t, "patch"))
			for range rapid.IntRange(0, 2).Draw(t, "missing") {
				w = w[:strings.LastIndexByte(w, '.')]
			}
			return op + w
		}), 1, 3).Draw(t, "bounds")
		if slices.Contains(bounds, "~0.0.0") {
			t.Skip("the library takes every version for it, by its own exception")
		}
		text := strings.Join(bounds, rapid.SampledFrom([]string{", ", " || "}).Draw(t, "join"))
		c, err := semver.NewConstraint(text)
		if err != nil {
			t.Skip(err)
		}
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := r.Has(v), c.Check(semver.MustParse(v)); got != want {
			t.Fatalf("%s in %q: %v, the library says %v", v, text, got, want)
		}
	})
}

// Write is the inverse of Parse wherever a scheme can write.
func TestWriteParse(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		s := scheme(t, name)
		if s.write == nil {
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			text := points(name).Draw(t, "tag")
			parsed, err := s.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			back, err := s.Write(parsed)
			if err != nil || back != text {
				t.Fatalf("%s is written as %q, %v", text, back, err)
			}
			pointers, err := s.Pointers(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pointers {
				if got, err := s.Parse(p); err != nil || got.Point() || Legal(p) != nil {
					t.Fatalf("pointer %s of %s: %+v, %v", p, text, got, err)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "2.6.2-rev1-b5.1", "2.6.1-1.100", "10.2.15-3.2", "1.2.3-debian-12-r7", "v1.31.2", "latest", "20261120.3", "-x", "1-rev18446744073709551616-b1", "1.0.0rc1", "2.6.2-rev1+5.1"} {
		f.Add(s, "2.6.2-rev1-b5.1")
	}
	var all []Scheme
	for _, name := range append(Names(), "rev:alpine,slim") {
		s, err := ByName(name)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, s := range all {
			ab, why := s.Compare(a, b)
			if ba, _ := s.Compare(b, a); ba != opposite(ab) || why == "" {
				t.Fatalf("%s: %q and %q: %s one way, %s the other (%q)", s.Name(), a, b, ab, ba, why)
			}
			got, err := s.Parse(a)
			if err != nil {
				continue
			}
			if Legal(a) != nil {
				t.Fatalf("%s reads the illegal tag %q", s.Name(), a)
			}
			if s.write == nil || got.Tier == Floating || strings.HasPrefix(s.Name(), "date") {
				continue // dates are written in three ways, all read
			}
			if back := s.write(got); back != a {
				t.Fatalf("%s: %q is read as %+v and written as %q", s.Name(), a, got, back)
			}
		}
		_, _ = Guess([]string{a, b})
	})
}

// FuzzParseRef compares with the grammar that container runtimes use.
func FuzzParseRef(f *testing.F) {
	sum := strings.Repeat("a1", 32)
	for _, s := range []string{"nginx", "nginx:1", "a/b", "localhost/a", "Host/a", "example.com:5000/a/b:1@sha256:" + sum, "index.docker.io/a", "docker.io/a:x", "[::1]:5000/a", "a@sha256:" + sum, sum, "a__b/c---d", "a:b:c", "x/:1", "docker.io/library/a", "a..b", "0__0.0/000000000", "a__b.c/d:1", "a__b.c/" + strings.Repeat("d", 250)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseRef(s)
		want, theirs := reference.ParseNormalizedNamed(s)
		if (err == nil) != (theirs == nil) {
			if theirs == nil && otherDigest(want) {
				return // only sha256 is taken
			}
			t.Fatalf("%q: %v, %v; the runtimes' grammar: %v", s, got, err, theirs)
		}
		if err == nil && got.String() != want.String() {
			t.Fatalf("%q is %s, the runtimes' grammar has %s", s, got, want)
		}
	})
}

func otherDigest(r reference.Named) bool {
	d, ok := r.(reference.Digested)
	return ok && d.Digest().Algorithm() != "sha256"
}

func TestParseRef(t *testing.T) {
	t.Parallel()
	sum := "sha256:" + strings.Repeat("0a", 32)
	for in, want := range map[string]Ref{
		"pause:3.10": {"docker.io/library/pause", "3.10", ""},
		"registry.k8s.io/kube-proxy:v1.31.2@" + sum: {"registry.k8s.io/kube-proxy", "v1.31.2", sum},
		"example.com:5000/a/b":                      {"example.com:5000/a/b", "", ""},
		"user/app@" + sum:                           {"docker.io/user/app", "", sum},
		"a__b.c/d:1":                                {"a__b.c/d", "1", ""}, // no host: the runtimes read it as a path
	} {
		got, err := ParseRef(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
		if again, err := ParseRef(got.String()); err != nil || again != got {
			t.Errorf("%s: read again: %+v, %v", got, again, err)
		}
	}
	if h := (Ref{Repository: "example.com:5000/a"}).Host(); h != "example.com:5000" {
		t.Error(h)
	}
	for _, bad := range []string{"", "A", "a:", "a:+", "a@sha256:1", "a@", "a b", "a/" + strings.Repeat("b", 300), "a__b.c/" + strings.Repeat("d", 250), "-a.b/c", strings.Repeat("ab", 32)} {
		if got, err := ParseRef(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if !slices.IsSorted(Names()) {
		t.Error("names are not sorted")
	}
}
