package gatefacts

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// patience is how long a check of the gate waits for the first answer to a question.
	patience = 2 * time.Second
	// longest is how long one reading may take: a walk over all pods of the
	// largest cluster.
	longest = 10 * time.Minute
	// staleFor is how many times its usual age an answer is used while it is read
	// anew, or cannot be.
	staleFor = 10
)

// errPending: the answer is being read.
var errPending = errors.New("it is being read")

// memo is one answer and the question (key) that it belongs to. The gate uses an expired
// answer while a new one is read in the background: it does not wait for a list of a
// million pods.
type memo[T any] struct {
	mu    sync.Mutex
	key   string
	at    time.Time
	value T
	// asking is the question that is under way; over is closed when it ends.
	asking string
	over   chan struct{}
	// err is what the last try for errKey ended with.
	err    error
	errKey string
}

// get is the answer to a question; errPending if there is none yet. now is when
// it is asked, ttl how old an answer may be.
func (m *memo[T]) get(ctx context.Context, now time.Time, ttl time.Duration, key string, ask func(context.Context) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fresh(now, ttl, key) {
		return m.value, nil
	}
	usable := m.fresh(now, staleFor*ttl, key)
	if m.over == nil {
		from := context.Background() // the answer outlives the reconcile that asked
		if !usable {
			from = context.WithoutCancel(ctx)
		}
		m.start(from, now, key, ask)
	}
	if !usable {
		m.wait(ctx)
	}
	var zero T
	switch {
	case m.fresh(now, staleFor*ttl, key):
		return m.value, nil
	case m.err != nil && m.errKey == key:
		return zero, m.err
	}
	return zero, errPending
}

// fresh reports whether there is an answer to a question, and not too old.
func (m *memo[T]) fresh(now time.Time, age time.Duration, key string) bool {
	return m.key == key && !m.at.IsZero() && !now.Before(m.at) && now.Sub(m.at) < age
}

// start asks in the background, for a bounded time beyond the reconcile that started it.
func (m *memo[T]) start(ctx context.Context, now time.Time, key string, ask func(context.Context) (T, error)) {
	over := make(chan struct{})
	m.asking, m.over = key, over
	ctx, cancel := context.WithTimeout(ctx, longest)
	go func() {
		defer cancel()
		v, err := ask(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.over, m.err, m.errKey = nil, err, key
		if err == nil {
			m.key, m.at, m.value = key, now, v
		}
		close(over)
	}()
}

// wait waits a moment for what is under way; called with the mutex held.
func (m *memo[T]) wait(ctx context.Context) {
	over := m.over
	if over == nil {
		return
	}
	m.mu.Unlock()
	defer m.mu.Lock()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	case <-ctx.Done():
	}
}
