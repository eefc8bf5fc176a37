// Package docs has the pages of this directory for `refit docs`: to list, find and read them
// without a network, as text for a terminal.
//
// Inputs: the Markdown files, of the subset that the pages use. Outputs: topics, lines of text.
// Callers: internal/cli, and the web pages of build/release.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Files are the pages, their pictures, and the recording of the demo.
//
//go:embed *.md */*.md images/*.svg tutorial/*.cast
var Files embed.FS

// Section is a directory of pages.
type Section struct{ Dir, Title string }

// Sections are in the order of a reader.
var Sections = []Section{
	{"tutorial", "Tutorial"}, {"how-to", "How-to"}, {"explanation", "Explanation"}, {"reference", "Reference"}, {".", "More"}, {"design", "Design notes"},
}

// Page is one topic.
type Page struct {
	// Topic is the name that a person types: how-to/support.
	Topic string
	Title string
	// Text is the Markdown.
	Text string
}

// Pages returns the pages of a section, by name.
func Pages(s Section) ([]Page, error) {
	names, err := fs.Glob(Files, path.Join(s.Dir, "*.md"))
	if err != nil {
		return nil, err
	}
	out := make([]Page, 0, len(names))
	for _, name := range names {
		text, err := Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if name == "README.md" { // a list of the pages
			continue
		}
		title, _, _ := strings.Cut(string(text), "\n")
		out = append(out, Page{strings.TrimSuffix(name, ".md"), plain(strings.TrimLeft(title, "# ")), string(text)})
	}
	return out, nil
}

// All returns the pages of all sections.
func All() ([]Page, error) {
	var out []Page
	for _, s := range Sections {
		pages, err := Pages(s)
		if err != nil {
			return nil, err
		}
		out = append(out, pages...)
	}
	return out, nil
}

// Find returns the page of a topic, which is its name with or without its section. near are the
// other pages of that name; if there is none, the pages with the word in their names.
func Find(pages []Page, topic string) (page *Page, near []string) {
	topic = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(topic, "docs/"), ".md"))
	var parts []string
	for i, p := range pages {
		switch {
		case p.Topic == topic:
			return &pages[i], nil
		case path.Base(p.Topic) == topic && page == nil:
			page = &pages[i]
		case path.Base(p.Topic) == topic:
			near = append(near, p.Topic)
		case strings.Contains(p.Topic, topic):
			parts = append(parts, p.Topic)
		}
	}
	if page == nil {
		near = parts
	}
	return page, near
}

// Hit is a page that has all words of a search, and the line that has most of them.
type Hit struct {
	Page
	Line  string
	score int
}

// Search returns the pages that have all words, the best first: words in its title count more.
func Search(pages []Page, words []string) []Hit {
	var out []Hit
	for _, p := range pages {
		if h, ok := match(p, words); ok {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b Hit) int { return b.score - a.score })
	return out
}

// titleScore is what a word in a title or a topic counts, more than many lines.
const titleScore = 100

func match(p Page, words []string) (Hit, bool) {
	h := Hit{Page: p}
	title, text := strings.ToLower(p.Title+" "+p.Topic), strings.ToLower(p.Text)
	for _, w := range words {
		w = strings.ToLower(w)
		n := strings.Count(text, w)
		if n == 0 && !strings.Contains(title, w) {
			return h, false
		}
		h.score += min(n, titleScore/2)
		if strings.Contains(title, w) {
			h.score += titleScore
		}
	}
	best := 0
	for line := range strings.Lines(p.Text) {
		lower, n := strings.ToLower(line), 0
		for _, w := range words {
			n += min(1, strings.Count(lower, strings.ToLower(w)))
		}
		if n > best && !strings.HasPrefix(line, "# ") {
			best, h.Line = n, plain(strings.Trim(line, "#-| \n"))
		}
	}
	return h, true
}

var (
	links  = regexp.MustCompile(`!?\[([^\]]*)\]\(([^)#]*)[^)]*\)`)
	strong = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// plain is a line without the marks of Markdown; code keeps its quotes.
func plain(line string) string {
	line = strong.ReplaceAllString(links.ReplaceAllString(line, "$1"), "$1")
	return strings.ReplaceAll(line, `\|`, "|")
}
