package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Events of a journal.
const (
	eventRun    = "run"    // the run starts
	eventStart  = "start"  // a step starts
	eventEnd    = "end"    // a step was observed done; in an undo, undone
	eventSpent  = "spent"  // the time that a step has taken
	eventFinish = "finish" // the run finished

	eventArmed    = "armed"    // a step that can cut the node off is next
	eventUnwell   = "unwell"   // the time in which the node was not well since
	eventDisarmed = "disarmed" // the node was well after the steps
	eventExpired  = "expired"  // the node was not well in time: it undoes the run
)

// entry is one line of a journal.
type entry struct {
	// Line counts from 1, so that a missing line is detected.
	Line  int               `json:"line"`
	Event string            `json:"event"`
	At    time.Time         `json:"at"`
	Run   *v1alpha1.NodeRun `json:"run,omitempty"`
	Step  string            `json:"step,omitempty"`
	// Spent is the time that a step has taken in all processes of the agent; in armed and
	// unwell, the time that a node may be, and was, not well.
	Spent time.Duration `json:"spent,omitempty"`
	// Before is the state of the node when its deadline was armed.
	Before *Health `json:"before,omitempty"`
	// State, Reason and Message of the end.
	State   v1alpha1.RunState `json:"state,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
}

// journal is one run's file. Its content was synced.
type journal struct {
	path      string
	seq       uint64 // orders journals: the clock may be wrong
	size      int64  // of the complete lines
	lines     int
	open      bool // the last line has no line break yet
	torn      int  // bytes at the end that are no complete line
	run       v1alpha1.NodeRun
	startedAt time.Time
	started   map[string]time.Time
	stepsDone map[string]bool
	spent     map[string]time.Duration
	finish    *entry
	damage    *damage
	// armed is nil while no deadline is; unwell is for how long the node was not well since.
	// expired is why the node undoes the run by itself.
	armed   *entry
	unwell  time.Duration
	expired string
}

// damage is why a journal does not tell the progress of its run.
type damage struct {
	reason string
	err    error
}

func newJournal(path string, seq uint64) *journal {
	return &journal{path: path, seq: seq, started: map[string]time.Time{}, stepsDone: map[string]bool{}, spent: map[string]time.Duration{}}
}

// journalPath names a journal after its run and its place in the order, so that both stay
// known if the content is damaged.
func journalPath(dir string, seq uint64, r *v1alpha1.NodeRun) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.%s.%d%s", seq, r.UID, r.Attempt, journalSuffix))
}

const journalSuffix = ".jsonl"

// parseJournalName parses what journalPath returns; ok is false for a file that is no
// journal. One without a number is from before the first release: it has no checksums, so
// it counts as damaged, and its run does not start again.
func parseJournalName(path string) (seq uint64, r v1alpha1.NodeRun, ok bool) {
	name, isJournal := strings.CutSuffix(filepath.Base(path), journalSuffix)
	parts := strings.Split(name, ".")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if !isJournal || len(parts) != 3 {
		return 0, r, false
	}
	seq, err := strconv.ParseUint(parts[0], 10, 64)
	attempt, err2 := strconv.ParseInt(parts[2], 10, 32)
	r.UID, r.Attempt = parts[1], int32(attempt)
	return seq, r, err == nil && err2 == nil && invalidRun(&r) == ""
}

// createJournal starts a run. The file appears with its first line, so a file without one is
// damaged, and not a new one.
func createJournal(dir string, seq uint64, r v1alpha1.NodeRun, now time.Time) (*journal, error) {
	j := newJournal(journalPath(dir, seq, &r), seq)
	return j, j.create(entry{Event: eventRun, At: now, Run: &r})
}

// createFinishedJournal writes the journal of a run that finished elsewhere.
func createFinishedJournal(dir string, seq uint64, r v1alpha1.NodeRun, s v1alpha1.NodeRunStatus, now time.Time) error {
	end := entry{Event: eventFinish, At: now, State: s.State, Step: s.Step, Reason: s.Reason, Message: s.Message}
	if s.FinishedAt != nil {
		end.At = s.FinishedAt.Time
	}
	return newJournal(journalPath(dir, seq, &r), seq).create(entry{Event: eventRun, At: now, Run: &r}, end)
}

func (j *journal) create(entries ...entry) error {
	var lines []byte
	for i := range entries {
		entries[i].Line = i + 1
		b, err := entries[i].encode()
		if err != nil {
			return err
		}
		lines = append(lines, b...)
	}
	if err := fsutil.WriteFile(j.path, lines, 0o600); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.size = int64(len(lines))
	for _, e := range entries {
		j.apply(e)
	}
	return nil
}

// The checksum is the last member of a line: CRC-32C of the line without it.
const (
	checksumStart = `,"crc32c":"`
	checksumEnd   = "\"}"
	checksumSize  = len(checksumStart) + 8 + len(checksumEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func lineChecksum(object []byte) string {
	return fmt.Sprintf("%s%08x%s", checksumStart, crc32.Checksum(object, castagnoli), checksumEnd)
}

func (e entry) encode() ([]byte, error) {
	e.At = e.At.UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return append(append(b[:len(b)-1:len(b)-1], lineChecksum(b)...), '\n'), nil
}

// decode parses a line without its line break.
func decode(line []byte) (e entry, err error) {
	at := len(line) - checksumSize
	if at < 1 || !bytes.HasPrefix(line[at:], []byte(checksumStart)) {
		return e, errors.New("no checksum at its end")
	}
	object := append(bytes.Clone(line[:at]), '}')
	if want := lineChecksum(object); string(line[at:]) != want {
		return e, errors.New("the checksum does not match the line")
	}
	if err := json.Unmarshal(object, &e); err != nil {
		return e, fmt.Errorf("not an entry: %w", err)
	}
	return e, nil
}

// readJournal reads a file. A torn end was not synced, so nothing depended on it: it is
// skipped, and the next line overwrites it. Any other difference from what was written is
// damage.
func readJournal(path string, seq uint64, named v1alpha1.NodeRun) *journal {
	j := newJournal(path, seq)
	b, err := os.ReadFile(path)
	if err != nil {
		j.run, j.damage = named, &damage{v1alpha1.ReasonJournalUnreadable, err}
		return j
	}
	for line := range bytes.Lines(b) {
		j.readLine(line)
	}
	if j.run.UID != named.UID || j.run.Attempt != named.Attempt {
		j.markDamaged(errors.New("its first line, which names the run, is missing or belongs to another run"))
		j.run, j.finish = named, nil
	}
	return j
}

// readLine applies a line. Only the last one may have no line break.
func (j *journal) readLine(line []byte) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	e, err := decode(text)
	if err != nil && !whole { // torn, or a line whose line break alone is bad
		text = line[:len(line)-1]
		if e, err = decode(text); err != nil {
			j.torn = len(line)
			return
		}
	}
	if err != nil {
		j.markDamaged(fmt.Errorf("line %d, at byte %d: %w", j.lines+1, j.size, err))
		j.finish = nil
		e.Line = j.lines + 1
	}
	if e.Line != j.lines+1 {
		j.markDamaged(fmt.Errorf("line %d, at byte %d, was written as line %d", j.lines+1, j.size, e.Line))
	}
	j.apply(e)
	j.size += int64(len(text))
	if j.open = !whole; whole {
		j.size++
	}
}

func (j *journal) markDamaged(err error) {
	if j.damage == nil {
		j.damage = &damage{v1alpha1.ReasonJournalCorrupt, err}
	}
}

func (j *journal) apply(e entry) {
	j.lines = e.Line
	switch e.Event {
	case eventRun:
		if e.Run != nil {
			j.run, j.startedAt = *e.Run, e.At
		}
	case eventStart:
		if j.started[e.Step].IsZero() {
			j.started[e.Step] = e.At
		}
	case eventSpent:
		j.spent[e.Step] = e.Spent
	case eventEnd:
		j.stepsDone[e.Step] = true
	case eventFinish:
		j.finish = &e
	default:
		j.applyDeadline(e)
	}
}

func (j *journal) applyDeadline(e entry) {
	switch e.Event {
	case eventArmed:
		if e.Before != nil {
			j.armed, j.unwell = &e, 0
		}
	case eventUnwell:
		j.unwell = e.Spent
	case eventDisarmed:
		j.armed = nil
	case eventExpired:
		j.expired = e.Message
	}
}

// appendEntry appends a line and syncs it. It first truncates what an earlier try left
// behind, after a full disk for example: half a line in the middle is damage.
func (j *journal) appendEntry(e entry) error {
	e.Line = j.lines + 1
	b, err := e.encode()
	if err != nil {
		return err
	}
	if j.open {
		b = append([]byte("\n"), b...)
	}
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(j.size); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.size += int64(len(b))
	j.open = false
	j.apply(e)
	return nil
}

// readJournals reads all journals of a directory, oldest first. An error means that the runs
// of this node are unknown. An unreadable or damaged file is reported in its own journal.
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
		path := filepath.Join(dir, e.Name())
		if seq, named, ok := parseJournalName(path); ok {
			out = append(out, readJournal(path, seq, named))
		}
	}
	slices.SortStableFunc(out, func(a, b *journal) int { return cmp.Compare(a.seq, b.seq) })
	return out, nil
}

// removeTempFiles removes what an interrupted write left behind.
func removeTempFiles(dir string) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return // the journal that is created next says why
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name(), ".") {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// nextSeq is greater than that of any journal.
func nextSeq(js []*journal) uint64 {
	if len(js) == 0 {
		return 1
	}
	return js[len(js)-1].seq + 1
}
