package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// partsVersion is the version of the text that names the parts of a plan.
const partsVersion = "refit.dev/plan-parts/v1"

// PartLimit is how long a text of a plan may be, in bytes: an object of the API
// server holds somewhat more.
const PartLimit = 900_000

// root names the parts of a plan that does not fit one text.
type root struct {
	Version string `json:"version"`
	// Plan without its nodes.
	Plan Plan `json:"plan"`
	// Parts in order.
	Parts []string `json:"parts"`
	// Nodes of all parts.
	Nodes int `json:"nodes"`
	// Then are the same of the further hops.
	Then []root `json:"then,omitempty"`
}

// part is a piece of the list of nodes, with the shapes that it uses.
type part struct {
	// Shapes are what nodes have in common: their plans without their names.
	Shapes []json.RawMessage `json:"shapes"`
	// Runs of nodes, one after the other.
	Runs []nodesRun `json:"runs"`
}

// nodesRun are nodes that follow each other and have one shape.
type nodesRun struct {
	Shape int      `json:"shape"`
	Nodes []string `json:"nodes"`
}

// Store makes the texts under which a plan is kept, none longer than limit but
// for a single node's share. A plan that fits is its own canonical text; of
// another, root names the parts. name gives a text its name.
func (p Plan) Store(limit int, name func(text string) string) (text string, parts map[string]string) {
	if p.size() <= limit {
		return string(p.JSON()), nil
	}
	parts = map[string]string{}
	r := p.split(limit, func(text string) string {
		n := name(text)
		parts[n] = text
		return n
	})
	return string(textOf(r)), parts
}

// split makes the parts of a plan and of its further hops; keep stores one and names it.
func (p Plan) split(limit int, keep func(text string) string) root {
	r := root{Version: partsVersion, Plan: p, Nodes: len(p.Nodes)}
	r.Plan.Nodes, r.Plan.Then = []NodePlan{}, nil
	s := splitter{limit: limit, done: func(text string) { r.Parts = append(r.Parts, keep(text)) }}
	t := tails{}
	for i := range p.Nodes {
		s.add(p.Nodes[i].Node, t.of(&p.Nodes[i]))
	}
	s.end()
	for _, h := range p.Then {
		r.Then = append(r.Then, h.split(limit, keep))
	}
	return r
}

// splitter fills one part after the other.
type splitter struct {
	limit int
	done  func(text string)
	part  part
	index map[string]int
	size  int
}

// Room for the marks around a shape, a run and a name.
const frameRoom = 40

func (s *splitter) add(node string, tail []byte) {
	i, known := s.index[string(tail)]
	need := len(node) + frameRoom
	if !known {
		need += len(tail) + frameRoom
	}
	if s.size > 0 && s.size+need > s.limit {
		s.end()
		s.add(node, tail)
		return
	}
	s.size += need
	if !known {
		if s.index == nil {
			s.index = map[string]int{}
		}
		i = len(s.part.Shapes)
		s.index[string(tail)] = i
		s.part.Shapes = append(s.part.Shapes, append(append([]byte{}, nameless...), tail...))
	}
	if n := len(s.part.Runs); n == 0 || s.part.Runs[n-1].Shape != i {
		s.part.Runs = append(s.part.Runs, nodesRun{Shape: i})
	}
	last := &s.part.Runs[len(s.part.Runs)-1]
	last.Nodes = append(last.Nodes, node)
}

func (s *splitter) end() {
	if s.size == 0 {
		return
	}
	s.done(string(textOf(s.part)))
	s.part, s.index, s.size = part{}, nil, 0
}

// PlanParts names the other texts that belong to one that Store made.
func PlanParts(text string) []string {
	if !strings.HasPrefix(text, `{"version":"`+partsVersion+`"`) {
		return nil
	}
	var r root
	if json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return r.allParts()
}

func (r root) allParts() []string {
	out := r.Parts
	for _, h := range r.Then {
		out = append(out, h.allParts()...)
	}
	return out
}

// LoadPlan reads what Store made; read gives the text of a part. The steps of
// nodes with one shape are shared. The caller compares the digest.
func LoadPlan(text string, read func(name string) (string, error)) (Plan, error) {
	if !strings.HasPrefix(text, `{"version":"`+partsVersion+`"`) {
		var p Plan
		return p, json.Unmarshal([]byte(text), &p)
	}
	var r root
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Plan{}, err
	}
	return r.load(read)
}

// load reads the parts of a plan and of its further hops.
func (r root) load(read func(name string) (string, error)) (Plan, error) {
	p := r.Plan
	p.Nodes = make([]NodePlan, 0, max(0, min(r.Nodes, 1<<20)))
	for _, name := range r.Parts {
		data, err := read(name)
		if err != nil {
			return Plan{}, fmt.Errorf("part %s of the plan: %w", name, err)
		}
		if err := p.join(data); err != nil {
			return Plan{}, fmt.Errorf("part %s of the plan: %w", name, err)
		}
	}
	if len(p.Nodes) != r.Nodes {
		return Plan{}, fmt.Errorf("the parts of the plan have %d nodes, there should be %d", len(p.Nodes), r.Nodes)
	}
	for _, h := range r.Then {
		hop, err := h.load(read)
		if err != nil {
			return Plan{}, err
		}
		p.Then = append(p.Then, hop)
	}
	return p, nil
}

// join adds the nodes of a part.
func (p *Plan) join(data string) error {
	var one part
	if err := json.Unmarshal([]byte(data), &one); err != nil {
		return err
	}
	shapes := make([]NodePlan, len(one.Shapes))
	for i, s := range one.Shapes {
		if err := json.Unmarshal(s, &shapes[i]); err != nil {
			return err
		}
	}
	for _, run := range one.Runs {
		if run.Shape < 0 || run.Shape >= len(shapes) {
			return errors.New("it names a shape that it does not have")
		}
		for _, name := range run.Nodes {
			np := shapes[run.Shape]
			np.Node = name
			p.Nodes = append(p.Nodes, np)
		}
	}
	return nil
}
