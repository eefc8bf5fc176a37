package tagscmd

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imagetag"
)

var update = flag.Bool("update", false, "write the golden files")

// file writes a file for a test.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	sumA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sumB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	sumC = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

	published = `{"repository": "registry.example/app", "scheme": "rev",
 "tags": {"2.6.2-rev1-b5.1": "` + sumA + `", "2.6.2-rev1": "` + sumA + `", "2.6.2": "` + sumA + `", "2.6": "` + sumB + `", "latest": "` + sumB + `", "2.6.3-rev1-b1.1": "` + sumB + `", "2.6.3": "` + sumB + `", "2.6.3-rev1": "` + sumB + `"},
 "images": {"` + sumA + `": {"digest": "` + sumA + `", "version": "2.6.2", "definition": "d1", "base": "` + sumB + `", "platforms": ["linux/amd64"]}}}`
)

func event(change ...string) string {
	text := `{"image": {"digest": "` + sumC + `", "version": "2.6.2", "definition": "d1", "base": "` + sumC + `", "platforms": ["linux/amd64"]}, "app": "2.6.2", "build": "5.2"}`
	return strings.NewReplacer(change...).Replace(text)
}

// The plan as people read it: golden stories.
func TestPlanForPeople(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event string
		args  []string
		code  int
	}{
		"rebuild":  {event(), nil, console.ExitOK},
		"mismatch": {event(`"version": "2.6.2"`, `"version": "2.6.4"`), nil, console.ExitBlocked},
		"nothing":  {event(sumC, sumA, `"5.2"`, `"5.1"`), nil, console.ExitOK},
		"not-bump": {event(`"d1"`, `"d2"`), []string{"--want", "latest"}, console.ExitBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refit(t, "", append([]string{"tags", "plan", "--published", file(t, published), "--event", file(t, c.event)}, c.args...)...)
			if r.code != c.code {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
			path := filepath.Join("testdata", "plan-"+name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(r.out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if d := cmp.Diff(string(want), r.out); err != nil || d != "" {
				t.Errorf("%v: %s", err, d)
			}
		})
	}
}

func TestPlanExitCodes(t *testing.T) {
	t.Parallel()
	pub := file(t, published)
	ev := file(t, event())
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"a plan":                       {[]string{"--published", pub, "--event", ev}, console.ExitOK},
		"refused":                      {[]string{"--published", pub, "--event", ev, "--build", "5.1"}, console.ExitBlocked},
		"flags go before the file":     {[]string{"--published", pub, "--event", ev, "--case", "1"}, console.ExitBlocked},
		"nothing to push":              {[]string{"--published", pub, "--event", file(t, event(sumC, sumA, `"5.2"`, `"5.1"`)), "--fail-if-noop"}, console.ExitNothingToDo},
		"no image":                     {[]string{"--published", pub}, console.ExitUsage},
		"nothing published":            {[]string{"--event", ev}, console.ExitUsage},
		"an unknown field":             {[]string{"--published", pub, "--event", file(t, event(`"build"`, `"biuld"`))}, console.ExitUsage},
		"no digest":                    {[]string{"--published", pub, "--event", file(t, `{"build": "1"}`)}, console.ExitUsage},
		"a case that there is not":     {[]string{"--published", pub, "--event", ev, "--case", "5"}, console.ExitUsage},
		"two values":                   {[]string{"--published", pub, "--event", file(t, event()+event())}, console.ExitUsage},
		"a severity without a record":  {[]string{"--published", pub, "--event", ev, "--severity", "security"}, console.ExitUsage},
		"a severity that is none":      {[]string{"--published", pub, "--event", ev, "--severity", "urgent", "--record", filepath.Join(t.TempDir(), "r.json")}, console.ExitUsage},
		"a file that is not there":     {[]string{"--published", pub, "--event", "none.json"}, console.ExitUsage},
		"a repository with a tag":      {[]string{"--repo", "registry.example/app:1", "--event", ev}, console.ExitUsage},
		"a registry that is not there": {[]string{"--repo", "127.0.0.1:1/app", "--event", ev}, console.ExitInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := refit(t, "", append([]string{"tags", "plan", "-o", "json"}, c.args...)...); r.code != c.code {
				t.Errorf("exit %d, want %d: %s %s", r.code, c.code, r.out, r.err)
			}
		})
	}
}

