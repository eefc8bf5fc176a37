package bundlestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// TestMain is also the unprivileged reader.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == LabelCommand {
		if err := ReadLabel(context.Background(), os.Stdout); err != nil {
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

// Both ways to read a label say the same, of good bundles and of hostile ones.
func TestTheUnprivilegedReaderGivesTheSameLabel(t *testing.T) {
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
	cases["good"], cases["cut off"], cases["empty"], cases["text"] = good, good[:9000], nil, []byte("text")
	cases["too new"] = tooNew.Header(t)
	for name, raw := range cases {
		f := onDisk(t, raw)
		want, wantErr := LocalLabel(t.Context(), f)
		got, err := UnprivilegedLabel(t.Context(), f)
		if d := cmp.Diff(want, got); d != "" || (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, bundle.ErrNotBundle) && err.Error() != wantErr.Error() {
			t.Errorf("%s: %s\n got %v\nwant %v", name, d, err, wantErr)
		}
		var a, b *bundle.CorruptError
		var x, y *bundle.TooNewError
		if errors.Is(err, bundle.ErrNotBundle) != errors.Is(wantErr, bundle.ErrNotBundle) || errors.As(err, &a) != errors.As(wantErr, &b) || errors.As(err, &x) != errors.As(wantErr, &y) {
			t.Errorf("%s: %T instead of %T", name, err, wantErr)
		}
	}
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
		s := MediaSet{Label: func(context.Context, Handle) (bundle.Label, error) { return l, nil }}
		if path := onDisk(t, raw).Name(); s.Scan([]media.Medium{{Path: path, Key: "1"}}) || len(s.all) != 1 || !errors.Is(s.all[path].err, errLabel) {
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
	s := MediaSet{Label: func(context.Context, Handle) (bundle.Label, error) { return l, nil }}
	defer s.Close()
	s.Scan([]media.Medium{{Path: onDisk(t, raw).Name(), Key: "1"}})
	p := s.With(l.Digest)
	if p == nil {
		t.Fatal("not there")
	}
	var wrong *bundle.OtherBundleError
	if _, err := p.Reader(); !errors.As(err, &wrong) || s.Reader(l.Digest) != nil {
		t.Fatalf("got %v", err)
	}
	if got := s.Describe(Policy{Approved: []string{l.Digest}}, func(string) Availability { return Availability{} })[0]; got.State != v1alpha1.MediumUnreadable || !strings.Contains(got.Message, "expected") {
		t.Errorf("%+v", got)
	}
}
