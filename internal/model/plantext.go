package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// shape is everything of a node's plan but the node's name. Nodes that the
// planner gave the very same steps share one.
type shape struct {
	steps          *Step
	count          int
	pool, role     string
	wave           int
	from, to, back string
}

func shapeOf(np *NodePlan) shape {
	s := shape{count: len(np.Steps), pool: np.Pool, role: np.Role, wave: np.Wave, from: np.From, to: np.To, back: np.PointOfNoReturn}
	if s.count > 0 {
		s.steps = &np.Steps[0]
	}
	return s
}

// textOf is a text as JSON.
func textOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plans hold only strings and numbers
	}
	return b
}

// Where a node's name stands in the text of its plan, and the plan of a node in
// the text of a plan.
var (
	nameless  = []byte(`{"node":""`)
	mark      = "\u2063a node\u2063"
	nodesMark = textOf(NodePlan{Node: mark})
)

// tails makes the text of a node's plan after its name, once for every shape.
type tails map[shape][]byte

func (t tails) of(np *NodePlan) []byte {
	key := shapeOf(np)
	if key.steps == nil { // nil and empty steps are different texts
		return tailOf(*np)
	}
	tail, ok := t[key]
	if !ok {
		tail = tailOf(*np)
		t[key] = tail
	}
	return tail
}

func tailOf(np NodePlan) []byte {
	np.Node = ""
	return textOf(np)[len(nameless):]
}

// text writes the canonical text of a plan piece by piece.
func (p Plan) text(write func([]byte)) {
	if len(p.Nodes) == 0 {
		write(textOf(p))
		return
	}
	frame := p
	frame.Nodes = []NodePlan{{Node: mark}}
	head, end, ok := bytes.Cut(textOf(frame), nodesMark)
	if !ok {
		panic("the text of a plan has no place for its nodes")
	}
	write(head)
	t := tails{}
	for i := range p.Nodes {
		if i > 0 {
			write([]byte{','})
		}
		write(nameless[:len(nameless)-2])
		write(textOf(p.Nodes[i].Node))
		write(t.of(&p.Nodes[i]))
	}
	write(end)
}

// JSON is the canonical text of the plan.
func (p Plan) JSON() []byte {
	var b bytes.Buffer
	p.text(func(piece []byte) { b.Write(piece) })
	return b.Bytes()
}

// size of the canonical text in bytes.
func (p Plan) size() int {
	n := 0
	p.text(func(piece []byte) { n += len(piece) })
	return n
}

// Digest names the plan: the SHA-256 of its canonical text.
func (p Plan) Digest() string {
	h := sha256.New()
	p.text(func(piece []byte) { h.Write(piece) })
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
