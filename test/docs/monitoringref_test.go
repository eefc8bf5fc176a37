package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/config"
)

// TestAlertsPage: docs/reference/alerts.md is made from the rules in config/alerts.
func TestAlertsPage(t *testing.T) {
	t.Parallel()
	objects, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(objects) // boot images last
	var index, sections strings.Builder
	for _, o := range objects {
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
		for _, g := range groups {
			rules, _, _ := unstructured.NestedSlice(g.(map[string]any), "rules")
			for _, rule := range rules {
				text := func(fields ...string) string {
					s, found, err := unstructured.NestedString(rule.(map[string]any), fields...)
					if err != nil || !found {
						t.Fatalf("%v: no %v: %v", rule, fields, err)
					}
					return s
				}
				name := text("alert")
				fmt.Fprintf(&index, "| [%s](#%s) | %s | %s |\n", name, strings.ToLower(name), text("labels", "severity"), text("annotations", "summary"))
				fmt.Fprintf(&sections, "\n## %s\n%s %s\n\n**Fix:** %s\n\n```promql\n%s\n```\nSeverity %s, after %s.\n", name,
					text("annotations", "summary"), values.Replace(text("annotations", "description")), values.Replace(text("annotations", "fix")), text("expr"), text("labels", "severity"), text("for"))
			}
		}
	}
	comparePage(t, "docs/reference/alerts.md", "# Alerts\n\nMade from `config/alerts` by `go test ./test/docs -update`. [Monitor refit](../how-to/monitoring.md) says how to load them. The\nannotations of an alert have the same text, its fix, and the address of its section.\n\n| alert | severity | when |\n| --- | --- | --- |\n"+index.String()+sections.String())
}

// values are the templates of alerts as people read them.
var values = strings.NewReplacer("{{ $value }}", "N", "{{ $value | humanizeDuration }}", "TIME", "{{ $labels.update }}", "UPDATE", "{{ $labels.reason }}", "REASON",
	"{{ $labels.check }}", "CHECK", "{{ $labels.policy }}", "POLICY")

// metric is one metric of the controller.
type metric struct {
	name, kind, help string
	labels           []string
}

// TestMetricsPage: docs/reference/metrics.md is made from the literals that create metrics. A test
// of internal/controller compares it with what a running controller registers.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	var all []metric
	err := filepath.WalkDir(filepath.Join(root, "internal/controller"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, metricsIn(f)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("# Metrics\n\nMade from the controller's source by `go test ./test/docs -update`. Names do not change. Labels have few values; no label names a\nnode or an image. Metrics of updates and nodes come from the replica that leads, counted when it is scraped:\nuse `max` over the replicas. The endpoint also has the metrics of controller-runtime and Go. [How to scrape it](../how-to/monitoring.md).\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for i, m := range all {
		if m.help == "" || i > 0 && all[i-1].name == m.name {
			t.Errorf("%s has no help, or is there twice", m.name)
		}
		labels := ""
		for _, l := range m.labels {
			labels += " `" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s |%s | %s |\n", m.name, m.kind, labels, m.help)
	}
	comparePage(t, "docs/reference/metrics.md", b.String())
}

// metricsIn finds literals of Opts, and calls of helpers that have one and take the name first.
func metricsIn(f *ast.File) []metric {
	var out []metric
	helpers := map[string]metric{} // what their literal has
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			fn, isFunc := n.Rhs[0].(*ast.FuncLit)
			if id, isName := n.Lhs[0].(*ast.Ident); isFunc && isName {
				ast.Inspect(fn, func(in ast.Node) bool {
					if c, ok := in.(*ast.CallExpr); ok {
						if m, ok := metricOf(c); ok {
							helpers[id.Name] = m
						}
					}
					return true
				})
				return helpers[id.Name].kind == ""
			}
		case *ast.CallExpr:
			if m, ok := metricOf(n); ok {
				out = append(out, m)
			} else if id, ok := n.Fun.(*ast.Ident); ok && helpers[id.Name].kind != "" {
				m := helpers[id.Name]
				m.name, m.help = m.name+textOf(n.Args[0]), textOf(n.Args[1])
				for _, l := range n.Args[2:] {
					m.labels = append(m.labels, textOf(l))
				}
				out = append(out, m)
			}
		}
		return true
	})
	return out
}

// metricOf reads prometheus.NewXVec(prometheus.XOpts{...}, labels).
func metricOf(c *ast.CallExpr) (m metric, ok bool) {
	if len(c.Args) == 0 {
		return m, false
	}
	opts, isLiteral := c.Args[0].(*ast.CompositeLit)
	if !isLiteral {
		return m, false
	}
	kind, isSelector := opts.Type.(*ast.SelectorExpr)
	if !isSelector || !strings.HasSuffix(kind.Sel.Name, "Opts") {
		return m, false
	}
	m.kind = strings.ToLower(strings.TrimSuffix(kind.Sel.Name, "Opts"))
	parts := map[string]string{}
	for _, e := range opts.Elts {
		if kv, isKey := e.(*ast.KeyValueExpr); isKey {
			parts[kv.Key.(*ast.Ident).Name] = textOf(kv.Value)
		}
	}
	if parts["Namespace"] != "" {
		m.name = parts["Namespace"] + "_"
	}
	m.name, m.help = m.name+parts["Name"], parts["Help"]
	for _, l := range c.Args[1:] {
		if list, isList := l.(*ast.CompositeLit); isList {
			for _, e := range list.Elts {
				m.labels = append(m.labels, textOf(e))
			}
		}
	}
	return m, true
}

// textOf is the value of a literal, empty for a variable.
func textOf(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}
