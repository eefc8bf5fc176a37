package pin

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

func TestRemovable(t *testing.T) {
	t.Parallel()
	img := func(name, id string, more ...string) RuntimeImage {
		return RuntimeImage{ID: id, Tags: append([]string{name}, more...), Digests: []string{Repository(name) + "@d"}}
	}
	pinned := func(i RuntimeImage) RuntimeImage { i.Pinned = true; return i }
	for name, c := range map[string]struct {
		loaded []string
		want   []model.PinSetImage
		have   []RuntimeImage
		used   string
		remove string
		forget string
	}{
		"nothing needs it":              {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "i")}, "", "r/a:1@d", ""},
		"it is gone":                    {[]string{"r/a:1@d"}, nil, nil, "", "", "r/a:1@d"},
		"its tag names another image":   {[]string{"r/a:1@d"}, nil, []RuntimeImage{{Tags: []string{"r/a:1"}, Digests: []string{"r/a@e"}}}, "", "", "r/a:1@d"},
		"a container uses its ID":       {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "i")}, "i", "", ""},
		"a container uses its digest":   {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "i")}, "r/a@d", "", ""},
		"a container uses its tag":      {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "i")}, "r/a:1", "", ""},
		"another component pins it":     {[]string{"r/a:1@d"}, nil, []RuntimeImage{pinned(img("r/a:1", "i"))}, "", "", ""},
		"it has a foreign name":         {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "i", "person/copy:1")}, "", "", ""},
		"it has two names of refit":     {[]string{"r/a:1@d", "r/a:2@d"}, nil, []RuntimeImage{img("r/a:1", "i", "r/a:2")}, "", "r/a:1@d r/a:2@d", ""},
		"one of its names is wanted":    {[]string{"r/a:1@d"}, []model.PinSetImage{{Name: "r/a:2", Digest: "d"}}, []RuntimeImage{img("r/a:1", "i", "r/a:2")}, "", "", ""},
		"images of sandboxes stay":      {[]string{"r/pause:3@d"}, nil, []RuntimeImage{img("r/pause:3", "i")}, "", "", "r/pause:3@d"},
		"an unknown ID is not in use":   {[]string{"r/a:1@d"}, nil, []RuntimeImage{img("r/a:1", "")}, "", "r/a:1@d", ""},
		"others are no concern of this": {nil, nil, []RuntimeImage{img("r/a:1", "i")}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Removable(c.loaded, c.want, c.have, map[string]bool{c.used: true})
			if got := strings.Join(r.Remove, " "); got != c.remove {
				t.Errorf("removes %q, want %q", got, c.remove)
			}
			if got := strings.Join(r.Forget, " "); got != c.forget {
				t.Errorf("forgets %q, want %q", got, c.forget)
			}
		})
	}
}

// On any node, an image that is pinned, used, wanted, or that has a name of others is
// never removed.
func TestRemovableNeverRemovesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	names := []string{"r/a:1", "r/a:2", "r/b:1", "x/a:1"}
	rapid.Check(t, func(t *rapid.T) {
		var loaded []string
		for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "loaded") {
			loaded = append(loaded, n+"@"+rapid.SampledFrom([]string{"d", "e"}).Draw(t, "digest"))
		}
		var want []model.PinSetImage
		for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "wanted") {
			want = append(want, model.PinSetImage{Name: n, Digest: rapid.SampledFrom([]string{"d", "e"}).Draw(t, "digest")})
		}
		used := map[string]bool{}
		for _, u := range rapid.SliceOf(rapid.SampledFrom([]string{"0", "1", "r/a:1", "r/b@d", "x/a@e"})).Draw(t, "used") {
			used[u] = true
		}
		var have []RuntimeImage
		left := slices.Clone(names)
		for i, digest := range []string{"d", "e"} {
			p := RuntimeImage{ID: []string{"0", "1"}[i], Pinned: rapid.Bool().Draw(t, "pinned")}
			for _, n := range slices.Clone(left) {
				if rapid.Bool().Draw(t, "has "+n) {
					p.Tags, p.Digests = append(p.Tags, n), append(p.Digests, Repository(n)+"@"+digest)
					left = slices.DeleteFunc(left, func(x string) bool { return x == n })
				}
			}
			have = append(have, p)
		}
		for _, key := range Removable(loaded, want, have, used).Remove {
			name, digest, _ := strings.Cut(key, "@")
			i := slices.IndexFunc(have, func(p RuntimeImage) bool { return slices.Contains(p.Tags, name) })
			p := have[i]
			if p.Pinned || used[p.ID] || !slices.Contains(p.Digests, Repository(name)+"@"+digest) {
				t.Fatalf("%s is removed: %+v, used %v", key, p, used)
			}
			for _, n := range p.Tags {
				ours := slices.ContainsFunc(loaded, func(k string) bool { return strings.HasPrefix(k, n+"@") })
				if !ours || used[n] || slices.ContainsFunc(want, func(w model.PinSetImage) bool { return w.Name == n }) {
					t.Fatalf("%s is removed with its name %s", key, n)
				}
			}
		}
	})
}
