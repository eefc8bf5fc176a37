package bundlestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// TestMain is also the unprivileged reader.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ContentsCommand {
		if err := ReadContents(context.Background(), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == DeltaCommand {
		if err := ReadDelta(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func onDisk(t *testing.T, raw []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// raceDetector: this test program has it, and needs more memory than the unprivileged
// reader may have.
var raceDetector bool

// Both ways to read a medium say the same, of good bundles and of hostile ones.
func TestTheUnprivilegedReaderGivesTheSameContents(t *testing.T) {
	if raceDetector {
		c := exec.Command("go", "test", "-count", "1", "-v", "-run", "^"+t.Name()+"$", ".")
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("without the race detector: %v\n%s", err, out)
		}
		return
	}
	good := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1), bundletest.Key(2))
	tooNew := bundletest.Make(t, bundletest.Tiny())
	tooNew.Meta.FormatVersion, tooNew.Meta.MinRefit = 2, "3.0.0"
	cases := bundletest.Costly(1<<20, 1<<20)
	cases["good"], cases["cut off"], cases["text"] = good, good[:9000], []byte("text")
	cases["too new"] = tooNew.Header(t)
	cases["FAT with all of them"] = fileSystem(t, "FAT", cases)
	cases["ext4 with two"] = fileSystem(t, "ext4", map[string][]byte{"one": good, "dir/two": good, "note": []byte("hello")})
	cases["without a bundle"] = fileSystem(t, "FAT", map[string][]byte{"note": make([]byte, 5000)})
	for name, raw := range cases {
		f := onDisk(t, raw)
		want, wantErr := LocalContents(t.Context(), f)
		got, err := UnprivilegedContents(t.Context(), f)
		if err != nil || wantErr != nil {
			t.Errorf("%s: %v, %v", name, err, wantErr)
			continue
		}
		if d := cmp.Diff(want, got, cmp.Comparer(sameError)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// sameError compares kind and text.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var c, d *bundle.CorruptError
	var x, y *bundle.TooNewError
	return a.Error() == b.Error() && errors.As(a, &c) == errors.As(b, &d) && errors.As(a, &x) == errors.As(b, &y)
}

// What the reader answers is not believed: it may have been taken over.
func TestAFalseReaderIsRefused(t *testing.T) {
	raw := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	good, err := header(t, raw).Label()
	if err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*bundle.Label){
		"a digest":              func(l *bundle.Label) { l.Digest = "sha256:../../x" },
		"a name":                func(l *bundle.Label) { l.Name = "a\x1b[2Jb" },
		"a version":             func(l *bundle.Label) { l.Version = "1" },
		"a size":                func(l *bundle.Label) { l.HeaderSize = 1 << 40 },
		"many signatures":       func(l *bundle.Label) { l.Slot = bytes.Repeat([]byte("x"), 1<<20) },
		"another's signatures":  func(l *bundle.Label) { l.Digest = bundle.DigestOf(nil) },
		"signatures of no form": func(l *bundle.Label) { l.Slot = []byte("{}") },
	} {
		l := good
		lie(&l)
		s := MediaSet{Contents: says(Contents{Bundles: []OnMedium{{Label: l}}})}
		path := onDisk(t, raw).Name()
		if s.Scan([]media.Medium{{Path: path, Key: "1"}}) || len(s.all) != 1 || len(s.all[path].bundles) != 1 || !errors.Is(s.all[path].bundles[0].err, errContents) {
			t.Errorf("%s: %+v", name, s.all[path])
		}
	}
	// One that is well formed, of a bundle that is approved, on a medium that has another.
	other := bundletest.Tiny()
	other.Version = "9.9.9"
	l, err := header(t, bundletest.Bytes(t, other, bundletest.Key(1))).Label()
	if err != nil {
		t.Fatal(err)
	}
	l.FileSize = int64(len(raw))
	s := MediaSet{Contents: says(Contents{Bundles: []OnMedium{{Label: l}}})}
	defer s.Close()
	s.Scan([]media.Medium{{Path: onDisk(t, raw).Name(), Key: "1"}})
	p := s.With(l.Digest)
	if p == nil {
		t.Fatal("not there")
	}
	var wrong *bundle.OtherBundleError
	if _, err := p.Reader(nil); !errors.As(err, &wrong) || s.Reader(p.Header()) != nil {
		t.Fatalf("got %v", err)
	}
	if got := s.Describe(Policy{Approved: []string{l.Digest}}, func(string) Availability { return Availability{} })[0]; got.State != v1alpha1.MediumUnreadable || !strings.Contains(got.Message, "expected") {
		t.Errorf("%+v", got)
	}
}

func says(c Contents) ContentsReader {
	return func(context.Context, Handle) (Contents, error) { return c, nil }
}

// An answer that no honest reader gives costs the answer, not the agent.
func TestAFalseAnswerIsRefused(t *testing.T) {
	label, err := header(t, bundletest.Bytes(t, bundletest.Tiny())).Label()
	if err != nil {
		t.Fatal(err)
	}
	extent := func(at, length int64) []byte { return encodeExtents([]filesystem.Extent{{At: at, Length: length}}) }
	for name, a := range map[string]answer{
		"many bundles":            {Bundles: make([]answeredBundle, 21)},
		"many partitions":         {Partitions: make([]int, 300)},
		"files":                   {Files: -1},
		"two raw bundles":         {Bundles: []answeredBundle{{Label: &label}, {Label: &label}}},
		"no extents":              {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label}}},
		"a negative size":         {Bundles: []answeredBundle{{Name: "x", Size: -1, Label: &label}}},
		"extents that are short":  {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: extent(0, 99)}}},
		"extents that are long":   {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: extent(0, 101)}}},
		"extents without an end":  {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: []byte{0x80}}}},
		"extents without a size":  {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: []byte{0x01}}}},
		"an empty extent":         {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: append(extent(0, 100), 0, 0)}}},
		"an extent out of range":  {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: extent(math.MaxInt64-10, 100)}}},
		"an extent below nothing": {Bundles: []answeredBundle{{Name: "x", Size: 100, Label: &label, Extents: extent(-5, 100)}}},
		"very many extents":       {Bundles: []answeredBundle{{Name: "x", Size: maxExtents + 1, Label: &label, Extents: bytes.Repeat([]byte{0, 2}, maxExtents+1)}}},
	} {
		if c, err := a.contents(); !errors.Is(err, errContents) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	long := strings.Repeat("x\x1b", 5000)
	c, err := answer{FileSystems: slices.Repeat([]string{long}, 100), Problems: []string{long}, Unreadable: long, Bundles: []answeredBundle{{Name: "\x1b", Unreadable: long}}}.contents()
	if err != nil || len(c.FileSystems) != maxTexts || c.Bundles[0].Name != "?" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, text := range []string{c.FileSystems[0], c.Problems[0], c.Unreadable, c.Bundles[0].Err.Error()} {
		if len(text) > 400 || strings.Contains(text, "\x1b") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}
