package agent

import (
	"fmt"
	"sync"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// payloadFinder finds files of bundles in this node's store, and compares each with its
// digest once. The runner and the facts loop use it. Safe for concurrent use.
type payloadFinder struct {
	*shared

	mu       sync.Mutex
	compared map[string]bool // by digest
}

// findPayload returns a file of an approved bundle in the store.
func (pf *payloadFinder) findPayload(digest, name string) (updaters.Payload, error) {
	no := func(why string) (updaters.Payload, error) {
		return updaters.Payload{}, fmt.Errorf("payload %s of bundle %s: %w: %s", name, digest, updaters.ErrNoPayload, why)
	}
	shelf := pf.library.Shelf(digest)
	if shelf == nil {
		return no("this node does not have the bundle")
	}
	if w := pf.desiredState(); w != nil {
		if d := pf.policy(w).Decide(shelf.Bundle()); !d.Allowed {
			return no(d.Blocker.Message)
		}
	}
	p := shelf.Bundle().PayloadByName(name, platform())
	if p == nil {
		return no("the bundle does not have it for " + platform())
	}
	if !shelf.HasBlob(p.Blob) {
		return no("it has not arrived on this node")
	}
	if err := pf.compare(shelf, p); err != nil {
		return updaters.Payload{}, err
	}
	path, err := pf.library.Blobs().Path(p.Digest)
	if err != nil {
		return no(err.Error())
	}
	return updaters.Payload{Path: path, Digest: p.Digest}, nil
}

// findPinned returns a payload of the pin list, from the first bundle that has it.
func (pf *payloadFinder) findPinned(name, digest string) (updaters.Payload, error) {
	err := fmt.Errorf("payload %s with digest %s: %w: no approved bundle has it", name, digest, updaters.ErrNoPayload)
	w := pf.desiredState()
	if w == nil {
		return updaters.Payload{}, err
	}
	for _, p := range w.Pins.Payloads {
		if p.Name != name || p.Digest != digest {
			continue
		}
		var found updaters.Payload
		if found, err = pf.findPayload(p.Bundle, name); err == nil {
			return found, nil
		}
	}
	return updaters.Payload{}, err
}

// compare checks a payload against its digest, once while this agent runs. A corrupt
// payload is fetched again; the caller retries.
func (pf *payloadFinder) compare(shelf *bundlestore.Shelf, p *bundle.Payload) error {
	pf.mu.Lock()
	done := pf.compared[p.Digest]
	pf.mu.Unlock()
	if done {
		return nil
	}
	if bad := shelf.Recheck([]int{p.Blob}); bad > 0 {
		wake(pf.wakeBundles)
		return fmt.Errorf("payload %s is corrupt on this node's disk (%d chunks); fetching it again", p.Name, bad)
	}
	pf.mu.Lock()
	pf.compared[p.Digest] = true
	pf.mu.Unlock()
	return nil
}
