package crio

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

const dropIns = "/etc/crio/crio.conf.d/"

// still is a client of a runtime that is not there, with its configuration below root.
func still(root string) (c *Client, reloads *int) {
	reloads = new(int)
	c = &Client{socket: filepath.Join(root, "none"), places: Places{Root: root}, log: slog.New(slog.DiscardHandler),
		reload: func() error { *reloads++; return nil }}
	return c, reloads
}

func put(t testing.TB, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pinned(names ...string) string {
	return fmt.Sprintf("[crio.image]\npinned_images = [\"%s\"]\n", strings.Join(names, `", "`))
}

// effective is the list that CRI-O comes to: files in the order of their names,
// each decoded over what the ones before it said.
func effective(t testing.TB, root string) []string {
	t.Helper()
	var c struct {
		CRIO struct {
			Image struct {
				Pinned []string `toml:"pinned_images"`
			} `toml:"image"`
		} `toml:"crio"`
	}
	files := []string{filepath.Join(root, "/etc/crio/crio.conf")}
	more, err := filepath.Glob(filepath.Join(root, dropIns, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(more)
	for _, f := range append(files, more...) {
		text, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		}
		if _, err := toml.Decode(string(text), &c); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
	}
	return c.CRIO.Image.Pinned
}

// The pins of refit and of others apply together, in any file.
func TestPinsAreMergedWithThoseOfOthers(t *testing.T) {
	const ours = "reg.test/ours:1"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   string
	}{
		"no other pins":                                        {want: []string{ours}},
		"the main file pins":                                   {files: map[string]string{"/etc/crio/crio.conf": pinned("main:1")}, want: []string{"main:1", ours}},
		"a drop-in replaces the main file":                     {files: map[string]string{"/etc/crio/crio.conf": pinned("main:1"), dropIns + "50-x": pinned("x/*", "y")}, want: []string{"x/*", "y", ours}},
		"the last of two drop-ins counts":                      {files: map[string]string{dropIns + "10-a": pinned("a"), dropIns + "20-b.conf": pinned("b")}, want: []string{"b", ours}},
		"an empty list of others stays empty":                  {files: map[string]string{dropIns + "10-a": pinned("a"), dropIns + "20-b": "[crio.image]\npinned_images = []\n"}, want: []string{ours}},
		"a drop-in about something else":                       {files: map[string]string{dropIns + "10-a": pinned("a"), dropIns + "20-b": "[crio.image]\npause_image = \"p\"\n[crio.runtime]\nlog_level = \"info\"\n"}, want: []string{"a", ours}},
		"what both pin is pinned once":                         {files: map[string]string{dropIns + "10-a": pinned(ours, "a")}, want: []string{ours, "a"}},
		"the bare key outside its table pins nothing in CRI-O": {files: map[string]string{dropIns + "10-a": "pinned_images = [\"a\"]\n"}, want: []string{ours}},
		"a file after ours would hide it":                      {files: map[string]string{dropIns + "zzz": pinned("z")}, err: "zzz is read after"},
		"an unreadable file":                                   {files: map[string]string{dropIns + "10-a": "pinned ="}, err: "10-a cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				put(t, root, path, text)
			}
			client, reloads := still(root)
			_, err := client.Prepare(t.Context(), []string{ours}, nil, nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("want %q, got %v", c.err, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, effective(t, root)); d != "" || *reloads != 1 {
				t.Fatalf("%d reloads, %s", *reloads, d)
			}
			if _, err := client.Prepare(t.Context(), []string{ours}, nil, nil); err != nil || *reloads != 1 {
				t.Fatalf("done again: %v, %d reloads", err, *reloads)
			}
			if err := client.Unpin(t.Context(), []string{ours}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(root, dropIns, pinsFile)); err == nil {
				t.Fatal("a file of ours stays that pins nothing")
			}
		})
	}
}

// refit and others pin and unpin in any order. After refit's next pass, the runtime pins exactly
// what one of them wants.
func TestPinsMergeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp("", "pins")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(root)
		c, _ := still(root)
		all := []string{"a:1", "b:1", "c:1", "d@sha256:0"}
		some := func(label string) []string {
			return rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID).Draw(rt, label)
		}
		ours, theirs := map[string]bool{}, []string(nil)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				names := some("pin")
				if _, err := c.Prepare(rt.Context(), names, nil, nil); err != nil {
					rt.Fatal(err)
				}
				for _, n := range names {
					ours[n] = true
				}
			case 1:
				names := some("unpin")
				if err := c.Unpin(rt.Context(), names); err != nil {
					rt.Fatal(err)
				}
				for _, n := range names {
					delete(ours, n)
				}
			case 2:
				theirs = some("foreign")
				put(t, root, dropIns+"50-foreign", pinned(theirs...))
			case 3: // another program removes our file
				_ = os.Remove(filepath.Join(root, dropIns, pinsFile))
				var names []string
				for n := range ours {
					names = append(names, n)
				}
				if _, err := c.Prepare(rt.Context(), names, nil, nil); err != nil {
					rt.Fatal(err)
				}
			}
			if _, err := c.Prepare(rt.Context(), nil, nil, nil); err != nil { // the next pass
				rt.Fatal(err)
			}
			got := effective(t, root)
			for _, n := range all {
				want := ours[n] || slices.Contains(theirs, n)
				if slices.Contains(got, n) != want {
					rt.Fatalf("%s: ours %v, theirs %v, pinned %v", n, ours, theirs, got)
				}
			}
		}
	})
}

func TestFlagsOfTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		want string
	}{
		"none":          {[]string{"crio"}, "otherwise"},
		"with a space":  {[]string{"crio", "--config-dir", "/a"}, "/a"},
		"with an equal": {[]string{"crio", "--config-dir=/b", "-l", "x"}, "/b"},
		"the short one": {[]string{"crio", "-d", "/c"}, "/c"},
		"another flag":  {[]string{"crio", "--config", "/d"}, "otherwise"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := flag(c.argv, "otherwise", "--config-dir", "-d"); got != c.want {
				t.Fatalf("%q", got)
			}
		})
	}
}

func TestNamesOfAnImage(t *testing.T) {
	img := cri.Target{Name: "reg.test:5000/a/b/c:1.2", Digest: "sha256:d"}
	c, _ := still(t.TempDir())
	if d := cmp.Diff([]string{"reg.test:5000/a/b/c:1.2", "reg.test:5000/a/b/c@sha256:d"}, c.Names(img)); d != "" {
		t.Fatal(d)
	}
}
