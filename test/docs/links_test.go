package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	code     = regexp.MustCompile("`[^`]*`")
	notInRef = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// TestLinks: every relative link of a page leads to a file, and every anchor to a
// heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{}
	for _, page := range pages(t) {
		anchors[page] = headings(t, page)
	}
	checked := 0
	for page := range anchors {
		_, prose := splitPage(t, page)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(prose, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s leads nowhere", page, m[1])
				continue
			}
			if anchor != "" && !anchors[target][anchor] {
				t.Errorf("%s: link %s: %s has no heading for #%s", page, m[1], target, anchor)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links found: the test reads the wrong lines", checked)
	}
}

// TestEveryPageIsLinked: a reader reaches every page of docs/ by links from docs/README.md.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	start := filepath.Join(root, "docs/README.md")
	seen := map[string]bool{start: true}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		_, prose := splitPage(t, queue[0])
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			path, _, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(queue[0]), path)
			if strings.HasSuffix(path, ".md") && !strings.Contains(path, "://") && !seen[target] {
				seen[target] = true
				if _, err := os.Stat(target); err == nil {
					queue = append(queue, target)
				}
			}
		}
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, filepath.Join(root, "docs")+"/") && !seen[page] {
			t.Errorf("%s: no page links to it", page)
		}
	}
}

// headings are the anchors that GitHub makes of a page's headings.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	_, prose := splitPage(t, page)
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose, -1) {
		text := notInRef.ReplaceAllString(strings.ToLower(link.ReplaceAllString(m[1], "")), "")
		slug := strings.ReplaceAll(strings.TrimSpace(text), " ", "-")
		name := slug
		for n := 1; out[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug, n)
		}
		out[name] = true
	}
	return out
}
