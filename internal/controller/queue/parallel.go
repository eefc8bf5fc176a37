package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// MaxParallel are at work at once, for one reconciler: the API server's own priority
// and fairness is the real limit, this one keeps a controller from filling it.
const MaxParallel = 16

// maxErrors is how many failures are reported in full.
const maxErrors = 5

// ForEach calls do for every item.
func ForEach[T any](ctx context.Context, items []T, do func(T) error) error {
	var started atomic.Int64
	var failures failures
	var g errgroup.Group // without its context: one failure ends no other
	g.SetLimit(MaxParallel)
	for _, item := range items {
		g.Go(func() error {
			if ctx.Err() == nil {
				started.Add(1)
				failures.addError(do(item))
			}
			return nil
		})
	}
	_ = g.Wait() // all failures are collected, not only the first
	if left := len(items) - int(started.Load()); left > 0 {
		failures.addError(fmt.Errorf("%d of %d were not started: %w", left, len(items), ctx.Err()))
	}
	return failures.err()
}

type failures struct {
	mu   sync.Mutex
	errs []error
	more int
}

func (f *failures) addError(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) < maxErrors {
		f.errs = append(f.errs, err)
		return
	}
	f.more++
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more of the kind", f.more))...)
	}
	return errors.Join(f.errs...)
}
