// Package parallel does the same for many objects, some at a time.
//
// Promise: no more than Writers are at work at once, every object is tried, and
// thousands of failures are told in one sentence. Nothing new is begun once the
// context has ended.
//
// Callers: the controller's reconcilers, for their writes.
package parallel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Writers are at work at once, for one reconciler: the API server's own priority
// and fairness is the real limit, this one keeps a controller from filling it.
const Writers = 16

// told is how many failures are told in full.
const told = 5

// Each calls do for every item.
func Each[T any](ctx context.Context, items []T, do func(T) error) error {
	var next, done atomic.Int64
	var wg sync.WaitGroup
	var failures failures
	for range min(Writers, len(items)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(items) || ctx.Err() != nil {
					return
				}
				done.Add(1)
				failures.add(do(items[i]))
			}
		})
	}
	wg.Wait()
	if left := len(items) - int(done.Load()); left > 0 {
		failures.add(fmt.Errorf("%d of %d were not begun: %w", left, len(items), ctx.Err()))
	}
	return failures.err()
}

type failures struct {
	mu   sync.Mutex
	errs []error
	more int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) < told {
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
