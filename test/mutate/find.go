package main

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// mutant is one change of one source file.
type mutant struct {
	ID         int
	Package    string // folder, relative to the module
	File       string // base name
	Line       int
	Function   string // Name, Type.Method, or the name of the constant or variable
	Old, New   string // what is replaced, on one line each
	start, end int    // byte range in the file
	text       string // replacement
	whole      bool   // text replaces the unit, not a range of it
	alone      bool   // cannot be switched at run time: needs a build of its own
}

// unit is a statement or condition whose mutants are selected at run time.
type unit struct {
	start, end int
	condition  bool
	define     bool // x := e: the mutants assign after it
	mutants    []*mutant
	inner      []*unit // units of function literals inside
}

// finder collects the units of one file.
type finder struct {
	fset     *token.FileSet
	src      []byte
	function string
	results  []*ast.FieldList // of the functions around the current statement
	add      func(*mutant)
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) source(n ast.Node) string {
	return string(f.src[f.offset(n.Pos()):f.offset(n.End())])
}

// file returns the units of all functions, and adds the mutants of package
// level values, which have no unit.
func (f *finder) file(file *ast.File) []*unit {
	var units []*unit
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.function = functionName(d)
				units = append(units, f.body(d.Type, d.Body)...)
			}
		case *ast.GenDecl:
			units = append(units, f.values(d)...)
		}
	}
	return units
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// values adds a mutant for each number and truth value of a constant or
// variable of the package.
func (f *finder) values(d *ast.GenDecl) []*unit {
	var units []*unit
	for _, s := range d.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		f.function = spec.Names[0].Name
		for _, v := range spec.Values {
			holder := &unit{}
			f.edits(v, holder)
			for _, m := range holder.mutants {
				m.alone = true
			}
			units = append(units, f.literals(v)...)
		}
	}
	return units
}

// literals returns the units of the function literals below n.
func (f *finder) literals(n ast.Node) []*unit {
	var units []*unit
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if ok {
			units = append(units, f.body(lit.Type, lit.Body)...)
		}
		return !ok
	})
	return units
}

func (f *finder) body(t *ast.FuncType, body *ast.BlockStmt) []*unit {
	f.results = append(f.results, t.Results)
	defer func() { f.results = f.results[:len(f.results)-1] }()
	return f.list(body.List)
}

func (f *finder) list(stmts []ast.Stmt) []*unit {
	var units []*unit
	for _, s := range stmts {
		units = append(units, f.statement(s)...)
	}
	return units
}

func (f *finder) statement(s ast.Stmt) []*unit {
	switch s := s.(type) {
	case nil:
		return nil
	case *ast.BlockStmt:
		return f.list(s.List)
	case *ast.LabeledStmt:
		return f.nested(s.Stmt)
	case *ast.AssignStmt, *ast.ExprStmt, *ast.IncDecStmt, *ast.ReturnStmt, *ast.BranchStmt:
		return []*unit{f.simple(s)}
	case *ast.DeferStmt, *ast.DeclStmt, *ast.GoStmt, *ast.SendStmt:
		return f.literals(s)
	}
	return f.nested(s)
}

// nested returns the units of a statement with statements inside. Its own init
// and post statements stay as they are.
func (f *finder) nested(s ast.Stmt) []*unit {
	var units []*unit
	switch s := s.(type) {
	case *ast.IfStmt:
		units = append(units, f.condition(s.Cond))
		units = append(units, f.list(s.Body.List)...)
		if s.Else != nil {
			units = append(units, f.statement(s.Else)...)
		}
	case *ast.ForStmt:
		if s.Cond != nil {
			units = append(units, f.condition(s.Cond))
		}
		units = append(units, f.list(s.Body.List)...)
	case *ast.RangeStmt:
		units = append(units, f.literals(s.X)...)
		units = append(units, f.list(s.Body.List)...)
	case *ast.SwitchStmt:
		units = append(units, f.cases(s.Body, s.Tag == nil)...)
	case *ast.TypeSwitchStmt:
		units = append(units, f.cases(s.Body, false)...)
	}
	return units
}

func (f *finder) cases(body *ast.BlockStmt, conditions bool) []*unit {
	var units []*unit
	for _, c := range body.List {
		clause := c.(*ast.CaseClause)
		for _, e := range clause.List {
			if conditions {
				units = append(units, f.condition(e))
			}
		}
		units = append(units, f.list(clause.Body)...)
	}
	return units
}

