package nodeindex

import (
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// side is one kind of object.
type side[T client.Object] struct {
	mu *sync.Mutex
	// cached is what the cache showed last.
	cached map[string]T
	// answers of the API server that the cache may not show yet.
	answers map[string]answered[T]
	// dirty names have changed since they were taken.
	dirty map[string]bool
}

type answered[T any] struct {
	object T
	at     time.Time
}

func newSide[T client.Object]() side[T] {
	return side[T]{mu: &sync.Mutex{}, cached: map[string]T{}, answers: map[string]answered[T]{}, dirty: map[string]bool{}}
}

func (s *side[T]) put(o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached[o.GetName()] = o
	s.dirty[o.GetName()] = true
}

// count is how many objects there may be.
func (s *side[T]) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dirty)
}

func (s *side[T]) remove(o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.GetName()
	s.dirty[name] = true
	if c, ok := s.cached[name]; ok && c.GetUID() == o.GetUID() {
		delete(s.cached, name)
	}
	if a, ok := s.answers[name]; ok && a.object.GetUID() == o.GetUID() {
		delete(s.answers, name)
	}
}

func (s *side[T]) putAnswer(o T, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.GetName()
	if a, ok := s.answers[name]; ok && older(o, a.object) {
		return
	}
	s.answers[name] = answered[T]{o, now}
	s.dirty[name] = true
}

// drain gives every object that may have changed, with the newest that is known.
func (s *side[T]) drain(now time.Time, give func(name string, o T, there bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.answers { // an answer may have had its time
		s.dirty[name] = true
	}
	for name := range s.dirty {
		o, there := s.newest(name, now)
		give(name, o, there)
	}
	clear(s.dirty)
}

func (s *side[T]) newest(name string, now time.Time) (o T, there bool) {
	c, cached := s.cached[name]
	a, has := s.answers[name]
	if has && now.Sub(a.at) < believe && (!cached || older(c, a.object)) {
		return a.object, true
	}
	delete(s.answers, name)
	return c, cached
}

// older reports whether a was written before b: versions of one object grow.
func older(a, b client.Object) bool {
	x, err1 := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, err2 := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return err1 == nil && err2 == nil && x < y
}
