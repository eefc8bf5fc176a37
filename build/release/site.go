package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/docs"
)

// site is the documentation as web pages: readable from a directory, without a server.
type site struct{ version, output string }

const repository = "https://github.com/refit-dev/refit/blob"

// siteCommand builds the pages alone.
func siteCommand() *cobra.Command {
	s := &site{}
	c := &cobra.Command{
		Use: "site --version VERSION --output DIR", Short: "Build the documentation of a version as web pages",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if err := s.build(); err != nil {
				return err
			}
			_, err := listVersions(filepath.Dir(s.output))
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&s.version, "version", "", "version that the pages are for, without a v")
	f.StringVar(&s.output, "output", "", "directory to make, next to those of other versions; it is replaced")
	_ = c.MarkFlagRequired("output")
	_ = c.MarkFlagRequired("version")
	return c
}

// documentation packs the pages into an archive of the release.
func (r *release) documentation([]platform) error {
	dir, err := os.MkdirTemp("", "refit-docs-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := site{version: r.version, output: filepath.Join(dir, "pages")}
	if err := s.build(); err != nil {
		return err
	}
	name := "refit-docs-" + r.version
	var files []packed
	if err := filepath.WalkDir(s.output, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(s.output, p)
		files = append(files, packed{name: name + "/" + filepath.ToSlash(rel), from: p, mode: 0o644})
		return err
	}); err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b packed) int { return strings.Compare(a.name, b.name) })
	return writeFile(filepath.Join(r.output, name+".tar.gz"), func(w io.Writer) error { return tarGzip(w, files, r.date) })
}

// configuration of MkDocs. The theme's highlighter is off: it comes from another server.
const configuration = `site_name: refit %s
docs_dir: docs
site_dir: pages
use_directory_urls: false
theme:
  name: readthedocs
  highlightjs: false
markdown_extensions: [attr_list, sane_lists]
plugins: [search]
extra_css: [tables.css]
nav:
- README.md
- Other versions: versions.md
%s`

// tables.css: the theme's tables have no padding, and do not break lines.
const tables = `.rst-content table th, .rst-content table td { padding: .35em .6em; vertical-align: top; white-space: normal; }
.rst-content table { margin-bottom: 1.5em; }
iframe.sample { display: block; width: 100%; height: 34rem; margin-bottom: 1.5em; border: 1px solid #dde3ea; }
iframe.small { height: 28rem; }
`

// navigation lists all pages.
func navigation() (string, error) {
	var b strings.Builder
	for _, sec := range docs.Sections {
		pages, err := docs.Pages(sec)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "- %s:\n", sec.Title)
		for _, p := range pages {
			fmt.Fprintf(&b, "  - %s.md\n", p.Topic)
		}
	}
	return b.String(), nil
}

// build makes the pages next to their place, and renames them at the end.
func (s *site) build() error {
	program, err := exec.LookPath("mkdocs")
	if err != nil {
		return errors.New("mkdocs is not installed: make deps installs it")
	}
	dir, err := os.MkdirTemp("", "refit-site-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.writeSources(dir); err != nil {
		return err
	}
	config := filepath.Join(dir, "mkdocs.yml")
	if out, err := exec.Command(program, "build", "--quiet", "--strict", "--config-file", config).CombinedOutput(); err != nil {
		return fmt.Errorf("mkdocs: %w: %s", err, out)
	}
	pages := filepath.Join(dir, "pages")
	if err := replaceScripts(pages); err != nil {
		return fmt.Errorf("scripts of the pages: %w", err)
	}
	if err := s.writeVersion(pages); err != nil {
		return err
	}
	if err := os.RemoveAll(s.output); err != nil {
		return err
	}
	return os.CopyFS(s.output, os.DirFS(pages))
}

// writeSources writes what MkDocs reads.
func (s *site) writeSources(dir string) error {
	sources := filepath.Join(dir, "docs")
	nav, err := navigation()
	if err != nil {
		return err
	}
	return errors.Join(s.copyPages(sources), writeSamples(filepath.Join(sources, samplesDir)),
		os.WriteFile(filepath.Join(dir, "mkdocs.yml"), fmt.Appendf(nil, configuration, s.version, nav), 0o644),
		os.WriteFile(filepath.Join(sources, "tables.css"), []byte(tables), 0o644),
		os.WriteFile(filepath.Join(sources, "versions.md"), fmt.Appendf(nil, versionsText, s.version), 0o644))
}

