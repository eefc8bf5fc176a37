package agent

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// sourceBytes counts received bytes by their source.
type sourceBytes struct {
	Media int64 `json:"media"`
	Peers int64 `json:"peers"`
	// Registry is what came from registries.
	Registry int64 `json:"registry,omitempty"`
}

func (b sourceBytes) plus(o sourceBytes) sourceBytes {
	return sourceBytes{Media: b.Media + o.Media, Peers: b.Peers + o.Peers, Registry: b.Registry + o.Registry}
}

func (b sourceBytes) sum() int64 { return b.Media + b.Peers + b.Registry }

// transferStats counts bytes by bundle. Safe for concurrent use.
type transferStats struct {
	path string

	mu    sync.Mutex
	all   map[string]sourceBytes
	saved time.Time
}

// saveEvery is how often the file is written while bytes arrive.
const saveEvery = time.Second

// openTransferStats reads the file. If it is damaged, it reports that and counts from zero.
func openTransferStats(path string, note statefile.Note) *transferStats {
	s := &transferStats{path: path, all: map[string]sourceBytes{}}
	var all map[string]sourceBytes
	if statefile.Read(path, "bytes are counted from zero", func(b []byte) error { return json.Unmarshal(b, &all) }, note) && all != nil {
		s.all = all
	}
	return s
}

// Add counts bytes, and writes the file at most every saveEvery.
func (s *transferStats) Add(bundle string, b sourceBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[bundle] = s.all[bundle].plus(b)
	if time.Since(s.saved) > saveEvery {
		s.save()
	}
}

// Save writes the file now.
func (s *transferStats) Save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.save()
}

func (s *transferStats) save() {
	s.saved = time.Now()
	if b, err := json.Marshal(s.all); err == nil {
		_ = fsutil.WriteFile(s.path, b, 0o600) // only a statistic
	}
}

// Sum sums up bundles.
func (s *transferStats) Sum(bundles []string) (sum sourceBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range bundles {
		sum = sum.plus(s.all[d])
	}
	return sum
}

// arrivalStats counts received bytes by blob and source, until Forget.
// Safe for concurrent use; the zero value is empty.
type arrivalStats struct {
	mu  sync.Mutex
	all map[string]sourceBytes
}

// Add counts bytes of a blob.
func (a *arrivalStats) Add(blob string, b sourceBytes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]sourceBytes{}
	}
	a.all[blob] = a.all[blob].plus(b)
}

// Sum sums up blobs.
func (a *arrivalStats) Sum(blobs []string) (sum sourceBytes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range blobs {
		sum = sum.plus(a.all[d])
	}
	return sum
}

// Forget starts from zero.
func (a *arrivalStats) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = nil
}
