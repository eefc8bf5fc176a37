package gatefacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxCost of an expression for one object, and costPerCheck of one for all objects of a
	// check; a comparison costs about one.
	maxCost      = 1_000_000
	costPerCheck = 2_000_000
	// interruptEvery is after how many steps of a loop the deadline is compared.
	interruptEvery = 100
)

// errInvalid: no object makes this expression a condition.
var errInvalid = errors.New("the expression is not valid")

// language is what an expression may use: the standard functions of CEL and optional fields, on
// one object. Macros that bind a computed value to a name are not among them: each use of the
// name could double the value, and a comparison of two such values would not end.
var language = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("object", cel.DynType), cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true),
		cel.ClearMacros(), cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro))
})

// additions makes each + cost the size of its result. CEL itself counts the size only where it
// knows the types beforehand.
type additions struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (additions) CallCost(function, _ string, _ []ref.Val, result ref.Val) *uint64 {
	sized, ok := result.(traits.Sizer)
	if function != operators.Add || !ok {
		return nil
	}
	size, _ := sized.Size().(types.Int)
	cost := 1 + uint64(max(0, size))
	return &cost
}

// builds reports whether an expression makes lists or maps of anything but constants; they would
// bind computed values to names too.
func builds(a *cel.Ast) (found bool) {
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ListKind:
			found = found || slices.ContainsFunc(e.AsList().Elements(), func(e ast.Expr) bool { return e.Kind() != ast.LiteralKind })
		case ast.MapKind:
			found = found || e.AsMap().Size() > 0
		case ast.StructKind:
			found = true
		}
	}))
	return found
}

// condition is an expression that is evaluated for objects one after another.
type condition struct {
	program cel.Program
	left    uint64
}

// compile reads an expression.
func compile(expression string) (*condition, error) {
	env, err := language()
	if err != nil {
		return nil, err
	}
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%w: %s", errInvalid, issues.Errors()[0].Message)
	}
	if t := tree.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%w: it gives %s, and must give true or false", errInvalid, t)
	}
	if builds(tree) {
		return nil, fmt.Errorf("%w: lists have only constants, and maps are empty", errInvalid)
	}
	program, err := env.Program(tree, cel.CostLimit(maxCost), cel.CostTracking(additions{}), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return &condition{program, costPerCheck}, nil
}

// holds reports whether the expression is true for an object. An error that is no errInvalid is
// about this object: a field is missing, for example.
func (c *condition) holds(ctx context.Context, object map[string]any) (bool, error) {
	v, details, err := c.program.ContextEval(ctx, map[string]any{"object": object})
	if !c.pay(details, err) {
		return false, fmt.Errorf("%w: it costs more than a check may", errInvalid)
	}
	if err != nil {
		return false, err
	}
	if v.Type() != types.BoolType {
		return false, fmt.Errorf("%w: it gives %s, and must give true or false", errInvalid, v.Type().TypeName())
	}
	return v == types.True, nil
}

// pay takes the cost of an evaluation from what is left for the check.
func (c *condition) pay(d *cel.EvalDetails, err error) (enough bool) {
	cost := uint64(maxCost)
	if d != nil && d.ActualCost() != nil {
		cost = *d.ActualCost()
	}
	var end interpreter.EvalCancelledError
	if errors.As(err, &end) && end.Cause == interpreter.CostLimitExceeded || cost > c.left {
		return false
	}
	c.left -= cost
	return true
}
