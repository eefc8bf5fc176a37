package bundlefiles

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// retryAfter is the pause after a failed fetch.
const retryAfter = 5 * time.Second

// headerTimeout bounds one request to one agent.
const headerTimeout = 60 * time.Second

// ErrPending means that the header is being fetched.
var ErrPending = errors.New("the header is being fetched")

// ErrNoSource means that no agent has the bundle.
var ErrNoSource = errors.New("no node has the bundle's header")

// Headers caches bundle headers. It is safe for concurrent use.
type Headers struct {
	id *peerapi.Identity
	// Node reads a Node, so that only a node's own address is dialed; nil allows every
	// address.
	Node func(ctx context.Context, name string) (*corev1.Node, error)

	changed chan event.GenericEvent

	mu      sync.Mutex
	ctx     context.Context
	entries map[string]*entry
	wg      sync.WaitGroup
}

type entry struct {
	header  *bundle.Header
	err     error
	busy    bool
	nextTry time.Time
}

// NewHeaders returns a cache that connects to agents with an identity.
func NewHeaders(id *peerapi.Identity) *Headers {
	return &Headers{id: id, changed: make(chan event.GenericEvent, 16), entries: map[string]*entry{}}
}

// Changed gets an event whenever a fetch has ended.
func (c *Headers) Changed() <-chan event.GenericEvent { return c.changed }

// Start lets fetches run until the context ends, and waits for them.
func (c *Headers) Start(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.wg.Wait()
	return nil
}

// Get returns the header, ErrPending, ErrNoSource, or why the last fetch failed; a failed fetch
// is retried. The result is shared: do not change it. agents lists the agents that have the
// header; it is called only while the header is not cached.
func (c *Headers) Get(digest string, agents func() []peerapi.Peer) (*bundle.Header, error) {
	if h := c.cached(digest); h != nil {
		return h, nil
	}
	sources := agents()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[digest]
	if e == nil {
		e = &entry{}
		c.entries[digest] = e
	}
	switch {
	case e.header != nil: // a fetch has just ended
		return e.header, nil
	case len(sources) == 0:
		return nil, ErrNoSource
	case !e.busy && c.ctx != nil && c.ctx.Err() == nil && !time.Now().Before(e.nextTry):
		e.busy = true
		c.wg.Add(1)
		go c.fetch(c.ctx, digest, sources)
	}
	if e.err != nil {
		return nil, e.err
	}
	return nil, ErrPending
}

func (c *Headers) cached(digest string) *bundle.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[digest]; e != nil {
		return e.header
	}
	return nil
}

// Retain drops all but the named digests.
func (c *Headers) Retain(digests map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d, e := range c.entries {
		if !digests[d] && !e.busy {
			delete(c.entries, d)
		}
	}
}

func (c *Headers) fetch(ctx context.Context, digest string, sources []peerapi.Peer) {
	defer c.wg.Done()
	h, err := c.fetchFromAny(ctx, digest, sources)
	c.mu.Lock()
	if e := c.entries[digest]; e != nil {
		e.busy, e.header, e.err, e.nextTry = false, h, err, time.Now().Add(retryAfter)
	}
	c.mu.Unlock()
	select {
	case c.changed <- event.GenericEvent{}:
	default: // an event is waiting already
	}
}

func (c *Headers) fetchFromAny(ctx context.Context, digest string, sources []peerapi.Peer) (*bundle.Header, error) {
	var errs []error
	for _, s := range sources {
		h, err := c.fetchFrom(ctx, digest, s)
		if err == nil {
			return h, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || len(errs) == 5 {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (c *Headers) fetchFrom(ctx context.Context, digest string, s peerapi.Peer) (*bundle.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	if c.Node != nil {
		n, err := c.Node(ctx, s.Name)
		if err == nil {
			err = CheckAddress(n, s.Address)
		}
		if err != nil {
			return nil, fmt.Errorf("agent of node %s: %w", s.Name, err)
		}
	}
	client := peerapi.NewClient(c.id, s)
	defer client.Close()
	raw, err := client.Header(ctx, digest)
	if err != nil {
		return nil, err
	}
	// The digest is compared before anything is decoded, so forged bytes are never parsed.
	h, err := bundle.ParseHeaderOf(digest, raw)
	if err != nil {
		return nil, fmt.Errorf("header of %s from node %s: %w", digest, s.Name, err)
	}
	h.Raw, h.Chunks = nil, nil // large, and the controller needs neither
	return h, nil
}
