package statefile

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// Problems is a directory with one file for each problem of this boot.
type Problems string

// At is where the problems of a node are, below its run directory.
func At(runDir string) Problems { return Problems(filepath.Join(runDir, "problems")) }

const (
	// reportRepaired is how long a problem is listed that is repaired.
	reportRepaired = 24 * time.Hour
	// most problems are kept; a file each.
	most = 32
)

func (p Problems) path(x Problem) string {
	sum := sha256.Sum256([]byte(x.Reason + "\x00" + x.Object))
	return filepath.Join(string(p), fmt.Sprintf("%x.json", sum[:8]))
}

// Add keeps a problem; a newer one of the same reason and object replaces it. It is best
// effort: what cannot be kept is in the log.
func (p Problems) Add(x Problem) {
	if es, err := os.ReadDir(string(p)); err == nil && len(es) >= most {
		return
	}
	b, err := json.Marshal(x)
	if err != nil || os.MkdirAll(string(p), 0o755) != nil {
		return
	}
	// Not synced: it is of no use after a reboot.
	if tmp := p.path(x) + ".new"; os.WriteFile(tmp, b, 0o600) == nil {
		_ = os.Rename(tmp, p.path(x))
	}
}

// Clear forgets a problem that is no more.
func (p Problems) Clear(reason, object string) {
	_ = os.Remove(p.path(Problem{Reason: reason, Object: object}))
}

// List returns the problems, those that are not repaired first, then by object.
func (p Problems) List(now time.Time) (out []Problem) {
	es, _ := os.ReadDir(string(p)) // none is kept: none is known
	for _, e := range es {
		path := filepath.Join(string(p), e.Name())
		st, err := os.Stat(path)
		if err != nil || filepath.Ext(path) != ".json" {
			continue
		}
		var x Problem
		b, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(b, &x) != nil || x.Reason == "" {
			continue
		}
		if x.Repaired && now.Sub(st.ModTime()) > reportRepaired {
			_ = os.Remove(path)
			continue
		}
		out = append(out, x)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Repaired != b.Repaired {
			return b.Repaired
		}
		return a.Reason+a.Object < b.Reason+b.Object
	})
	return out
}
