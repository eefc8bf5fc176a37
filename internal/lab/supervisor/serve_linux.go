package supervisor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
)

// serve answers until the listener is closed.
func (s *supervisor) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var q Request
			if err := json.NewDecoder(bufio.NewReader(c)).Decode(&q); err != nil {
				return
			}
			r, err := s.answer(q)
			if err != nil {
				r = &Reply{Error: err.Error()}
			}
			_ = json.NewEncoder(c).Encode(r)
			if q.Op == OpQuit {
				close(s.quit)
			}
		}()
	}
}

func (s *supervisor) answer(q Request) (*Reply, error) {
	switch q.Op {
	case OpStatus:
		return s.status(), nil
	case OpOutside:
		return &Reply{Outside: s.watch.counts()}, nil
	case OpQuit:
		s.killAll()
		return &Reply{}, nil
	}
	n := s.nodes[q.Node]
	if n == nil {
		return nil, fmt.Errorf("this lab has no node %q", q.Node)
	}
	switch q.Op {
	case OpOn:
		return &Reply{}, n.switchOn()
	case OpCrash:
		return &Reply{}, n.crash()
	}
	return nil, fmt.Errorf("unknown operation %q", q.Op)
}

func (s *supervisor) status() *Reply {
	r := &Reply{}
	for _, name := range s.config.Nodes {
		r.Nodes = append(r.Nodes, s.nodes[name].describeStatus())
	}
	return r
}
