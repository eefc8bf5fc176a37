package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

func (n *simNode) text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.root, path))
	if os.IsNotExist(err) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// boots plays libostree: the next image's /etc comes into the place of what is as the
// image before had it, and all else stays.
func (n *simNode) boots(t *testing.T, image map[string]string) {
	t.Helper()
	for path, text := range image {
		kept := filepath.Join("/usr", path)
		if n.text(t, path) == n.text(t, kept) {
			n.to(t, path, text)
		}
		n.to(t, kept, text)
	}
}

func (n *simNode) to(t *testing.T, path, text string) {
	t.Helper()
	if text != "-" {
		n.put(t, path, text)
		return
	}
	if err := os.Remove(filepath.Join(n.root, path)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func asImages(paths ...string) model.NodeConfig {
	c := model.NodeConfig{}
	for _, p := range paths {
		c.Files = append(c.Files, model.ConfigFile{Path: p, AsImage: true, Disruption: model.DisruptionNone})
	}
	return c
}

// Files that differ from the booted image's without a boot are restored before the next
// image is booted, so that its files replace them: changed, added and removed ones. What
// others wrote stays, and undo restores what was live.
func TestGivenBackToTheImage(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	if err := os.MkdirAll(filepath.Join(n.root, "usr/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.boots(t, map[string]string{"/etc/a": "a1", "/etc/gone": "g1", "/etc/theirs": "t1", "/etc/new": "-"})
	live := model.NodeConfig{Files: []model.ConfigFile{file("/etc/a", "a2", model.DisruptionNone), {Path: "/etc/gone", Absent: true, Disruption: model.DisruptionNone},
		file("/etc/new", "n2", model.DisruptionNone), file("/etc/theirs", "t2", model.DisruptionNone)}}
	run(t, u, task(t, n, live))
	if got := n.text(t, "/etc/a") + n.text(t, "/etc/gone") + n.text(t, "/etc/new"); got != "a2-n2" {
		t.Fatal(got)
	}
	n.put(t, "/etc/theirs", "theirs")
	if err := os.Symlink("somewhere", filepath.Join(n.root, "etc/never")); err != nil { // nor is it a step's business
		t.Fatal(err)
	}

	back := asImages("/etc/a", "/etc/gone", "/etc/new", "/etc/theirs", "/etc/never")
	f := u.Fields(t.Context(), &back)
	if f["file//etc/a"] == model.ValueAsImage || f["file//etc/gone"] != model.ValueAbsent || f["file//etc/new"] == model.ValueAsImage || f["file//etc/theirs"] != model.ValueAsImage || f["file//etc/never"] != model.ValueAsImage {
		t.Fatalf("before: %v", f)
	}
	tk := task(t, n, back)
	run(t, u, tk)
	run(t, u, tk) // once more, as after a power cut
	says := func() string {
		return strings.Join([]string{n.text(t, "/etc/a"), n.text(t, "/etc/gone"), n.text(t, "/etc/new"), n.text(t, "/etc/theirs")}, " ")
	}
	if got := says(); got != "a1 g1 - theirs" {
		t.Fatal(got)
	}
	for field, v := range u.Fields(t.Context(), &back) {
		if v != model.ValueAsImage {
			t.Errorf("%s is %q", field, v)
		}
	}
	// It did not come to the boot: undo.
	if r, err := u.Undo(t.Context(), tk); err != nil || !r.Done || says() != "a2 - n2 theirs" {
		t.Fatal(r, err, says())
	}
	tk = task(t, n, back)
	run(t, u, tk)
	n.boots(t, map[string]string{"/etc/a": "a3", "/etc/gone": "g3", "/etc/new": "n3", "/etc/theirs": "t3"})
	tk.Step.ID = "files-again"
	run(t, u, tk)
	if got := says(); got != "a3 g3 n3 theirs" {
		t.Fatal("the next image's files did not come into their places:", got)
	}
}

// Without the restore the next image's file would not replace it: that is the reason.
func TestNotGivenBackStays(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	n.boots(t, map[string]string{"/etc/a": "a1"})
	run(t, u, task(t, n, model.NodeConfig{Files: []model.ConfigFile{file("/etc/a", "a2", model.DisruptionNone)}}))
	n.boots(t, map[string]string{"/etc/a": "a3"})
	if n.text(t, "/etc/a") != "a2" {
		t.Fatal("this is no libostree")
	}
	// A run after the boot repairs that too.
	run(t, u, task(t, n, asImages("/etc/a")))
	if n.text(t, "/etc/a") != "a3" {
		t.Fatal(n.text(t, "/etc/a"))
	}
}

// A host without a copy of its image's files has nothing to restore from.
func TestNothingToGiveBackTo(t *testing.T) {
	n := newNode(t)
	u := New(n, n.root, n.root+".json")
	run(t, u, task(t, n, model.NodeConfig{Files: []model.ConfigFile{file("/etc/a", "a2", model.DisruptionNone)}}))
	c := asImages("/etc/a")
	run(t, u, task(t, n, c))
	if n.text(t, "/etc/a") != "a2" || u.Fields(t.Context(), &c)["file//etc/a"] != model.ValueAsImage {
		t.Fatal(n.text(t, "/etc/a"))
	}
	// What the image has as a link is not guessed at.
	if err := os.MkdirAll(filepath.Join(n.root, "usr/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x", filepath.Join(n.root, "usr/etc/a")); err != nil {
		t.Fatal(err)
	}
	if r, err := u.Update(t.Context(), task(t, n, c)); err != nil || !r.Failed || !strings.Contains(r.Message, "/etc/a of the image") || n.text(t, "/etc/a") != "a2" {
		t.Fatal(r, err)
	}
}
