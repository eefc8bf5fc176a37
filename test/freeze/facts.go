package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/test/jsonfields"
)

// part is one thing that is compared: a line for each fact. A frozen part must not differ.
type part struct {
	name   string
	frozen bool
	read   func(root string) ([]string, error)
}

var parts = []part{
	{"exit codes", true, exitCodes},
	{"metrics", true, metrics},
	{"JSON", false, jsonOf},
	{"CRDs", false, crds},
	{"API words", false, apiWords},
}

// jsonOf has a line "KIND VERSION PATH TYPE" for each member of what commands print.
func jsonOf(root string) ([]string, error) {
	src, err := jsonfields.Parse(root, "internal", "api")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, v := range src.Views {
		for _, f := range src.Fields(v) {
			out = append(out, fmt.Sprintf("%s %s %s %s", v.Kind, v.Version, f.Path, strings.ReplaceAll(f.Type, "`", "")))
		}
	}
	return out, nil
}

// exitCodes has a line for each constant number in a file exit.go of the command line, without what
// only its Go name has.
func exitCodes(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "internal", "cli", "*", "exit.go"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range files {
		err = errors.Join(err, eachFile(name, func(f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
					for i := range v.Values {
						if lit, ok := v.Values[i].(*ast.BasicLit); ok && lit.Kind == token.INT {
							out = append(out, lit.Value+" "+strings.TrimSuffix(strings.TrimPrefix(v.Names[i].Name, "Exit"), "Code"))
						}
					}
				}
				return true
			})
		}))
	}
	return out, err
}

// apiWords has a line for each constant text of the API: reasons, conditions, phases, annotations,
// labels and taints.
func apiWords(root string) ([]string, error) {
	var out []string
	err := eachFile(filepath.Join(root, "api"), func(f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for _, value := range v.Values {
					if word := textOf(value); word != "?" {
						out = append(out, "word: "+word)
					}
				}
			}
			return true
		})
	})
	return out, err
}

// metrics has a line "NAME label ..." for each metric. A metric is a literal of Opts, or a call of a
// helper that has such a literal and takes the name first.
func metrics(root string) ([]string, error) {
	var out []string
	err := eachFile(filepath.Join(root, "internal"), func(f *ast.File) {
		if slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return strings.HasSuffix(i.Path.Value, `client_golang/prometheus"`) }) {
			out = append(out, metricsOf(f)...)
		}
	})
	return out, err
}

func metricsOf(f *ast.File) []string {
	var out []string
	helpers := map[string]string{} // their namespace
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if name, namespace, ok := helperIn(n); ok {
				helpers[name] = namespace
				return false
			}
		case *ast.CallExpr:
			if line, ok := metricIn(n, helpers); ok {
				out = append(out, line)
			}
		}
		return true
	})
	return out
}

// helperIn reports whether an assignment is of a function that makes a metric.
func helperIn(a *ast.AssignStmt) (name, namespace string, ok bool) {
	if len(a.Lhs) != 1 || len(a.Rhs) != 1 {
		return "", "", false
	}
	id, isName := a.Lhs[0].(*ast.Ident)
	fn, isFunc := a.Rhs[0].(*ast.FuncLit)
	if !isName || !isFunc {
		return "", "", false
	}
	_, namespace, ok = optsIn(fn)
	return id.Name, namespace, ok
}

// metricIn returns the metric that a call makes.
func metricIn(c *ast.CallExpr, helpers map[string]string) (string, bool) {
	if id, ok := c.Fun.(*ast.Ident); ok {
		namespace, ok := helpers[id.Name]
		if !ok || len(c.Args) < 2 {
			return "", false
		}
		return metricLine(namespace, c.Args[0], c.Args[2:]), true
	}
	if len(c.Args) == 0 {
		return "", false
	}
	opts, ok := c.Args[0].(*ast.CompositeLit)
	if !ok || !isOpts(opts) {
		return "", false
	}
	name, namespace := nameOf(opts)
	return metricLine(namespace, name, c.Args[1:]), true
}

func metricLine(namespace string, name ast.Expr, labels []ast.Expr) string {
	line := textOf(name)
	if namespace != "" {
		line = namespace + "_" + line
	}
	for _, l := range labels {
		if list, ok := l.(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				line += " " + textOf(e)
			}
			continue
		}
		line += " " + textOf(l)
	}
	return line
}

func textOf(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return "?"
}

func isOpts(c *ast.CompositeLit) bool {
	s, ok := c.Type.(*ast.SelectorExpr)
	return ok && strings.HasSuffix(s.Sel.Name, "Opts")
}

// optsIn finds the literal of Opts in a function.
func optsIn(fn ast.Node) (name ast.Expr, namespace string, ok bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if c, isLit := n.(*ast.CompositeLit); isLit && isOpts(c) {
			name, namespace = nameOf(c)
			ok = true
		}
		return !ok
	})
	return name, namespace, ok
}

func nameOf(opts *ast.CompositeLit) (name ast.Expr, namespace string) {
	for _, e := range opts.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			name = kv.Value
		case key.Name == "Namespace":
			namespace = textOf(kv.Value)
		}
	}
	return name, namespace
}

// eachFile parses the files of a directory and below, but for tests.
func eachFile(dir string, see func(*ast.File)) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		see(f)
		return nil
	})
}

// crds has a line "KIND PATH KEY VALUE" for each leaf of the definitions, without descriptions.
func crds(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var o struct {
			Spec map[string]any
		}
		if err := yaml.Unmarshal(data, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		names, _ := o.Spec["names"].(map[string]any)
		kind, _ := names["kind"].(string)
		out = append(out, leaves(kind, o.Spec)...)
	}
	sort.Strings(out)
	return out, nil
}

// leaves of a definition. Lists of plain values, such as required or enum, are one line for each.
func leaves(path string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		for key, below := range v {
			_, text := below.(string)
			list, isList := below.([]any)
			switch {
			case text && key == "description":
			case isList && key == "required": // of the member, so that a rename of its path covers this
				for _, member := range list {
					out = append(out, leaves(fmt.Sprintf("%s.%v.required", path, member), true)...)
				}
			default:
				out = append(out, leaves(path+"."+key, below)...)
			}
		}
		return out
	case []any:
		var out []string
		for _, below := range v {
			out = append(out, leaves(path+"[]", below)...)
		}
		return out
	}
	return []string{fmt.Sprintf("%s = %v", strings.NewReplacer(".properties.", ".", ".schema.openAPIV3Schema", "", ".versions[]", "").Replace(path), v)}
}
