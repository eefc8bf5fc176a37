package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// answers are the commands that print each kind of JSON.
var answers = map[string]string{
	"BootImage": "refit bootimage image", "BootImageCheck": "refit bootimage check", "BootImageProposals": "refit bootimage diff",
	"BootImageUploads": "refit bootimage uploads", "BootImages": "refit bootimage status", "Bundle": "refit bundle inspect",
	"BundleDiff": "refit bundle diff", "BundleList": "refit bundle list", "Drain": "refit explain node/NAME", "Drill": "refit drill",
	"Gate": "refit gate", "ImageReport": "refit tags check", "Lint": "refit tags lint", "OSBuilt": "refit image build",
	"PlanView": "refit plan", "RestartForecast": "refit tags check --event", "Simulation": "refit-lab simulate --result", "Status": "refit status",
	"TagCompare": "refit tags compare", "TagPlan": "refit tags plan", "TagRetention": "refit tags retain", "TagSort": "refit tags sort",
	"TagStatus": "refit tags status", "Version": "refit version",
}

const (
	module = "github.com/refit-dev/refit/"
	apiDir = "api/v1alpha1"
)

// TestJSONPage: docs/reference/json.md is made from the types that commands print.
func TestJSONPage(t *testing.T) {
	t.Parallel()
	src := parseSource(t, "internal", "api")
	missing := maps.Clone(answers)
	var b strings.Builder
	b.WriteString("# JSON of the commands\n\nMade from the source by `go test ./test/docs -update`. `-o json` prints these objects, `-o yaml` the same as YAML. Within a version\nfields are added, never renamed or removed. Sizes are bytes, times are RFC 3339, durations are seconds.\n")
	sort.Slice(src.views, func(i, j int) bool { return src.views[i].kind < src.views[j].kind })
	for _, v := range src.views {
		command, ok := answers[v.kind]
		if !ok {
			t.Errorf("kind %s (%s) has no command in the list of this test", v.kind, v.version)
		}
		delete(missing, v.kind)
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, `apiVersion: %s`.\n\n| field | type | description |\n| --- | --- | --- |\n", v.kind, command, v.version)
		src.writeFields(&b, "", v.typ, nil)
	}
	for kind := range missing {
		t.Errorf("no command prints kind %s any more", kind)
	}
	comparePage(t, "docs/reference/json.md", b.String())
}

// source holds the declared types and the constants of a tree, by directory and name.
type source struct {
	types  map[typeName]*declared
	consts map[typeName][]string
	views  []view
}

type typeName struct{ dir, name string }

type declared struct {
	spec    *ast.TypeSpec
	dir     string
	imports map[string]string // name to directory in this module
}

// A view is an object that a command prints.
type view struct {
	version, kind string
	typ           typeName
}

func parseSource(t *testing.T, tops ...string) *source {
	t.Helper()
	s := &source{types: map[typeName]*declared{}, consts: map[typeName][]string{}}
	set := token.NewFileSet()
	for _, top := range tops {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			s.addFile(file, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), root+"/"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *source) addFile(file *ast.File, dir string) {
	imports := map[string]string{}
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = strings.TrimPrefix(p, module)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			s.types[typeName{dir, n.Name.Name}] = &declared{spec: n, dir: dir, imports: imports}
		case *ast.ValueSpec:
			if id, ok := n.Type.(*ast.Ident); ok {
				for _, v := range n.Values {
					if text, ok := stringOf(v); ok && text != "" {
						key := typeName{dir, id.Name}
						s.consts[key] = append(s.consts[key], text)
					}
				}
			}
		case *ast.CompositeLit:
			s.addView(n, dir, imports)
		}
		return true
	})
}

// marker is a line for code generators in a comment.
var marker = regexp.MustCompile(`(?m)^\+.*$`)

var apiVersion = regexp.MustCompile(`^refit\.dev/[a-z]+/v[0-9]+$`)

// addView notes a literal whose first two members are an apiVersion and a kind.
func (s *source) addView(lit *ast.CompositeLit, dir string, imports map[string]string) {
	var texts []string
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		if text, ok := stringOf(e); ok {
			texts = append(texts, text)
		}
	}
	if len(texts) < 2 || !apiVersion.MatchString(texts[0]) {
		return
	}
	if name, ok := resolve(lit.Type, dir, imports); ok {
		s.views = append(s.views, view{texts[0], texts[1], name})
	}
}

func stringOf(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// resolve returns the place of a named type.
func resolve(e ast.Expr, dir string, imports map[string]string) (typeName, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		return typeName{dir, e.Name}, true
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			return typeName{imports[pkg.Name], e.Sel.Name}, true
		}
	}
	return typeName{}, false
}

// writeFields writes a row for each member of a struct type, and the members below it.
func (s *source) writeFields(b *strings.Builder, prefix string, name typeName, above []typeName) {
	d := s.types[name]
	if d == nil || slices.Contains(above, name) {
		return
	}
	st, ok := d.spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	above = append(slices.Clone(above), name)
	for _, f := range st.Fields.List {
		jsonName, options := "", ""
		if f.Tag != nil {
			tag, _ := strconv.Unquote(f.Tag.Value)
			jsonName, options, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		}
		words, below, suffix := s.describe(f.Type, d)
		switch {
		case jsonName == "-" || prefix == "" && (jsonName == "apiVersion" || jsonName == "kind"):
			continue
		case len(f.Names) == 0 && jsonName == "" || strings.Contains(options, "inline"):
			s.writeFields(b, prefix, below, above)
			continue
		case jsonName == "":
			if !f.Names[0].IsExported() {
				continue
			}
			jsonName = f.Names[0].Name
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", prefix+jsonName, words, cell(marker.ReplaceAllString(f.Doc.Text(), "")+" "+f.Comment.Text()))
		if below.dir != apiDir { // those have a page of their own
			s.writeFields(b, prefix+jsonName+suffix+".", below, above)
		}
	}
}

// describe returns a type in words, the struct type below it, and what stands between
// its path and theirs.
func (s *source) describe(e ast.Expr, d *declared) (words string, below typeName, suffix string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.describe(e.X, d)
	case *ast.ArrayType:
		words, below, suffix := s.describe(e.Elt, d)
		return "list of " + words, below, "[]" + suffix
	case *ast.MapType:
		words, below, suffix := s.describe(e.Value, d)
		return "map of " + words, below, ".KEY" + suffix
	case *ast.InterfaceType:
		return "any", typeName{}, ""
	}
	name, ok := resolve(e, d.dir, d.imports)
	if !ok {
		return "object", typeName{}, ""
	}
	if under := s.types[name]; under != nil {
		if _, isStruct := under.spec.Type.(*ast.StructType); isStruct {
			if name.dir == apiDir {
				return "object as in [kinds](kinds.md)", name, ""
			}
			return "object", name, ""
		}
		words, below, suffix := s.describe(under.spec.Type, under)
		if values := s.consts[name]; len(values) > 0 {
			words += ": `" + strings.Join(values, "`, `") + "`"
		}
		return words, below, suffix
	}
	switch {
	case name.name == "Time":
		return "time", typeName{}, ""
	case name.name == "bool":
		return "boolean", typeName{}, ""
	case name.name == "RawMessage":
		return "any", typeName{}, ""
	case slices.Contains([]string{"int", "int32", "int64", "uint32", "uint64", "uint", "Duration"}, name.name):
		return "integer", typeName{}, ""
	case slices.Contains([]string{"float64", "float32"}, name.name):
		return "number", typeName{}, ""
	}
	return name.name, typeName{}, ""
}
