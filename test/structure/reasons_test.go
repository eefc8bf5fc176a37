package structure

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/explain"
)

var update = flag.Bool("update", false, "write docs/reference/reasons.md")

// TestReasonsAreExplained: every reason word of the API has an entry in the
// catalogue, and the catalogue has no other.
func TestReasonsAreExplained(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Reason") {
			return true
		}
		word, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		words[word] = true
		return true
	})
	if len(words) < 20 {
		t.Fatalf("only %d reason words found in the API", len(words))
	}
	for _, r := range explain.Reasons {
		if !words[r.Word] {
			t.Errorf("%s is explained but is not a reason of the API", r.Word)
		}
		delete(words, r.Word)
	}
	for w := range words {
		t.Errorf("%s has no entry in internal/explain/reasons.go", w)
	}
	if !sort.SliceIsSorted(explain.Reasons, func(i, j int) bool { return explain.Reasons[i].Word < explain.Reasons[j].Word }) {
		t.Error("the catalogue is not in alphabetical order")
	}
}

// TestReasonsPage: the reference page is the catalogue.
func TestReasonsPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Reasons\n\nEvery wait and every refusal has one of these words, in conditions, events, the command line and metrics.\n`refit explain WORD` prints an entry. This page is generated from `internal/explain/reasons.go`: `go test ./test/structure -run Reasons -update`.\n")
	for _, r := range explain.Reasons {
		b.WriteString("\n## " + r.Word + "\n\n" + r.Means + "\n\n**Fix:** " + r.Fix + "\n")
	}
	const page = "../../docs/reference/reasons.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != b.String() {
		t.Errorf("%s is not the catalogue (%v): run go test ./test/structure -update", page, err)
	}
}