// The record has what the tags cannot say, and is written only for what may be published.
func TestReleaseRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event string
		want  imagetag.ReleaseRecord
	}{
		"a rebuild": {event(), imagetag.ReleaseRecord{From: sumA, Case: "3", LongTag: "2.6.2-rev1-b5.2", Severity: "security", Fixes: []string{"CVE-2026-1", "CVE-2026-2"}}},
		"a fix": {event(`"build": "5.2"`, `"build": "1.1", "rev": 2`, `"d1"`, `"d2"`), imagetag.ReleaseRecord{From: sumA, Case: "2", LongTag: "2.6.2-rev2-b1.1", Severity: "security",
			Fixes: []string{"CVE-2026-1", "CVE-2026-2"}, ManifestsChange: true}},
		"what is refused": {event(`"version": "2.6.2"`, `"version": "2.6.4"`), imagetag.ReleaseRecord{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "record.json")
			r := refit(t, "", "tags", "plan", "--published", file(t, published), "--event", file(t, c.event), "--record", path, "--severity", "security", "--fixes", "CVE-2026-1,CVE-2026-2")
			data, err := os.ReadFile(path)
			if c.want.Case == "" {
				if err == nil || strings.Contains(r.out, "oras attach") {
					t.Errorf("a record was written: %s", data)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s %s", err, r.out, r.err)
			}
			got, err := imagetag.ParseRecord(data, sumC)
			c.want.APIVersion, c.want.Kind, c.want.Repository, c.want.Digest, c.want.Version = got.APIVersion, got.Kind, "registry.example/app", sumC, "2.6.2"
			if d := cmp.Diff(c.want, got); err != nil || d != "" {
				t.Errorf("%v: %s", err, d)
			}
			if !strings.Contains(r.out, "oras attach --artifact-type "+imagetag.RecordType+" registry.example/app@"+sumC+" "+path) {
				t.Error(r.out)
			}
		})
	}
}

func TestPlanFromStandardInput(t *testing.T) {
	t.Parallel()
	r := refit(t, event(), "tags", "plan", "--published", file(t, published), "--event", "-", "-o", "json")
	var v planView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Kind != "TagPlan" || v.Long != "2.6.2-rev1-b5.2" || v.Case != "3" || len(v.Steps) != 3 || len(v.MustNot) != 2 {
		t.Errorf("%v: %s %s", err, r.out, r.err)
	}
	r = refit(t, "", "tags", "plan", "--published", file(t, published), "--event", file(t, event(`"build": "5.2"`, `"build": ""`)), "-o", "json")
	if !strings.Contains(r.out, `"steps": []`) {
		t.Errorf("a refused plan has no list of steps: %s", r.out)
	}
}

func TestRetainFromFiles(t *testing.T) {
	t.Parallel()
	pub := file(t, `{"repository": "registry.example/app", "scheme": "rev",
 "tags": {"1.0.0-rev1-b1": "`+sumA+`", "1.0.0-rev1-b2": "`+sumB+`", "1.0.0-rev1-b3": "`+sumC+`"},
 "images": {"`+sumB+`": {"digest": "`+sumB+`", "created": "2020-01-01T00:00:00Z"}, "`+sumC+`": {"digest": "`+sumC+`", "created": "2020-02-01T00:00:00Z"}}}`)
	inspected := file(t, `{"kind": "Bundle", "name": "edge", "version": "1", "images": [{"name": "registry.example/app:1.0.0", "digest": "`+sumA+`"}]}`)
	args := []string{"tags", "retain", "--published", pub, "--builds", "1"}
	for name, c := range map[string]struct {
		args []string
		code int
		goes []string
	}{
		"two may go":                      {[]string{"--for", "30d"}, console.ExitOK, []string{sumA, sumB}},
		"a bundle holds one":              {[]string{"--for", "30d", "--bundle", inspected}, console.ExitOK, []string{sumB}},
		"the first release":               {[]string{"--for", "30d", "--first", "1.0.0-rev1-b2"}, console.ExitOK, []string{sumA}},
		"one until a day to come":         {[]string{"--for", "30d", "--until", "1.0.0-rev1-b1=2999-01-01"}, console.ExitOK, []string{sumB}},
		"none, with --fail-if-noop":       {[]string{"--for", "30000d", "--fail-if-noop"}, console.ExitNothingToDo, nil},
		"no time is stated":               {nil, console.ExitUsage, nil},
		"a time that is none":             {[]string{"--for", "soon"}, console.ExitUsage, nil},
		"a negative time":                 {[]string{"--for", "-1h"}, console.ExitUsage, nil},
		"a day that is none":              {[]string{"--for", "1d", "--until", "a=b"}, console.ExitUsage, nil},
		"a bundle that is none":           {[]string{"--for", "1d", "--bundle", pub}, console.ExitUsage, nil},
		"a bundle that is not there":      {[]string{"--for", "1d", "--bundle", "none"}, console.ExitUsage, nil},
		"fewer than no builds are a typo": {[]string{"--for", "1d", "--builds", "-1"}, console.ExitUsage, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refit(t, "", append(append([]string{}, args...), append(c.args, "-o", "json")...)...)
			var v retainView
			if r.code != console.ExitUsage {
				if err := json.Unmarshal([]byte(r.out), &v); err != nil {
					t.Fatalf("%v: %s %s", err, r.out, r.err)
				}
			}
			var got []string
			for _, f := range v.Delete {
				got = append(got, f.Digest)
			}
			if d := cmp.Diff(c.goes, got); d != "" || r.code != c.code {
				t.Errorf("exit %d, want %d: %s", r.code, c.code, d)
			}
		})
	}
	r := refit(t, "", append(args, "--for", "30d")...)
	if !strings.HasPrefix(r.out, "2 digests of registry.example/app may be deleted, 1 stay") {
		t.Error(r.out)
	}
}
