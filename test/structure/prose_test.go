package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// maxWords is how many words a sentence may have.
const maxWords = 32

// proseExempt are the linter's own list, and history.
var proseExempt = []string{"test/structure/prose_words_test.go", "CHANGELOG.md"}

type proseFinding struct {
	file string
	line int
	what string
}

// TestProse holds Markdown, Go comments and the strings that people read to
// the language of CONTRIBUTING.md: no retired words, no long sentences.
func TestProse(t *testing.T) {
	t.Parallel()
	for _, f := range proseFindings(t, "../..") {
		t.Errorf("%s:%d: %s", f.file, f.line, f.what)
	}
}

func TestProseSamples(t *testing.T) {
	t.Parallel()
	for _, s := range proseSamples {
		if bad := len(checkText(s.text))+len(checkSentences(s.text)) > 0; bad != s.bad {
			t.Errorf("%q: reported %v, want %v", s.text, bad, s.bad)
		}
	}
}

// proseFindings returns what breaks the rules.
func proseFindings(t *testing.T, root string) []proseFinding {
	t.Helper()
	var found []proseFinding
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(name, root+"/"))
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "bin" || rel == "config/crd") {
				return fs.SkipDir
			}
			return nil
		}
		var of []proseFinding
		switch {
		case slices.Contains(proseExempt, rel) || strings.HasPrefix(d.Name(), "zz_generated"):
			return nil
		case strings.HasSuffix(name, ".md"):
			of, err = checkMarkdown(name)
		case strings.HasSuffix(name, ".go"):
			of, err = checkGo(name)
		default:
			return nil
		}
		files++
		for _, f := range of {
			f.file = rel
			found = append(found, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Fatalf("only %d files found: the test reads the wrong directory", files)
	}
	return found
}

// checkText returns the retired words of a text.
func checkText(text string) []string {
	var out []string
	for _, r := range retiredWords {
		for _, m := range r.pattern.FindAllStringIndex(text, -1) {
			if r.allowed != nil && r.allowed.MatchString(text[max(0, m[0]-12):min(len(text), m[1]+12)]) {
				continue
			}
			out = append(out, fmt.Sprintf("%q: use %s", text[m[0]:m[1]], r.use))
		}
	}
	return out
}

var (
	codeSpan    = regexp.MustCompile("`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	sentenceEnd = regexp.MustCompile(`[.!?][)"'*_]*(\s+|$)`)
	abbreviated = regexp.MustCompile(`(?i)(\be\.g|\bi\.e|\betc|\bvs|\.\.)\.\s+$`)
)

// checkSentences returns the sentences of a paragraph that are too long.
func checkSentences(text string) []string {
	text = codeSpan.ReplaceAllString(text, "code")
	text = linkTarget.ReplaceAllString(text, "]")
	var out []string
	start := 0
	ends := append(sentenceEnd.FindAllStringIndex(text, -1), []int{len(text), len(text)})
	for _, e := range ends {
		if e[1] < len(text) && abbreviated.MatchString(text[:e[1]]) {
			continue
		}
		sentence := text[start:e[1]]
		start = e[1]
		n := 0
		for _, w := range strings.Fields(sentence) {
			if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				n++
			}
		}
		if n > maxWords {
			out = append(out, fmt.Sprintf("sentence of %d words, at most %d: %.60s...", n, maxWords, strings.TrimSpace(sentence)))
		}
	}
	return out
}

var listItem = regexp.MustCompile(`^\s*([-*+]|[0-9]+\.)\s+`)

// checkMarkdown checks a page: paragraphs, list items, headings and cells of tables.
func checkMarkdown(name string) ([]proseFinding, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var out []proseFinding
	var paragraph []string
	first, fenced := 0, false
	flush := func() {
		for _, s := range checkSentences(strings.Join(paragraph, " ")) {
			out = append(out, proseFinding{line: first, what: s})
		}
		paragraph = nil
	}
	for i, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			flush()
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		for _, s := range checkText(linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(line, "`code`"), "]")) {
			out = append(out, proseFinding{line: i + 1, what: s})
		}
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "|"):
			flush()
			for _, cell := range strings.Split(trimmed, "|") {
				for _, s := range checkSentences(cell) {
					out = append(out, proseFinding{line: i + 1, what: s})
				}
			}
			continue
		case trimmed == "", strings.HasPrefix(trimmed, "#"), listItem.MatchString(line):
			flush()
		}
		if trimmed != "" && !strings.HasPrefix(trimmed, "#") {
			if len(paragraph) == 0 {
				first = i + 1
			}
			paragraph = append(paragraph, listItem.ReplaceAllString(line, ""))
		}
	}
	flush()
	return out, nil
}

