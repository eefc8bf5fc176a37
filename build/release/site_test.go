package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	reference = regexp.MustCompile(`<(a|script|link|img|iframe)\b[^>]*?\b(?:href|src)="([^"]*)"`)
	named     = regexp.MustCompile(`\bid="([^"]+)"`)
)

// The pages need nothing but their directory: every link and every anchor leads somewhere, and no
// page loads a file from another server. The same pages give the same bytes.
func TestSite(t *testing.T) {
	if _, err := exec.LookPath("mkdocs"); err != nil {
		t.Skip("mkdocs is not installed: make deps")
	}
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var built [2]map[string]string
	for i := range built {
		s := site{version: "1.2.3", output: filepath.Join(t.TempDir(), "1.2.3")}
		if err := s.build(); err != nil {
			t.Fatal(err)
		}
		built[i] = filesIn(t, s.output)
	}
	pages := built[0]
	for name, text := range pages {
		if built[1][name] != text {
			t.Errorf("%s differs between two builds", name)
		}
	}
	ids := map[string]map[string]bool{}
	for name, text := range pages {
		ids[name] = map[string]bool{"": true}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			ids[name][m[1]] = true
		}
	}
	links := 0
	for name, text := range pages {
		if !strings.HasSuffix(name, ".html") || name == "404.html" { // 404.html is for a server
			continue
		}
		checkSample(t, name, text)
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[2], "#")
			target, _, _ = strings.Cut(target, "?")
			if strings.Contains(target, "://") {
				if m[1] != "a" {
					t.Errorf("%s loads %s", name, target)
				}
				continue
			}
			links++
			to := name
			if target != "" {
				to = filepath.Join(filepath.Dir(name), target)
			}
			if to == "." || strings.HasSuffix(target, "/") {
				to = filepath.Join(to, "index.html")
			}
			if ids[to] == nil || m[1] == "a" && !ids[to][anchor] {
				t.Errorf("%s: %s leads nowhere", name, m[2])
			}
		}
	}
	if links < 1000 {
		t.Errorf("%d links were checked", links)
	}
	for name, want := range map[string]string{
		"search/pages.js":                    "how-to/stuck.html",
		"site.js":                            "search/pages.js",
		"index.html":                         "refit 1.2.3",
		"explanation/walks.html":             "https://github.com/refit-dev/refit/blob/v1.2.3/ARCHITECTURE.md",
		"how-to/update-from-a-stick.html":    `href="../reference/cli.html#media-of-nodes"`,
		"reference/bundle-format.html":       "<table>",
		"design/2026-11-22-tokens.html":      "<h1",
		"images/overview.svg":                "<svg",
		"css/theme.css":                      "font-face",
		"search.html":                        "mkdocs-search-results",
		"how-to/monitoring.html":             "<li>",
		"tutorial/first-steps.html":          "<code",
		"reference/commands.html":            "refit bundle write",
		"reference/reasons.html":             `id="awaitingstart"`,
		"explanation/threat-model.html":      "<h2",
		"how-to/prepare-for-power-cuts.html": "<h1",
		"how-to/status-page.html":            `<iframe class="sample" src="../samples/3-updating.html" title="Updating: 2 of 4 nodes - refit" loading="lazy" sandbox="allow-same-origin">`,
		"samples/4-halted-technician.html":   `<main class="big bad">`,
		"samples/5-done.html":                `href="5-done-technician.html"`,
		"versions.html":                      "refit 1.2.3</a> (these pages)",
	} {
		if !strings.Contains(pages[name], want) {
			t.Errorf("%s does not contain %s", name, want)
		}
	}
	for _, gone := range []string{"search/worker.js", "search/search_index.json", "js/theme.js"} {
		if pages[gone] != "" {
			t.Errorf("%s is still there", gone)
		}
	}
}

// checkSample: samples of the status page need neither a script nor a controller, and all other
// pages link to the other versions.
func checkSample(t *testing.T, name, text string) {
	t.Helper()
	if !strings.HasPrefix(name, samplesDir+"/") {
		if !strings.Contains(text, versionsPage+`"`) {
			t.Errorf("%s does not link to the other versions", name)
		}
		return
	}
	for _, live := range []string{"<script", "data-events", "http-equiv", `href="?`, "api/status"} {
		if strings.Contains(text, live) {
			t.Errorf("%s contains %s", name, live)
		}
	}
}

// Each version lists those that are next to it, the newest first, also after one was removed. A
// directory of something else is left alone.
func TestVersions(t *testing.T) {
	parent := t.TempDir()
	write := func(dir, file, text string) {
		t.Helper()
		dir = filepath.Join(parent, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	list := func() string {
		t.Helper()
		c := versionsCommand()
		c.SetArgs([]string{parent})
		c.SetOut(io.Discard)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(parent, "refit-docs-0.9.0", versionsPage))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, v := range []string{"0.9.0", "0.10.0", "1.0.0-rc.1", "a<b"} {
		write("refit-docs-"+v, versionFile, `{"version":"`+v+`"}`)
		write("refit-docs-"+v, versionsPage, "<p>before</p>"+versionsBegin+versionsEnd+"<p>after</p>")
	}
	write("other", "index.html", "")
	want := `<p>before</p><ul id="versions">
<li><a href="../refit-docs-1.0.0-rc.1/index.html">refit 1.0.0-rc.1</a></li>
<li><a href="../refit-docs-0.10.0/index.html">refit 0.10.0</a></li>
<li><a href="index.html">refit 0.9.0</a> (these pages)</li>
<li><a href="../refit-docs-a%3Cb/index.html">refit a&lt;b</a></li>
</ul><p>after</p>`
	for range 2 { // a list is made again of a list
		if got := list(); got != want {
			t.Errorf("%s", got)
		}
	}
	if err := os.RemoveAll(filepath.Join(parent, "refit-docs-0.10.0")); err != nil {
		t.Fatal(err)
	}
	if got := list(); strings.Contains(got, "0.10.0") {
		t.Errorf("a version that is gone is listed: %s", got)
	}
	for text, want := range map[string]string{"{": "unexpected end of JSON input: build that version again", `{"version":""}`: "names no version", `{"version":"2.0.0"}`: versionsPage} {
		write("damaged", versionFile, text)
		if _, err := listVersions(parent); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "2.0.0") {
			t.Errorf("%s: %v", text, err)
		}
	}
	write("damaged", versionFile, `{"version":"2.0.0"}`)
	write("damaged", versionsPage, "<p>another page</p>")
	if _, err := listVersions(parent); err == nil || !strings.Contains(err.Error(), "has no list of versions") {
		t.Error(err)
	}
	c := versionsCommand()
	c.SetArgs([]string{t.TempDir()})
	c.SetErr(io.Discard)
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), versionFile) {
		t.Errorf("a directory without versions: %v", err)
	}
}

func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
