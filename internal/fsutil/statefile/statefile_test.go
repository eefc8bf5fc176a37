package statefile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type record map[string]string

func read(path string) (r record, found bool, noted []Problem) {
	found = Read(path, "it is made anew", func(b []byte) error { return json.Unmarshal(b, &r) }, func(p Problem) { noted = append(noted, p) })
	return r, found, noted
}

func TestADamagedFileCountsAsMissing(t *testing.T) {
	t.Parallel()
	whole := []byte(`{"a":"b","c":"a value that is long enough"}`)
	for _, d := range disktest.Damages() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.json")
			if _, found, noted := read(path); found || len(noted) > 0 {
				t.Errorf("no file: %v %v", found, noted)
			}
			for range Kept + 2 {
				must(t, os.WriteFile(path, whole, 0o600))
				if _, found, noted := read(path); !found || len(noted) > 0 {
					t.Fatalf("a whole file: %v %v", found, noted)
				}
				d.Apply(t, path)
				if _, found, noted := read(path); found || len(noted) != 1 || noted[0].Reason != ReasonDamaged || !strings.Contains(noted[0].Message, Aside(path, 1)) {
					t.Fatalf("%v %+v", found, noted)
				}
				if b, err := os.ReadFile(Aside(path, 1)); err != nil || string(b) != string(d.Of(whole)) {
					t.Errorf("set aside: %q %v", b, err)
				}
			}
			if es, err := os.ReadDir(filepath.Dir(path)); err != nil || len(es) != Kept {
				t.Errorf("%d files are kept, %v", len(es), err)
			}
		})
	}
}

// A disk that takes no byte does not matter: a rename needs none, and without it the file
// is ignored.
func TestOnAFullOrReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		path := f.Path("x.json")
		must(t, os.WriteFile(path, make([]byte, 64), 0o600))
		f.Fill()
		if _, found, noted := read(path); found || len(noted) != 1 {
			t.Errorf("full: %v %+v", found, noted)
		}
		f.Free()
		must(t, os.WriteFile(path, nil, 0o600))
		f.ReadOnly()
		if _, found, noted := read(path); found || len(noted) != 1 || !strings.Contains(noted[0].Message, "ignored where it is") {
			t.Errorf("read-only: %v %+v", found, noted)
		}
		var noted []Problem
		Dir(f.Path("none"), "", func(p Problem) { noted = append(noted, p) })
		if len(noted) != 1 || noted[0].Reason != ReasonNotWritable {
			t.Errorf("%+v", noted)
		}
	})
}

func TestDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bundles")
	var noted []Problem
	note := func(p Problem) { noted = append(noted, p) }
	for range 2 {
		Dir(dir, "it is fetched again", note)
	}
	if len(noted) > 0 {
		t.Errorf("%+v", noted)
	}
	must(t, os.Remove(dir))
	must(t, os.WriteFile(dir, make([]byte, 64), 0o600))
	Dir(dir, "it is fetched again", note)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() || len(noted) != 1 || noted[0].Object != dir {
		t.Errorf("%v %+v", err, noted)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	p := At(t.TempDir())
	now := time.Now()
	if got := p.List(now); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	p.Add(Problem{Reason: ReasonDamaged, Object: "a", Message: "old", Repaired: true})
	p.Add(Problem{Reason: ReasonDamaged, Object: "a", Message: "new", Repaired: true})
	p.Add(Problem{Reason: ReasonNotWritable, Object: "b"})
	got := p.List(now)
	if len(got) != 2 || got[0].Object != "b" || got[1].Message != "new" {
		t.Errorf("%+v", got)
	}
	// What is repaired is reported for a day, what is not until it is.
	if got = p.List(now.Add(25 * time.Hour)); len(got) != 1 || got[0].Object != "b" {
		t.Errorf("%+v", got)
	}
	p.Clear(ReasonNotWritable, "b")
	if got = p.List(now); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	for i := range 2 * most {
		p.Add(Problem{Reason: ReasonDamaged, Object: strings.Repeat("x", i)})
	}
	if got = p.List(now); len(got) != most {
		t.Errorf("%d problems are kept", len(got))
	}
}
