package docs

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func allPages(t *testing.T) []Page {
	t.Helper()
	pages, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// Every page of the directory is a topic with a title; its text has no marks of Markdown, and every
// topic that it names is one.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	pages := allPages(t)
	want := 0
	err := filepath.WalkDir(".", func(p string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(p, ".md") && p != "README.md" {
			want++
		}
		return err
	})
	if err != nil || len(pages) != want {
		t.Errorf("%d topics of %d pages (%v): a new directory needs a section", len(pages), want, err)
	}
	for i := range pages {
		p := &pages[i]
		if p.Title == "" || strings.ContainsAny(p.Title, "#[") {
			t.Errorf("%s has the title %q", p.Topic, p.Title)
		}
		checkText(t, pages, p)
	}
}

func checkText(t *testing.T, pages []Page, p *Page) {
	t.Helper()
	const width = 80
	for line := range strings.Lines(Text(p, width)) {
		line = strings.TrimRight(line, "\n")
		isCode := strings.HasPrefix(line, "    ")
		if n := utf8.RuneCountInString(line); n > width && !isCode && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("%s: a line of %d characters: %s", p.Topic, n, line)
		}
		if !isCode && (strings.Contains(line, "](") && !strings.Contains(line, "`") || strings.HasPrefix(line, "|--")) {
			t.Errorf("%s: marks of Markdown: %s", p.Topic, line)
		}
		if _, after, ok := strings.Cut(line, "(refit docs "); ok {
			topic, _, whole := strings.Cut(after, ")")
			if found, _ := Find(pages, topic); whole && topic != "README" && (found == nil || found.Topic != topic) {
				t.Errorf("%s names the topic %s, which is none", p.Topic, topic)
			}
		}
	}
}

const sample = "# A page\n\nSome **text** with a [link](other.md#part) and\n`code`.\n- one item\n  goes on\n- [two](https://example.com/x.md)\n\n## Part\n" +
	"```sh\nrun this   --as it is\n```\n| a | b |\n| --- | --- |\n| `x \\| y` | short |\n\n| what | why |\n| --- | --- |\n| first | a cell that is much too long for a column next to another |\n<!-- for a test -->\n"

func TestText(t *testing.T) {
	t.Parallel()
	want := `A page
======

Some text with a link (refit docs
how-to/other) and ` + "`code`" + `.
- one item goes on
- two

Part
----
    run this   --as it is
a        b
----------
` + "`x | y`" + `  short

what: first
  why: a cell that is much too long for
    a column next to another
`
	if got := Text(&Page{Topic: "how-to/page", Text: sample}, 40); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestFindAndSearch(t *testing.T) {
	t.Parallel()
	pages := []Page{{"how-to/disk", "Disks", "# Disks\nA full disk stops an update.\n"}, {"reference/disk", "Sizes", "# Sizes\nfull\n"}, {"reference/other", "Other", "# Other\na DISK, a disk, full of disk\n"}}
	for topic, want := range map[string]string{"how-to/disk": "how-to/disk", "reference/disk.md": "reference/disk", "disk": "how-to/disk", "Other": "reference/other"} {
		if p, _ := Find(pages, topic); p == nil || p.Topic != want {
			t.Errorf("%s: %v, want %s", topic, p, want)
		}
	}
	if _, near := Find(pages, "disk"); strings.Join(near, " ") != "reference/disk" {
		t.Errorf("of the same name: %v", near)
	}
	if p, near := Find(pages, "oth"); p != nil || strings.Join(near, " ") != "reference/other" {
		t.Errorf("%v %v", p, near)
	}
	hits := Search(pages, []string{"full", "Disk"})
	if len(hits) != 3 || hits[0].Topic != "how-to/disk" || hits[0].Line != "A full disk stops an update." {
		t.Errorf("%+v", hits)
	}
	if hits := Search(pages, []string{"disk", "nowhere"}); len(hits) != 0 {
		t.Errorf("%+v", hits)
	}
}
