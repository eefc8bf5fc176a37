package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// MaxParallel are at work at once, for one reconciler: the API server's own priority
// and fairness is the real limit, this one keeps a controller from filling it.
const MaxParallel = 16

// maxErrors is how many failures are told in full.
const maxErrors = 5

// ForEach calls do for every item.
func ForEach[T any](ctx context.Context, items []T, do func(T) error) error {
	var next, done atomic.Int64
	var wg sync.WaitGroup
	var failures failures
	for range min(MaxParallel, len(items)) {
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
