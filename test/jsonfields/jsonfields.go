package jsonfields

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	module = "github.com/refit-dev/refit/"
	apiDir = "api/v1alpha1"
)

// Source holds the declared types and the constants of a tree, by directory and name.
type Source struct {
	types  map[typeName]*declared
	consts map[typeName][]string
	// Views that commands print.
	Views []View
}

type typeName struct{ dir, name string }

type declared struct {
	spec    *ast.TypeSpec
	dir     string
	imports map[string]string // name to directory in this module
}

// View is an object that a command prints.
type View struct {
	Version, Kind string
	typ           typeName
}

// Parse reads the packages of a module below some directories.
func Parse(root string, tops ...string) (*Source, error) {
	s := &Source{types: map[typeName]*declared{}, consts: map[typeName][]string{}}
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
			return nil, err
		}
	}
	return s, nil
}

func (s *Source) addFile(file *ast.File, dir string) {
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
func (s *Source) addView(lit *ast.CompositeLit, dir string, imports map[string]string) {
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
		s.Views = append(s.Views, View{texts[0], texts[1], name})
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

// Field of a view, or of what is below it.
type Field struct{ Path, Type, Doc string }

// Fields of a view, in the order of their declaration, without apiVersion and kind.
func (s *Source) Fields(v View) []Field { return s.fields("", v.typ, nil) }

func (s *Source) fields(prefix string, name typeName, above []typeName) []Field {
	d := s.types[name]
	if d == nil || slices.Contains(above, name) {
		return nil
	}
	st, ok := d.spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	var out []Field
	above = append(slices.Clone(above), name)
	for _, f := range st.Fields.List {
		jsonName, inline := memberOf(f)
		words, below, suffix := s.describe(f.Type, d)
		switch {
		case inline:
			out = append(out, s.fields(prefix, below, above)...)
			continue
		case jsonName == "", prefix == "" && (jsonName == "apiVersion" || jsonName == "kind"):
			continue
		}
		out = append(out, Field{prefix + jsonName, words, marker.ReplaceAllString(f.Doc.Text(), "") + " " + f.Comment.Text()})
		if below.dir != apiDir { // those have a page of their own
			out = append(out, s.fields(prefix+jsonName+suffix+".", below, above)...)
		}
	}
	return out
}

// memberOf returns the name that a field has in JSON, "" for none, and whether its own fields stand
// in its place.
func memberOf(f *ast.Field) (name string, inline bool) {
	options := ""
	if f.Tag != nil {
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, options, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	}
	switch {
	case name == "-":
		return "", false
	case len(f.Names) == 0 && name == "", strings.Contains(options, "inline"):
		return "", true
	case name == "" && f.Names[0].IsExported():
		return f.Names[0].Name, false
	}
	return name, false
}

// describe returns a type in words, the struct type below it, and what stands between
// its path and theirs.
func (s *Source) describe(e ast.Expr, d *declared) (words string, below typeName, suffix string) {
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
	return plainWords(name.name), typeName{}, ""
}

// plainWords says what a type of Go or of a library is in JSON.
func plainWords(name string) string {
	switch name {
	case "Time":
		return "time"
	case "bool":
		return "boolean"
	case "RawMessage":
		return "any"
	case "int", "int32", "int64", "uint32", "uint64", "uint", "Duration":
		return "integer"
	case "float64", "float32":
		return "number"
	}
	return name
}
