package oci

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mirrorConf = `
unqualified-search-registries = []
[[registry]]
location = "r.example"
[[registry.mirror]]
location = "m.site:5000/r"
insecure = true
[[registry.mirror]]
location = "tags.site"
pull-from-mirror = "tag-only"

[[registry]]
prefix = "r.example/os"
location = "moved.example/os"
mirror-by-digest-only = true
[[registry.mirror]]
location = "m.site:5000/deep"

[[registry]]
prefix = "*.wild.example"
[[registry.mirror]]
location = "m.site/wild"

[[registry]]
prefix = "bad.example"
blocked = true
`

// Where an image may be read, in the order in which it is tried.
func TestMirrorPlaces(t *testing.T) {
	t.Parallel()
	c, err := ParseMirrors(mirrorConf)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		repository string
		tag        bool
		want       string
	}{
		"no entry has it":                      {repository: "other.example/a", want: "other.example/a"},
		"a name that only begins so":           {repository: "r.example.org/a", want: "r.example.org/a"},
		"mirrors, then its own":                {repository: "r.example/a", want: "m.site:5000/r/a! r.example/a"},
		"mirrors of tags":                      {repository: "r.example/a", tag: true, want: "m.site:5000/r/a! tags.site/a r.example/a"},
		"another port is another registry":     {repository: "r.example:443/a", want: "r.example:443/a"},
		"the closest prefix, which has moved":  {repository: "r.example/os/base", want: "m.site:5000/deep/base moved.example/os/base"},
		"the repository itself":                {repository: "r.example/os", want: "m.site:5000/deep moved.example/os"},
		"only by digest":                       {repository: "r.example/os/base", tag: true, want: "moved.example/os/base"},
		"a name that continues the prefix":     {repository: "r.example/osmosis", want: "m.site:5000/r/osmosis! r.example/osmosis"},
		"every host of a domain":               {repository: "a.b.wild.example/x/y", want: "m.site/wild/x/y a.b.wild.example/x/y"},
		"the domain itself is none of its own": {repository: "wild.example/x", want: "wild.example/x"},
		"blocked":                              {repository: "bad.example/x", want: "registries.conf blocks bad.example"},
	} {
		places, err := c.Places(x.repository, !x.tag)
		var got []string
		for _, p := range places {
			if p.Insecure {
				p.Repository += "!"
			}
			got = append(got, p.Repository)
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(x.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	var none *MirrorConfig
	if p, err := none.Places("a.example/b", true); err != nil || len(p) != 1 || p[0].Repository != "a.example/b" {
		t.Error(p, err)
	}
}

func TestParseMirrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x": "not a registries.conf", "[registries.search]\nregistries = []": "version 1", "[[registry]]": "neither prefix nor location",
		"[[registry]]\nlocation = \"https://a\"": "without https", "[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\nlocation = \"\"": "mirror \"\"",
		"[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\nlocation = \"b\"\npull-from-mirror = \"x\"": "pull-from-mirror", "[[registry]]\nprefix = \"*.a\"\nlocation = \"b\"": "names hosts alone",
	} {
		if _, err := ParseMirrors(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