// writeVersion makes the pages those of a version, which lists itself alone until others are next to it.
func (s *site) writeVersion(pages string) error {
	text, err := json.Marshal(map[string]string{"version": s.version})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(pages, versionFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	_, err = listVersions(filepath.Dir(pages))
	return err
}

//go:embed site.js
var script []byte

var scripts = regexp.MustCompile(`(?s)<script\b.*?</script>\s*`)

const body = "</body>"

// replaceScripts replaces the scripts of MkDocs and of its theme: their search needs a web server,
// and some of their files are missing in Debian's package.
func replaceScripts(dir string) error {
	index := filepath.Join(dir, "search", "search_index.json")
	raw, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	var list struct {
		Docs json.RawMessage `json:"docs"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "search", "pages.js"), slices.Concat([]byte("window.refitPages = "), list.Docs, []byte(";\n")), 0o644),
		os.WriteFile(filepath.Join(dir, "site.js"), script, 0o644),
		os.Remove(index), os.Remove(filepath.Join(dir, "search", "main.js")), os.Remove(filepath.Join(dir, "search", "worker.js")),
		os.RemoveAll(filepath.Join(dir, "js"))); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == samplesDir {
			return fs.SkipDir // they have no script, and need none
		}
		if err != nil || d.IsDir() || filepath.Ext(p) != ".html" {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		up, err := filepath.Rel(filepath.Dir(p), dir)
		if err != nil {
			return err
		}
		own := `<script src="` + path.Join(filepath.ToSlash(up), "site.js") + `" defer></script>` + body
		return os.WriteFile(p, []byte(strings.Replace(scripts.ReplaceAllString(string(text), ""), body, own, 1)), 0o644)
	})
}

// copyPages writes the pages as MkDocs reads them.
func (s *site) copyPages(to string) error {
	return fs.WalkDir(docs.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := docs.Files.ReadFile(p)
		if err != nil {
			return err
		}
		if strings.HasSuffix(p, ".md") {
			if text, err = s.pageWithPictures(p, string(text)); err != nil {
				return err
			}
		}
		out := filepath.Join(to, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		return os.WriteFile(out, text, 0o644)
	})
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s#]+)(#[^)\s]*)?\)`)
	heading = regexp.MustCompile(`^##+ (.+)$`) // MkDocs takes the title of a page as it is
	item    = regexp.MustCompile(`^(- |\d+\. |\|)`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// pageWithPictures is a page with the samples of the status page where it has their mark.
func (s *site) pageWithPictures(name, text string) ([]byte, error) {
	text = s.page(name, text)
	if !strings.Contains(text, picturesMark) {
		return []byte(text), nil
	}
	frames, err := pictures(strings.Repeat("../", strings.Count(name, "/")))
	return []byte(strings.Replace(text, picturesMark, frames, 1)), err
}

// page rewrites a page from GitHub's Markdown into that of MkDocs. Headings keep GitHub's anchors, and
// an empty line comes before lists and tables. Links to files that are no pages lead to the repository.
func (s *site) page(name, text string) string {
	var out []string
	seen := map[string]int{}
	fenced, before := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if !fenced {
			line = s.rewrite(name, line, seen)
			if item.MatchString(line) && before != "" && !item.MatchString(before) && !strings.HasPrefix(before, "  ") {
				out = append(out, "")
			}
		}
		out = append(out, line)
		before = line
	}
	return strings.Join(out, "\n") + "\n"
}

func (s *site) rewrite(page, line string, seen map[string]int) string {
	if m := heading.FindStringSubmatch(line); m != nil {
		return line + " {#" + anchor(m[1], seen) + "}"
	}
	return link.ReplaceAllStringFunc(line, func(l string) string {
		m := link.FindStringSubmatch(l)
		if strings.Contains(m[1], ":") {
			return l
		}
		to := path.Join("docs", path.Dir(page), m[1])
		if strings.HasPrefix(to, "docs/") && path.Ext(to) != "" {
			return l
		}
		if path.Dir(to) == samplesFrom {
			return "](" + strings.Repeat("../", strings.Count(page, "/")) + path.Join(samplesDir, path.Base(to)) + ")"
		}
		return "](" + repository + "/v" + s.version + "/" + to + m[2] + ")"
	})
}

// anchor is the one that GitHub gives a heading of a page.
func anchor(heading string, seen map[string]int) string {
	heading = link.ReplaceAllString(heading, "]")
	slug := strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	n := seen[slug]
	seen[slug]++
	if n > 0 {
		return fmt.Sprintf("%s-%d", slug, n)
	}
	return slug
}
