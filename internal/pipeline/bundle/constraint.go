package bundle

import (
	"fmt"
	"slices"
	"strings"
)

// Names of constraints that refit compares with nodes. A bundle may have others; a refit
// that does not know one says so.
const (
	ConstraintKubernetes = "kubernetes" // what a node runs before the update
	ConstraintContainerd = "containerd"
	ConstraintCRIO       = "cri-o"
)

// Constraint is a range of versions that nodes must have. If a bundle names runtimes, nodes
// need one of them.
type Constraint struct {
	Name string `json:"name"`
	// Min and Max are semantic versions, both included; empty for no bound.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

func (c Constraint) String() string {
	var parts []string
	if c.Min != "" {
		parts = append(parts, c.Name+" "+c.Min+" or later")
	}
	if c.Max != "" {
		parts = append(parts, c.Name+" "+c.Max+" or earlier")
	}
	return strings.Join(parts, " and ")
}

// ParseConstraints reads NAME>=VERSION and NAME<=VERSION. Two bounds of one name make one
// constraint.
func ParseConstraints(texts []string) ([]Constraint, error) {
	var out []Constraint
	for _, s := range texts {
		name, version, lower := strings.Cut(s, ">=")
		if !lower {
			var upper bool
			if name, version, upper = strings.Cut(s, "<="); !upper {
				return nil, fmt.Errorf("constraint %.80q: write NAME>=VERSION or NAME<=VERSION", s)
			}
		}
		if name = strings.TrimSpace(name); !slices.Contains([]string{ConstraintKubernetes, ConstraintContainerd, ConstraintCRIO}, name) {
			return nil, fmt.Errorf("constraint %.80q: name kubernetes, containerd or cri-o", s)
		}
		if version = fullVersion(strings.TrimSpace(version)); !ValidVersion(version) {
			return nil, fmt.Errorf("constraint %.80q: the version is not a semantic version, for example 1.35.2", s)
		}
		i := slices.IndexFunc(out, func(c Constraint) bool { return c.Name == name })
		if i < 0 {
			i, out = len(out), append(out, Constraint{Name: name})
		}
		bound := &out[i].Min
		if !lower {
			bound = &out[i].Max
		}
		if *bound != "" {
			return nil, fmt.Errorf("constraint %.80q: %s has that bound already", s, name)
		}
		*bound = version
	}
	return out, nil
}

// fullVersion makes 1.30.0 of 1.30.
func fullVersion(v string) string {
	if strings.Count(v, ".") == 1 && !strings.ContainsAny(v, "-+") {
		return v + ".0"
	}
	return v
}

func (m *Metadata) checkConstraints() string {
	for i, c := range m.Constraints {
		switch {
		case !ValidName(c.Name):
			return fmt.Sprintf("bad constraint name %.80q", c.Name)
		case i > 0 && m.Constraints[i-1].Name >= c.Name:
			return fmt.Sprintf("constraint %s is not in order", c.Name)
		case c.Min == "" && c.Max == "":
			return fmt.Sprintf("constraint %s has no bound", c.Name)
		case !emptyOr(c.Min, ValidVersion), !emptyOr(c.Max, ValidVersion):
			return fmt.Sprintf("constraint %s: %.80q or %.80q is not a semantic version", c.Name, c.Min, c.Max)
		}
	}
	return ""
}