func (f *finder) condition(e ast.Expr) *unit {
	u := &unit{start: f.offset(e.Pos()), end: f.offset(e.End()), condition: true}
	f.edits(e, u)
	if !isEquality(e) {
		f.replace(u, e, negated(f.source(e), e))
	}
	u.inner = f.literals(e)
	return u
}

func isEquality(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

func negated(text string, e ast.Expr) string {
	if n, ok := e.(*ast.UnaryExpr); ok && n.Op == token.NOT {
		return text[1:]
	}
	return "!(" + text + ")"
}

// simple is a statement without statements inside, but for function literals.
func (f *finder) simple(s ast.Stmt) *unit {
	u := &unit{start: f.offset(s.Pos()), end: f.offset(s.End())}
	switch s := s.(type) {
	case *ast.ReturnStmt:
		f.edits(s, u)
		f.zero(s, u)
	case *ast.AssignStmt:
		u.define = s.Tok == token.DEFINE
		for _, e := range s.Rhs {
			f.edits(e, u)
		}
		if u.define {
			assign := f.offset(s.TokPos) // := becomes = in what the mutants assign
			for _, m := range u.mutants {
				m.whole, m.text = true, string(f.src[u.start:assign])+"="+string(f.src[assign+2:m.start])+m.text+string(f.src[m.end:u.end])
			}
		} else {
			f.removed(s, u)
		}
	case *ast.ExprStmt:
		f.edits(s, u)
		if !strings.HasPrefix(f.source(s), "panic(") {
			f.removed(s, u)
		}
	default:
		f.removed(s, u)
	}
	u.inner = f.literals(s)
	return u
}

// removed adds the mutant without the statement.
func (f *finder) removed(s ast.Stmt, u *unit) {
	f.mutant(u, s, "", "(removed)").whole = true
}

// zero adds the mutant that returns zero values.
func (f *finder) zero(s *ast.ReturnStmt, u *unit) {
	results := f.results[len(f.results)-1]
	if len(s.Results) == 0 || results == nil {
		return
	}
	same := true
	for _, r := range s.Results {
		switch f.source(r) {
		case "nil", "0", `""`, "false":
		case "true":
			same = same && len(s.Results) == 1 // the changed literal says the same
		default:
			same = false
		}
	}
	if same {
		return
	}
	declare, names := "", []string{}
	for _, field := range results.List {
		for range max(1, len(field.Names)) {
			name := "mutantZero" + strconv.Itoa(len(names))
			declare += "var " + name + " " + f.source(field.Type) + "; "
			names = append(names, name)
		}
	}
	f.mutant(u, s, declare+"return "+strings.Join(names, ", "), "return zero values").whole = true
}

// edits adds the mutants of the expressions below n, not of function literals.
func (f *finder) edits(n ast.Node, u *unit) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.ArrayType, *ast.SliceExpr:
			return false
		case *ast.BinaryExpr:
			f.binary(n, u)
		case *ast.BasicLit:
			if n.Kind == token.INT || n.Kind == token.FLOAT {
				f.replace(u, n, "("+n.Value+" + 1)")
			}
		case *ast.Ident:
			if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
				f.replace(u, n, other)
			}
		}
		return true
	})
}

var swaps = map[token.Token]string{
	token.LAND: "||", token.LOR: "&&",
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
}

func (f *finder) binary(b *ast.BinaryExpr, u *unit) {
	if to := swaps[b.Op]; to != "" {
		at := f.offset(b.OpPos) - f.offset(b.Pos())
		text := f.source(b)
		f.replace(u, b, "("+text[:at]+to+text[at+len(b.Op.String()):]+")")
	}
	if b.Op == token.LAND || b.Op == token.LOR {
		f.replace(u, b, f.source(b.X))
		f.replace(u, b, f.source(b.Y))
	}
}

func (f *finder) replace(u *unit, n ast.Node, text string) { f.mutant(u, n, text, text) }

func (f *finder) mutant(u *unit, n ast.Node, text, shown string) *mutant {
	m := &mutant{
		Function: f.function, Line: f.fset.Position(n.Pos()).Line, Old: oneLine(f.source(n)), New: oneLine(shown),
		start: f.offset(n.Pos()), end: f.offset(n.End()), text: text,
	}
	u.mutants = append(u.mutants, m)
	f.add(m)
	return m
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
