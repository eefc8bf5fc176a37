package agentconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// No file makes an agent fail to start: what is understood counts, and the rest is reported.
func TestUnderstand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, last string
		want       Config
		said       string
	}{
		"a whole file":                        {text: "node: n1\naddress: 10.0.0.1\n", want: Config{Node: "n1", Address: "10.0.0.1"}},
		"an empty file":                       {},
		"a field of a newer version":          {text: "node: n1\nquota: 7\nstateDir: /data\n", last: "node: old", want: Config{Node: "n1", StateDir: "/data"}, said: "readable fields are used"},
		"a field of another type":             {text: "node: n1\nmedia: 7\n", want: Config{Node: "n1"}, said: "readable fields are used"},
		"zero bytes, nothing known before":    {text: strings.Repeat("\x00", 64), said: "defaults are used"},
		"zero bytes, with a last version":     {text: strings.Repeat("\x00", 64), last: "node: n1\nstateDir: /data\n", want: Config{Node: "n1", StateDir: "/data"}, said: "last valid version"},
		"zero bytes, and in the last version": {text: strings.Repeat("\x00", 64), last: strings.Repeat("\x00", 64), said: "defaults are used"},
		"cut off in the middle":               {text: "node: n1\nmedia: [", last: "node: n1", want: Config{Node: "n1"}, said: "last valid version"},
		"a file of another program":           {text: "<?xml version=\"1.0\"?>", said: "defaults are used"},
		"text after a whole object":           {text: "{}\nnode: n1\n", last: "node: n2", want: Config{Node: "n2"}, said: "last valid version"},
		"a second document":                   {text: "node: n1\n---\nnode: n2\n", said: "defaults are used"},
		"comments and ends of documents":      {text: "---\n# a comment\nnode: n1\n...\n# the end\n", want: Config{Node: "n1"}},
		"a list":                              {text: "- a\n- b\n", said: "defaults are used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agent.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.last != "" {
				if err := os.WriteFile(LastValidPath(path), []byte(c.last), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := ReadOrRecover(path)
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Config{}, "Problems")); d != "" {
				t.Error(d)
			}
			if (c.said != "") != (len(got.Problems) == 1) || c.said != "" && (!strings.Contains(got.Problems[0].Message, c.said) || got.Problems[0].Fix == "") {
				t.Errorf("%+v", got.Problems)
			}
		})
	}
}

// The last whole version survives a file that is damaged, and a disk that is full.
func TestRemember(t *testing.T) {
	t.Parallel()
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		path := f.Path("agent.yaml")
		if err := SaveLastValid(path); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(path, []byte("node: n1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := SaveLastValid(path); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(path, []byte("node: n2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Fill()
		if err := SaveLastValid(path); err == nil {
			t.Error("a full disk took it")
		}
		if err := os.WriteFile(path, make([]byte, 4), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadOrRecover(path); got.Node != "n1" {
			t.Errorf("%+v", got)
		}
	})
}
