package localstats

import "sync"

// Arrivals counts by blob how many bytes came from where, until it is forgotten.
// Safe for concurrent use; the zero value is empty.
type Arrivals struct {
	mu  sync.Mutex
	all map[string]Bytes
}

// Add counts bytes of a blob.
func (a *Arrivals) Add(blob string, b Bytes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]Bytes{}
	}
	have := a.all[blob]
	a.all[blob] = Bytes{Media: have.Media + b.Media, Peers: have.Peers + b.Peers}
}

// Of sums up blobs.
func (a *Arrivals) Of(blobs []string) (sum Bytes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range blobs {
		sum.Media += a.all[d].Media
		sum.Peers += a.all[d].Peers
	}
	return sum
}

// Forget begins anew.
func (a *Arrivals) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = nil
}
