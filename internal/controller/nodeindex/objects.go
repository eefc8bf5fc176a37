package nodeindex

import (
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects are the newest known objects of one kind, by name.
type objects[T client.Object] struct {
	mu *sync.Mutex
	// cached is what the cache showed last.
	cached map[string]T
	// answers of the API server that the cache may not show yet.
	answers map[string]answer[T]
	// dirty names have changed since the last drain.
	dirty map[string]struct{}
}

type answer[T any] struct {
	object     T
	receivedAt time.Time
}

// change is the newest state of an object that may have changed.
type change[T any] struct {
	name   string
	object T
	exists bool
}

func newObjects[T client.Object]() objects[T] {
	return objects[T]{mu: &sync.Mutex{}, cached: map[string]T{}, answers: map[string]answer[T]{}, dirty: map[string]struct{}{}}
}

func (s *objects[T]) put(o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached[o.GetName()] = o
	s.dirty[o.GetName()] = struct{}{}
}

func (s *objects[T]) remove(o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.GetName()
	s.dirty[name] = struct{}{}
	if c, ok := s.cached[name]; ok && c.GetUID() == o.GetUID() {
		delete(s.cached, name)
	}
	if a, ok := s.answers[name]; ok && a.object.GetUID() == o.GetUID() {
		delete(s.answers, name)
	}
}

func (s *objects[T]) putAnswer(o T, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.GetName()
	if a, ok := s.answers[name]; ok && older(o, a.object) {
		return
	}
	s.answers[name] = answer[T]{o, now}
	s.dirty[name] = struct{}{}
}

// drain returns every object that may have changed since the last drain.
func (s *objects[T]) drain(now time.Time) []change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.answers { // an answer may have expired
		s.dirty[name] = struct{}{}
	}
	if len(s.dirty) == 0 {
		return nil
	}
	out := make([]change[T], 0, len(s.dirty))
	for name := range s.dirty {
		o, exists := s.newest(name, now)
		out = append(out, change[T]{name, o, exists})
	}
	s.dirty = map[string]struct{}{} // a cleared map would keep the space of tens of thousands
	return out
}

// newest returns the answer while it is newer than the cache and has not expired.
func (s *objects[T]) newest(name string, now time.Time) (o T, exists bool) {
	c, cached := s.cached[name]
	a, answered := s.answers[name]
	if answered && now.Sub(a.receivedAt) < answerLifetime && (!cached || older(c, a.object)) {
		return a.object, true
	}
	delete(s.answers, name)
	return c, cached
}

// older reports whether a was written before b: the versions of one object grow.
func older(a, b client.Object) bool {
	x, err1 := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, err2 := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return err1 == nil && err2 == nil && x < y
}
