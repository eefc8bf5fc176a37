package localstats

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Bytes says where the bytes of a bundle came from.
type Bytes struct {
	Media int64 `json:"media"`
	Peers int64 `json:"peers"`
}

// Sources counts bytes by bundle. Safe for concurrent use.
type Sources struct {
	path string

	mu    sync.Mutex
	all   map[string]Bytes
	saved time.Time
}

// saveEvery is how often the file is written while bytes come in.
const saveEvery = time.Second

// OpenSources reads the file; a damaged one is noted, and means counted from zero.
func OpenSources(path string, note statefile.Note) *Sources {
	s := &Sources{path: path, all: map[string]Bytes{}}
	var all map[string]Bytes
	if statefile.Read(path, "bytes are counted from zero", func(b []byte) error { return json.Unmarshal(b, &all) }, note) && all != nil {
		s.all = all
	}
	return s
}

// Add counts bytes, and writes the file now and then.
func (s *Sources) Add(bundle string, b Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.all[bundle]
	s.all[bundle] = Bytes{Media: have.Media + b.Media, Peers: have.Peers + b.Peers}
	if time.Since(s.saved) > saveEvery {
		s.save()
	}
}

// Save writes the file now.
func (s *Sources) Save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.save()
}

func (s *Sources) save() {
	s.saved = time.Now()
	if b, err := json.Marshal(s.all); err == nil {
		_ = fsutil.WriteFile(s.path, b, 0o600) // only a statistic
	}
}

// Of sums up bundles.
func (s *Sources) Of(bundles []string) (sum Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range bundles {
		sum.Media += s.all[d].Media
		sum.Peers += s.all[d].Peers
	}
	return sum
}
