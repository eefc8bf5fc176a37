package oci

import "testing"

// Only new mirrors that are asked by digest and over TLS leave every image name as it was.
func TestOnlyAddsMirrors(t *testing.T) {
	t.Parallel()
	const old = `unqualified-search-registries = ["r.example"]
[[registry]]
location = "r.example"
[[registry.mirror]]
location = "m1.example"
[[registry]]
prefix = "d.example"
location = "d.example"
mirror-by-digest-only = true
`
	const digestOnly = "[[registry.mirror]]\nlocation = \"m2.example\"\npull-from-mirror = \"digest-only\"\n"
	head, first := "unqualified-search-registries = [\"r.example\"]\n", "[[registry]]\nlocation = \"r.example\"\n[[registry.mirror]]\nlocation = \"m1.example\"\n"
	second := "[[registry]]\nprefix = \"d.example\"\nlocation = \"d.example\"\nmirror-by-digest-only = true\n"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"the same, with a comment":                   {"# a comment\n" + old, true},
		"a mirror for digests":                       {head + first + digestOnly + second, true},
		"a mirror for digests before the older one":  {head + "[[registry]]\nlocation = \"r.example\"\n" + digestOnly + "[[registry.mirror]]\nlocation = \"m1.example\"\n" + second, true},
		"a mirror of a registry for digests":         {old + "[[registry.mirror]]\nlocation = \"m3.example\"\n", true},
		"a new registry with a mirror for digests":   {old + "[[registry]]\nlocation = \"n.example\"\n" + digestOnly, true},
		"registries in another order":                {head + second + first, true},
		"a mirror for tags too":                      {head + first + "[[registry.mirror]]\nlocation = \"m2.example\"\n" + second, false},
		"a mirror without TLS":                       {head + first + digestOnly + "insecure = true\n" + second, false},
		"a mirror is gone":                           {head + "[[registry]]\nlocation = \"r.example\"\n" + second, false},
		"a mirror for tags where digests were":       {old + "[[registry.mirror]]\nlocation = \"m3.example\"\npull-from-mirror = \"all\"\n", false},
		"a registry is gone":                         {head + first, false},
		"a registry is blocked":                      {old + "blocked = true\n", false},
		"a new registry that is blocked":             {old + "[[registry]]\nlocation = \"n.example\"\nblocked = true\n", false},
		"a new registry that is another one":         {old + "[[registry]]\nprefix = \"n.example\"\nlocation = \"evil.example\"\n", false},
		"a new registry hides an older one's mirror": {old + "[[registry]]\nlocation = \"r.example/team\"\n" + digestOnly, false},
		"a new registry with a wildcard":             {old + "[[registry]]\nprefix = \"*.example.org\"\n" + digestOnly, false},
		"another search list":                        {"unqualified-search-registries = [\"x.example\"]\n" + first + second, false},
		"a key of a registry that is not known":      {old + "novel = true\n", false},
		"a key of a mirror that is not known":        {head + first + digestOnly + "novel = true\n" + second, false},
		"another key":                                {"short-name-mode = \"disabled\"\n" + old, false},
		"it is no TOML":                              {"[[registry", false},
		"a mirror without a location":                {old + "[[registry.mirror]]\n", false},
	} {
		if got := OnlyAddsMirrors(old, c.text); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if OnlyAddsMirrors("[[registry", old) || OnlyAddsMirrors(old+"novel = true\n", old+"novel = true\n[[registry]]\nlocation = \"n.example\"\n"+digestOnly) {
		t.Error("what the old file had is not known")
	}
}
