package osdriver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseKargs(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		bad  bool
	}{
		"a list": {`kargs = ["quiet", 'console=ttyS0,115200n8']`, []string{"quiet", "console=ttyS0,115200n8"}, false},
		"over lines, with comments and a last comma": {"# x\nkargs = [\n  \"a=1\", # one\n  \"b\",\n]\n", []string{"a=1", "b"}, false},
		"for this architecture":                      {"kargs = [\"a\"]\nmatch-architectures = [\"x86_64\", \"aarch64\"]", []string{"a"}, false},
		"for another":                                {"match-architectures = [\"s390x\"]\nkargs = [\"a\"]", nil, false},
		"an empty list takes the last one back":      {"kargs = []", []string{}, false},
		"an empty file":                              {"", nil, false},
		"an escape":                                  {`kargs = ["a=\"b c\""]`, []string{`a="b c"`}, false},
		"an unknown key is an error, as for bootc":   {`append = ["a"]`, nil, true},
		"a key twice":                                {"kargs = []\nkargs = []", nil, true},
		"no list":                                    {`kargs = "a"`, nil, true},
		"a number in the list":                       {`kargs = [1]`, nil, true},
		"a list without an end":                      {`kargs = ["a"`, nil, true},
		"two on a line":                              {`kargs = ["a"] match-architectures = []`, nil, true},
	} {
		got, err := ParseKargs([]byte(c.text), "x86_64")
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" && !c.bad {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func image(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, KargsDir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The rules of bootc when the image changes.
func TestFollowImage(t *testing.T) {
	one, two := map[string]string{"10.toml": `kargs = ["a", "b"]`}, map[string]string{"20.toml": `kargs = ["c"]`, "10.toml": `kargs = ["b"]`, "note.txt": "not read"}
	have := []string{"root=/dev/x", "a", "local", "b"}
	for name, c := range map[string]struct {
		old, new map[string]string
		want     []string
	}{
		"what the old image brought goes, what the new one brings comes": {one, two, []string{"root=/dev/x", "local", "b", "c"}},
		"an image without the folder takes nothing back (T8)":            {one, nil, []string{"root=/dev/x", "a", "local", "b"}},
		"an empty list takes the last one back":                          {one, map[string]string{"10.toml": "kargs = []"}, []string{"root=/dev/x", "local"}},
		"the machine's own stay":                                         {nil, two, []string{"root=/dev/x", "a", "local", "b", "c"}},
		"a file of the image that runs and cannot be read loses nothing": {map[string]string{"10.toml": "?"}, two, []string{"root=/dev/x", "a", "local", "b", "c"}},
	} {
		got, err := FollowImage(have, image(t, c.old), image(t, c.new))
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
	if _, err := FollowImage(have, image(t, one), image(t, map[string]string{"10.toml": "?"})); err == nil {
		t.Error("a file of the new image that cannot be read is passed over")
	}
}

func TestSplitKargs(t *testing.T) {
	if d := cmp.Diff([]string{"a", `b="c d"`, "e=1"}, SplitKargs(" a  b=\"c d\"\te=1\n")); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]string{"ro", "x=1"}, Machine(SplitKargs("BOOT_IMAGE=/vmlinuz ro ostree=/ostree/boot.1/x/0 init=/ostree/boot.1/x/0/sbin initrd=/i x=1"))); d != "" {
		t.Fatal(d)
	}
}

// Arguments that no target names stay in order, wanted ones are there once, a second change does
// nothing, and undoing an addition restores the original arguments.
func TestChangeLeavesTheRest(t *testing.T) {
	args := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}), rapid.ID[string])
	rapid.Check(t, func(t *rapid.T) {
		have, drop, want := args.Draw(t, "have"), args.Draw(t, "drop"), args.Draw(t, "want")
		got := Change(have, drop, want)
		if missing, left := (Target{Kargs: want, Drop: drop}).DiffKargs(got); len(missing)+len(left) > 0 {
			t.Fatalf("%v: missing %v, left %v", got, missing, left)
		}
		if !slices.Equal(Change(got, drop, want), got) {
			t.Fatalf("the second time %v becomes %v", got, Change(got, drop, want))
		}
		named := func(a string) bool { return slices.Contains(drop, a) || slices.Contains(want, a) }
		if a, b := slices.DeleteFunc(slices.Clone(have), named), slices.DeleteFunc(slices.Clone(got), named); !slices.Equal(a, b) {
			t.Fatalf("others were %v and are %v", a, b)
		}
		added := slices.DeleteFunc(slices.Clone(want), func(a string) bool { return slices.Contains(have, a) })
		if back := Change(Change(have, nil, added), added, nil); !slices.Equal(back, have) {
			t.Fatalf("%v came back as %v", have, back)
		}
	})
}
