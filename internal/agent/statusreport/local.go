package statusreport

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// LocalFile is the name of the file in the run directory.
const LocalFile = "status.json"

// maxLocal bounds what a reader of the file takes: a NodeUpdate has at most 4 KiB.
const maxLocal = 1 << 20

// Local is what an agent writes on its own node: its status, and what people at the machine need
// when the API server is unavailable.
type Local struct {
	Node   string                     `json:"node"`
	Status *v1alpha1.NodeUpdateStatus `json:"status"`
	// WrittenAt is when the agent wrote this.
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	// APIReachedAt is when the API server answered last; APIError is why it does not answer now.
	APIReachedAt time.Time `json:"apiReachedAt,omitzero"`
	APIError     string    `json:"apiError,omitempty"`
	// Approved are the digests of bundles that the node may load; it must prepare or run the first.
	Approved []string `json:"approvedBundles,omitempty"`
	// Permitted is the run that the controller permits.
	Permitted *LocalRun `json:"permittedRun,omitempty"`
	// Stored are the bundles in media of this node that the node stores completely.
	Stored []string `json:"storedBundles,omitempty"`
	// Blockers are what the node waits for, the most important first.
	Blockers []model.Blocker `json:"blockers,omitempty"`
}

// LocalRun is a permitted run.
type LocalRun struct {
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Bundle string `json:"bundle,omitempty"`
	Steps  int    `json:"steps"`
}

// PermittedRun converts the run of a NodeUpdate's spec, nil if there is none.
func PermittedRun(r *v1alpha1.NodeRun) *LocalRun {
	if r == nil {
		return nil
	}
	return &LocalRun{Name: r.Name, UID: r.UID, Bundle: r.Bundle, Steps: len(r.Steps)}
}

// Write replaces the file in the run directory. It is not synced: a reboot removes it anyway.
func (l *Local) Write(runDir string) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("local status: %w", err)
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return fmt.Errorf("local status: %w", err)
	}
	path := filepath.Join(runDir, LocalFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("local status: %w", err)
	}
	return os.Rename(path+".new", path)
}

var errNoStatus = errors.New("it has no status")

// ReadLocal reads the file, and changes nothing.
func ReadLocal(runDir string) (*Local, error) {
	path := filepath.Join(runDir, LocalFile)
	b, err := fsutil.ReadSmall(path, maxLocal)
	if err != nil {
		return nil, fmt.Errorf("local status: %w", err)
	}
	l := &Local{}
	err = json.Unmarshal(b, l)
	if err == nil && l.Status == nil {
		err = errNoStatus
	}
	if err != nil {
		return nil, fmt.Errorf("local status %s is damaged: %w", path, err)
	}
	Clean(l.Status)
	return l, nil
}
