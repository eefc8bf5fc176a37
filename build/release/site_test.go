package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	reference = regexp.MustCompile(`<(a|script|link|img)\b[^>]*?\b(?:href|src)="([^"]*)"`)
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
		s := site{version: "1.2.3", output: filepath.Join(t.TempDir(), "pages")}
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