// checkGo checks the comments, the strings that people read and the declared names of a file.
func checkGo(name string) ([]proseFinding, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &goProse{set: set, joined: map[ast.Node]bool{}}
	for _, group := range file.Comments {
		g.checkComment(group)
	}
	ast.Inspect(file, g.checkNode)
	return g.found, nil
}

type goProse struct {
	set    *token.FileSet
	found  []proseFinding
	joined map[ast.Node]bool
}

func (g *goProse) report(pos token.Pos, what ...string) {
	for _, w := range what {
		g.found = append(g.found, proseFinding{line: g.set.Position(pos).Line, what: w})
	}
}

var directive = regexp.MustCompile(`^//(go:|nolint|lint:| ?\+)`)

func (g *goProse) checkComment(group *ast.CommentGroup) {
	var paragraph []string
	var first token.Pos
	flush := func() {
		g.report(first, checkSentences(strings.Join(paragraph, " "))...)
		paragraph = nil
	}
	for _, c := range group.List {
		if directive.MatchString(c.Text) {
			continue
		}
		g.report(c.Pos(), checkText(c.Text)...)
		line := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/")
		trimmed := strings.TrimSpace(line)
		code := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ")
		if trimmed == "" || listItem.MatchString(line) || code || strings.HasPrefix(trimmed, "#") {
			flush()
		}
		if trimmed == "" || code {
			continue
		}
		if len(paragraph) == 0 {
			first = c.Pos()
		}
		paragraph = append(paragraph, listItem.ReplaceAllString(line, ""))
	}
	flush()
}

func (g *goProse) checkNode(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.FuncDecl:
		g.checkName(n.Name)
	case *ast.TypeSpec:
		g.checkName(n.Name)
	case *ast.ValueSpec:
		g.checkName(n.Names...)
	case *ast.Field:
		g.checkName(n.Names...)
		if n.Tag != nil {
			g.joined[n.Tag] = true
			if m := jsonName.FindStringSubmatch(n.Tag.Value); m != nil {
				g.report(n.Tag.Pos(), checkName(m[1])...)
			}
		}
	case *ast.AssignStmt:
		for _, l := range n.Lhs {
			if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
				g.checkName(id)
			}
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD && !g.joined[n] {
			if text, ok := g.join(n); ok {
				g.report(n.Pos(), checkSentences(text)...)
			}
		}
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			g.checkString(n)
		}
	}
	return true
}

var jsonName = regexp.MustCompile(`json:"([^",]+)`)

// join returns the text of a sum of strings; another operand counts as a word.
func (g *goProse) join(n *ast.BinaryExpr) (string, bool) {
	var b bytes.Buffer
	isText := false
	var add func(ast.Expr)
	add = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				g.joined[e] = true
				add(e.X)
				add(e.Y)
				return
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
				isText = true
				g.joined[e] = true
				g.report(e.Pos(), checkLiteral(text)...)
				b.WriteString(text)
				return
			}
		}
		b.WriteString("x")
	}
	add(n)
	return b.String(), isText && !strings.Contains(b.String(), "\n")
}

func (g *goProse) checkString(n *ast.BasicLit) {
	text, err := strconv.Unquote(n.Value)
	if err != nil || g.joined[n] {
		return
	}
	g.report(n.Pos(), checkLiteral(text)...)
	if !strings.Contains(text, "\n") {
		g.report(n.Pos(), checkSentences(text)...)
	}
}

var singleWord = regexp.MustCompile(`^[A-Za-z]+$`)

// checkLiteral checks a string: a sentence by its words, a single word as a name.
func checkLiteral(text string) []string {
	if use, ok := retiredKeys[text]; ok {
		return []string{fmt.Sprintf("%q: use %s", text, use)}
	}
	if singleWord.MatchString(text) {
		if found := checkText(text); len(found) > 0 && text != "nobody" {
			return found
		}
		return nil
	}
	return checkText(text)
}

func (g *goProse) checkName(names ...*ast.Ident) {
	for _, id := range names {
		g.report(id.Pos(), checkName(id.Name)...)
	}
}

var nameWords = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
var requirement = regexp.MustCompile(`(^|[^A-Za-z]|[a-z])R[0-9]+_[0-9]+`)

// checkName returns the retired words in a Go name.
func checkName(name string) []string {
	if slices.Contains(frozenNames, name) {
		return nil
	}
	var out []string
	for _, w := range nameWords.FindAllString(name, -1) {
		if use, ok := retiredNames[strings.ToLower(w)]; ok {
			out = append(out, fmt.Sprintf("name %s: %q: use %s", name, w, use))
		}
	}
	if requirement.MatchString(name) {
		out = append(out, fmt.Sprintf("name %s has a requirement number: say what it shows", name))
	}
	return out
}
