package results

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a test whose end is played: it passed, failed or was skipped.
type fake struct {
	testing.TB
	failed, skipped bool
	cleanups        []func()
}

func (f *fake) Cleanup(c func())    { f.cleanups = append(f.cleanups, c) }
func (f *fake) Failed() bool        { return f.failed }
func (f *fake) Skipped() bool       { return f.skipped }
func (f *fake) Helper()             {}
func (f *fake) Logf(string, ...any) {}
func (f *fake) end() {
	for _, c := range f.cleanups {
		c()
	}
}

func TestOnlyAPassingTestWritesItsResults(t *testing.T) {
	for _, c := range []struct {
		name            string
		failed, skipped bool
		replaced        bool
	}{
		{name: "passed", replaced: true},
		{name: "failed", failed: true},
		{name: "skipped", skipped: true},
		{name: "failed, then skipped", failed: true, skipped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "unit-test-of-results.json")
			if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			failed := filepath.Join(root(t), "bin", "results-failed", filepath.Base(file))
			t.Cleanup(func() { _ = os.Remove(failed) })
			f := &fake{TB: t}
			Keep(f, file, func() any { return map[string]int{"seen": 7} })
			f.failed, f.skipped = c.failed, c.skipped
			f.end()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(text) != "old"; got != c.replaced {
				t.Errorf("the file was replaced: %t, want %t", got, c.replaced)
			}
			_, err = os.Stat(failed)
			if want := c.failed && !c.skipped; (err == nil) != want {
				t.Errorf("a failed run's file is there: %t, want %t", err == nil, want)
			}
		})
	}
}

func TestResultsNameTheirCommit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	f := &fake{TB: t}
	Keep(f, file, func() any {
		return struct {
			Nodes int `json:"nodes"`
		}{3}
	})
	f.end()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Date, Commit string
		Nodes        int
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	head, err := git(".", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSuffix(got.Commit, "-dirty") != head || got.Date == "" || got.Nodes != 3 {
		t.Errorf("kept %s", text)
	}
}

func TestAResultIsAnObject(t *testing.T) {
	if _, err := (header{}).with([]int{1}); err == nil {
		t.Error("a list was taken")
	}
	if text, err := (header{Date: "d", Commit: "c"}).with(struct{}{}); err != nil || !json.Valid(text) {
		t.Errorf("nothing measured: %s, %v", text, err)
	}
}

func TestChangedResultsDoNotMakeACheckoutDirty(t *testing.T) {
	for status, want := range map[string]bool{
		"":                                   false,
		" M test/e2e/results/story.json":     false,
		" M internal/a.go":                   true,
		" M bench/results/a.json\n M go.mod": true,
	} {
		if got := differs(status); got != want {
			t.Errorf("%q: %t", status, got)
		}
	}
}
