package tagscmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

type result struct {
	out, err string
	code     int
}

// refit runs a command line, with standard input.
func refit(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	root := &cobra.Command{Use: "refit", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(New(&inputs.Access{Out: &out, Err: &errOut}))
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	r := result{out: out.String(), err: errOut.String(), code: console.ExitCode(err)}
	if err != nil {
		r.err += err.Error()
	}
	return r
}

func TestCompareSaysTheWordFirst(t *testing.T) {
	t.Parallel()
	sum := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		args []string
		word string
	}{
		"newer":                         {[]string{"2.6.2-rev10-b1.1", "2.6.2-rev9-b1.1"}, "newer"},
		"older":                         {[]string{"2.6.2-rev1-b5.9", "2.6.2-rev1-b5.10"}, "older"},
		"same":                          {[]string{"2.6.2-rev1-b5.9", "2.6.2-rev1-b5.9"}, "same"},
		"pointers":                      {[]string{"2.6.2-rev1", "2.6.2"}, "incomparable"},
		"an illegal tag":                {[]string{"2.6.2-rev1+5.1", "2.6.2-rev1-b5.1"}, "incomparable"},
		"another scheme":                {[]string{"v1.31.2", "v1.31.10", "--scheme", "semver"}, "older"},
		"a declared scheme":             {[]string{"7_r10", "7_r9", "--scheme", `regexp:(?P<app>\d+)_r(?P<rev>\d+)`}, "newer"},
		"one repository":                {[]string{"r.example/a:1-rev1-b2", "r.example/a:1-rev1-b1"}, "newer"},
		"short names":                   {[]string{"app:1-rev1-b2", "docker.io/library/app:1-rev1-b1"}, "newer"},
		"an epoch":                      {[]string{"1:1-rev1-b2", "1-rev1-b1"}, "incomparable"},
		"two repositories":              {[]string{"r.example/a:1-rev1-b2", "r.example/b:1-rev1-b1"}, "incomparable"},
		"two spellings of a repository": {[]string{"a/b:1-rev1-b2", "docker.io/a/b:1-rev1-b1"}, "newer"},
		"one repository left out":       {[]string{"r.example/a:1-rev1-b2", "1-rev1-b1"}, "newer"},
		"two projects":                  {[]string{"1-rev1-b2", "1-rev1-b1", "--project", "devel,product"}, "incomparable"},
		"one digest under two pointers": {[]string{"r.example/a:1@" + sum, "r.example/a:latest@" + sum}, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refit(t, "", append([]string{"tags", "compare"}, c.args...)...)
			words := strings.Fields(r.out)
			if r.code != console.ExitOK || len(words) < 2 || words[0] != c.word {
				t.Errorf("exit %d: %q %s; want %s first", r.code, r.out, r.err, c.word)
			}
			j := refit(t, "", append([]string{"tags", "compare", "-o", "json"}, c.args...)...)
			var v compareView
			if err := json.Unmarshal([]byte(j.out), &v); err != nil || string(v.Order) != c.word || v.Why == "" || v.Kind != "TagCompare" {
				t.Errorf("JSON: %v: %s", err, j.out)
			}
		})
	}
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"one tag":             {"tags", "compare", "1"},
		"an unknown scheme":   {"tags", "compare", "1", "2", "--scheme", "guess"},
		"one project":         {"tags", "compare", "1", "2", "--project", "devel"},
		"a bad reference":     {"tags", "compare", "a/B:1", "a/b:1"},
		"a digest alone":      {"tags", "compare", "a/b@sha256:" + strings.Repeat("a", 64), "a/b:1"},
		"an unknown format":   {"tags", "sort", "1", "-o", "xml"},
		"a broken expression": {"tags", "sort", "1", "--scheme", "regexp:("},
	} {
		if r := refit(t, "", args...); r.code != console.ExitUsage || r.out != "" {
			t.Errorf("%s: exit %d, %q %q", name, r.code, r.out, r.err)
		}
	}
}

func TestCompareHintsAtTheScheme(t *testing.T) {
	t.Parallel()
	if r := refit(t, "", "tags", "compare", "v1.31.2", "v1.31.10"); !strings.Contains(r.err, "--scheme semver") || !strings.HasPrefix(r.out, "incomparable ") {
		t.Errorf("%q %q", r.out, r.err)
	}
	if r := refit(t, "", "tags", "compare", "v1.31.2", "v1.31.10", "--scheme", "rev"); strings.Contains(r.err, "--scheme") {
		t.Errorf("a scheme that was declared is doubted: %q", r.err)
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	want := "2.6.2-rev9-b1\n2.6.2-rev10-b1\n"
	r := refit(t, "latest\n2.6.2-rev10-b1\n\n2.6.2-rev9-b1\n2.6.2-rev0-b1\n", "tags", "sort")
	if d := cmp.Diff(want, r.out); d != "" || r.code != console.ExitOK {
		t.Errorf("exit %d: %s", r.code, d)
	}
	if !strings.Contains(r.err, "floating tags") || !strings.Contains(r.err, "rev0") {
		t.Errorf("unsorted tags are not reported: %q", r.err)
	}
	r = refit(t, "", "tags", "sort", "-o", "json", "2.6.2-rev10-b1", "2.6.2-rev9-b1", "2.6-rev1-b1")
	var v sortView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || len(v.Lines) != 2 {
		t.Errorf("%v: %s", err, r.out)
	}
}
