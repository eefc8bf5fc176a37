package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/host/disk"
)

// Events of a journal.
const (
	eventRun    = "run"    // the run begins
	eventStart  = "start"  // a step begins
	eventEnd    = "end"    // a step was observed done; in an undo, taken back
	eventSpent  = "spent"  // so much time a step has taken
	eventFinish = "finish" // the run is over
)

// entry is one line of a journal.
type entry struct {
	Event string            `json:"event"`
	At    time.Time         `json:"at"`
	Run   *v1alpha1.NodeRun `json:"run,omitempty"`
	Step  string            `json:"step,omitempty"`
	// Spent is the time that a step has taken in all lives of the agent.
	Spent time.Duration `json:"spent,omitempty"`
	// State, Reason and Message of the end.
	State   v1alpha1.RunState `json:"state,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
}

// journal is one run's file. What it says was synced.
type journal struct {
	path    string
	size    int64 // of the whole lines
	run     v1alpha1.NodeRun
	began   time.Time
	started map[string]time.Time
	ended   map[string]bool
	spent   map[string]time.Duration
	finish  *entry
}

func newJournal(path string) *journal {
	return &journal{path: path, started: map[string]time.Time{}, ended: map[string]bool{}, spent: map[string]time.Duration{}}
}

func fileOf(dir string, r *v1alpha1.NodeRun) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.jsonl", r.UID, r.Attempt))
}

// createJournal begins a run; the file must not exist.
func createJournal(dir string, r v1alpha1.NodeRun, now time.Time) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := newJournal(fileOf(dir, &r))
	if err := j.add(entry{Event: eventRun, At: now, Run: &r}); err != nil {
		return nil, err
	}
	return j, disk.SyncDir(dir)
}

// adopt writes the journal of a run that has ended elsewhere.
func adopt(path string, r v1alpha1.NodeRun, s v1alpha1.NodeRunStatus, now time.Time) error {
	end := entry{Event: eventFinish, At: now, State: s.State, Step: s.Step, Reason: s.Reason, Message: s.Message}
	if s.FinishedAt != nil {
		end.At = s.FinishedAt.Time
	}
	var lines []byte
	for _, e := range []entry{{Event: eventRun, At: now, Run: &r}, end} {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		lines = append(append(lines, b...), '\n')
	}
	return disk.WriteFile(path, lines, 0o600)
}

// readJournal reads a file up to the last whole line: a torn one was not synced,
// so nothing followed from it. It is nil if not even the first line is whole.
func readJournal(path string) (*journal, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := newJournal(path)
	whole := 0
	for {
		n := bytes.IndexByte(b[whole:], '\n')
		if n < 0 {
			break
		}
		var e entry
		if json.Unmarshal(b[whole:whole+n], &e) != nil {
			break
		}
		j.note(e)
		whole += n + 1
	}
	if whole < len(b) {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
	}
	if j.began.IsZero() {
		return nil, os.Remove(path)
	}
	j.size = int64(whole)
	return j, nil
}

func (j *journal) note(e entry) {
	switch e.Event {
	case eventRun:
		if e.Run != nil {
			j.run, j.began = *e.Run, e.At
		}
	case eventStart:
		if j.started[e.Step].IsZero() {
			j.started[e.Step] = e.At
		}
	case eventSpent:
		j.spent[e.Step] = e.Spent
	case eventEnd:
		j.ended[e.Step] = true
	case eventFinish:
		j.finish = &e
	}
}

// add appends a line and syncs it. What an earlier try left behind, after a full
// disk for example, is cut off first: a line that follows half a line is lost
// when the journal is read, and so is all after it.
func (j *journal) add(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(j.size); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	n, err := f.Write(append(b, '\n'))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.size += int64(n)
	j.note(e)
	return nil
}

// readJournals reads all of a directory, oldest first.
func readJournals(dir string) ([]*journal, error) {
	es, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []*journal
	for _, e := range es {
		if filepath.Ext(e.Name()) != ".jsonl" {
			continue
		}
		j, err := readJournal(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if j != nil {
			out = append(out, j)
		}
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a].began.Before(out[b].began) })
	return out, nil
}
