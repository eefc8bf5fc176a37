package engine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// ran is a node on which attempt 1 succeeded, and the file of its journal.
func ran(t *testing.T) (*node, string) {
	t.Helper()
	n := newNode(t.TempDir())
	n.run(permit(1))
	if n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("%+v", n.last)
	}
	return n, onlyJournal(t, n.dir)
}

func onlyJournal(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("journals: %v %v", files, err)
	}
	return files[0]
}

func (n *node) calls() (sum int) {
	for _, p := range n.parts {
		sum += p.calls
	}
	return sum
}

// If any byte of a finished run's journal is corrupt, the run does not run again, and
// nothing else waits for it.
func TestAFinishedRunWithABadByteDoesNotRunAgain(t *testing.T) {
	n, path := ran(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	calls := n.calls()
	for _, bad := range []byte{0, '\n', '}', 0xff} {
		for i := range whole {
			if whole[i] == bad || bad != 0 && i%7 != 0 && i != len(whole)-1 {
				continue
			}
			b := bytes.Clone(whole)
			b[i] = bad
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			n.last = nil
			n.run(permit(1))
			if n.calls() != calls {
				t.Fatalf("byte %d is %q: a step ran again", i, bad)
			}
			known := n.last != nil && n.last.State == v1alpha1.RunSucceeded
			stopped := n.last != nil && n.last.State == v1alpha1.RunFailed && n.last.Reason == v1alpha1.ReasonJournalCorrupt
			if !known && !stopped {
				t.Fatalf("byte %d is %q: status %+v", i, bad, n.last)
			}
			if n.engine().Busy() {
				t.Fatalf("byte %d is %q: nothing would ever be collected", i, bad)
			}
		}
	}
}

// A run that is half way and whose journal is damaged before its end stops with a reason,
// stays stopped, lets other runs pass, and a person starts its next attempt.
func TestADamagedJournalStopsItsRunOnly(t *testing.T) {
	lines := func(b []byte) [][]byte { return bytes.SplitAfter(b, []byte("\n")) }
	for name, damage := range map[string]func(b []byte) []byte{
		"a flipped bit":               func(b []byte) []byte { b[len(lines(b)[0])+20] ^= 1; return b },
		"a missing line":              func(b []byte) []byte { l := lines(b); return bytes.Join(append(l[:1:1], l[2:]...), nil) },
		"a line twice":                func(b []byte) []byte { l := lines(b); return bytes.Join(append(l[:2:2], l[1:]...), nil) },
		"zeros in the middle":         func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b },
		"all zeros":                   func(b []byte) []byte { clear(b); return b },
		"empty":                       func([]byte) []byte { return nil },
		"torn in the first line":      func(b []byte) []byte { return b[:40] },
		"the journal of another run":  func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"uid"`), []byte(`"abc"`)) },
		"a foreign file":              func([]byte) []byte { return []byte("hello\n") },
		"a checksum that was removed": func(b []byte) []byte { return bytes.Replace(b, []byte(`"crc32c"`), []byte(`"crc32d"`), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t.TempDir())
			n.stopAfter(t, "kubeadm")
			path := onlyJournal(t, n.dir)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = damage(b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			calls := n.calls()
			for range 2 {
				n.run(permit(1))
				if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonJournalCorrupt || n.last.UID != "uid" || n.last.Attempt != 1 ||
					!strings.Contains(n.last.Message, path) || !strings.Contains(n.last.Message, "refit retry") {
					t.Fatalf("status %+v", n.last)
				}
			}
			if n.calls() != calls {
				t.Fatal("a step ran")
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, b) {
				t.Fatal("the evidence was changed")
			}
			if n.engine().Busy() {
				t.Fatal("it counts as a run that goes on: nothing is collected")
			}
			n.run(undoPermission(2))
			if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonJournalCorrupt || len(n.order) != 1 {
				t.Fatalf("an undo of unknown steps: %+v %v", n.last, n.order)
			}
			other := permit(1)
			other.UID = "other"
			n.run(other)
			if n.last.State != v1alpha1.RunSucceeded {
				t.Fatalf("another run: %+v", n.last)
			}
			n.run(permit(3))
			if n.last.State != v1alpha1.RunSucceeded || n.last.Attempt != 3 {
				t.Fatalf("the attempt that a person asked for: %+v", n.last)
			}
			n.run(undoPermission(4))
			if n.last.State != v1alpha1.RunUndone {
				t.Fatalf("an undo after an attempt whose journal is whole: %+v", n.last)
			}
		})
	}
}

// stopAfter has the agent end when a step is done.
func (n *node) stopAfter(t *testing.T, step string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n.engine().Run(ctx, func() *v1alpha1.NodeRun { return permit(1) }, func(s *v1alpha1.NodeRunStatus) {
		if n.last = s; s.Step != "" && s.Step != step {
			cancel()
		}
	})
	if n.last.State != v1alpha1.RunRunning || n.last.StepsDone < 1 {
		t.Fatalf("%+v", n.last)
	}
}

// A file that cannot be read stops the run that it is of, in the status, and no other.
func TestAJournalThatCannotBeReadStopsItsRunOnly(t *testing.T) {
	n, path := ran(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // reading it fails, also for root
		t.Fatal(err)
	}
	calls := n.calls()
	n.run(permit(1))
	if n.calls() != calls || n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonJournalUnreadable || !strings.Contains(n.last.Message, path) {
		t.Fatalf("%d calls, status %+v", n.calls()-calls, n.last)
	}
	if n.engine().Busy() {
		t.Fatal("nothing is collected")
	}
	n.run(permit(2))
	if n.last.State != v1alpha1.RunSucceeded || n.last.Attempt != 2 {
		t.Fatalf("%+v", n.last)
	}
}

// The directory of the journals cannot be read: it is unknown what ran, so nothing runs,
// and the status says so.
func TestJournalsThatCannotBeListedAreInTheStatus(t *testing.T) {
	n := newNode(t.TempDir())
	if err := os.WriteFile(filepath.Join(n.dir, "journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.run(permit(1))
	if n.calls() != 0 || n.last == nil || n.last.State != v1alpha1.RunRunning || n.last.Reason != v1alpha1.ReasonJournalUnreadable || !strings.Contains(n.last.Message, n.dir) {
		t.Fatalf("%+v", n.last)
	}
	if err := os.Remove(filepath.Join(n.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	n.run(permit(1))
	if n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("it does not go on by itself: %+v", n.last)
	}
}

// diskStory runs attempt 1 on a node whose disk goes bad at a point of the run and is
// well again once the status said so.
func diskStory(t *testing.T, f *disktest.FS, passes int, spoil, repair func()) (spoiled, waited bool) {
	t.Helper()
	n := newNode(f.Path(fmt.Sprint("node", passes)))
	var mu sync.Mutex
	said := false
	e := n.engine()
	e.Now = nil
	e.Sleep = func(context.Context, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if said {
			said = false
			repair()
		}
	}
	asked := 0
	e.Run(t.Context(), func() *v1alpha1.NodeRun {
		if asked++; asked == passes {
			spoil()
			spoiled = true
		}
		return permit(1)
	}, func(s *v1alpha1.NodeRunStatus) {
		mu.Lock()
		defer mu.Unlock()
		n.last = s
		if s.State == v1alpha1.RunRunning && s.Reason == v1alpha1.ReasonJournalUnwritable && strings.Contains(s.Message, "Fix: ") {
			said, waited = true, true
		}
	})
	if spoiled {
		repair()
	}
	if n.last == nil || n.last.State != v1alpha1.RunSucceeded || fmt.Sprint(n.order) != "[kubeadm kubelet settle]" {
		t.Fatalf("pass %d: ended with %+v, order %v", passes, n.last, n.order)
	}
	es, err := os.ReadDir(filepath.Join(n.dir, "journal"))
	if err != nil || len(es) != 1 {
		t.Fatalf("left in the journal: %v %v", es, err)
	}
	calls := n.calls()
	n.run(permit(1))
	if n.calls() != calls || n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("after a restart: %+v", n.last)
	}
	return spoiled, waited
}

// diskStories spoils the disk at every moment of a run.
func diskStories(t *testing.T, f *disktest.FS, spoil, repair func()) {
	t.Helper()
	waits := 0
	for passes := 1; ; passes++ {
		spoiled, waited := diskStory(t, f, passes, spoil, repair)
		if waited {
			waits++
		}
		if !spoiled {
			break
		}
	}
	if waits == 0 { // a tmpfs has room in a page in use, for example
		t.Error("the run never waited")
	}
}

// A disk that is full at any moment of a run: the run waits with the reason in its status,
// and goes on by itself when there is room.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		diskStories(t, f, f.Fill, f.Free)
	})
}

// The same for a disk that the kernel made read-only.
func TestAReadOnlyDiskIsWaitedFor(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		diskStories(t, f, f.ReadOnly, f.Writable)
	})
}

// What an updater could not write for want of room has the word for it.
func TestAStepThatFindsNoRoomSaysSo(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		n := newNode(t.TempDir())
		e := n.engine()
		e.Updaters = []updaters.Updater{&writer{path: f.Path("target")}}
		f.Fill()
		words := map[string]bool{}
		e.Sleep = func(context.Context, time.Duration) {
			switch {
			case words[v1alpha1.ReasonInsufficientSpace] && !words[v1alpha1.ReasonFileSystemReadOnly]:
				f.Free()
				f.ReadOnly()
			case words[v1alpha1.ReasonFileSystemReadOnly]:
				f.Writable()
			}
		}
		r := permit(1)
		r.Steps = r.Steps[:1]
		e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last, words[s.Reason] = s, true })
		if n.last.State != v1alpha1.RunSucceeded || !words[v1alpha1.ReasonInsufficientSpace] || !words[v1alpha1.ReasonFileSystemReadOnly] {
			t.Fatalf("%+v, words %v", n.last, words)
		}
	})
}

// writer is an updater that writes a file.
type writer struct{ path string }

func (*writer) Name() string { return "kubeadm" }
func (w *writer) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	_, err := os.Stat(w.path)
	return updaters.Observation{Done: err == nil}, nil
}
func (w *writer) Update(context.Context, updaters.Task) (updaters.Result, error) {
	if err := os.WriteFile(w.path+"~", bytes.Repeat([]byte("x"), 100_000), 0o600); err != nil {
		return updaters.Result{}, fmt.Errorf("write: %w", err)
	}
	return updaters.Result{Done: true}, os.Rename(w.path+"~", w.path)
}
func (*writer) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, updaters.ErrNotReversible
}

// Durations come from readings of the monotonic clock: a clock that is set neither ends a
// step nor prolongs it.
func TestStepsAreMeasuredOnTheMonotonicClock(t *testing.T) {
	n := newNode(t.TempDir())
	e := n.engine()
	e.Now = nil // the real one
	p := &monotonic{}
	e.Updaters = []updaters.Updater{p}
	r := permit(1)
	r.Steps = r.Steps[:1]
	e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	if !p.seen {
		t.Error("the start of a step has no monotonic reading")
	}
	w := e.startStopwatch(newJournal("", 0), r.Steps[0], false)
	if !strings.Contains(w.started.String(), " m=") {
		t.Error("the deadline of a step has no monotonic reading")
	}
	if n.last.State != v1alpha1.RunSucceeded || n.last.StartedAt.Location() != time.UTC && n.last.StartedAt.Location() != time.Local {
		t.Errorf("%+v", n.last)
	}
}

type monotonic struct{ seen bool }

func (*monotonic) Name() string { return "kubeadm" }
func (m *monotonic) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	return updaters.Observation{Done: true}, nil
}
func (m *monotonic) Update(_ context.Context, t updaters.Task) (updaters.Result, error) {
	m.seen = strings.Contains(t.Started.String(), " m=")
	return updaters.Result{Done: true}, nil
}
func (*monotonic) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, updaters.ErrNotReversible
}

// A dead clock returns to the same time at every boot: the backups of the newest runs are
// kept for an undo, and the newest run's end is reported.
func TestTheNewestRunsAreKeptUnderAnyClock(t *testing.T) {
	n := newNode(t.TempDir())
	for i := range keepJournals + 3 {
		r := permit(1)
		r.UID = fmt.Sprint("uid", i)
		if err := os.MkdirAll(filepath.Join(n.dir, "rollback", r.UID), 0o700); err != nil {
			t.Fatal(err)
		}
		n.now = n.now.Add(-24 * time.Hour)
		n.run(r)
	}
	es, err := os.ReadDir(filepath.Join(n.dir, "rollback"))
	if err != nil || len(es) != 2 || es[0].Name() != "uid11" || es[1].Name() != "uid12" {
		t.Errorf("copies for an undo: %v %v", es, err)
	}
	n.last = nil
	n.run(nil)
	if n.last == nil || n.last.UID != "uid12" {
		t.Errorf("the last run is %+v", n.last)
	}
}

// A write that the power cut off is in the node's status, once, and the run goes on.
func TestATornEndIsNoted(t *testing.T) {
	n := newNode(t.TempDir())
	n.stopAfter(t, "kubeadm")
	path := onlyJournal(t, n.dir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string][]byte{"half a line": whole[:30], "zeros": make([]byte, 64)} {
		if err := os.WriteFile(path, append(bytes.Clone(whole), end...), 0o600); err != nil {
			t.Fatal(err)
		}
		var noted []statefile.Problem
		e := n.engine()
		e.Note = func(p statefile.Problem) { noted = append(noted, p) }
		js, err := readJournals(e.journals())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			e.trimTornJournals(js)
		}
		if len(noted) != 1 || noted[0].Reason != statefile.ReasonDamaged || noted[0].Object != path || !noted[0].Repaired || noted[0].Fix == "" {
			t.Errorf("%s: %+v", name, noted)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole) {
			t.Errorf("%s: the file is %q, %v", name, b, err)
		}
	}
	n.run(permit(1))
	if n.last.State != v1alpha1.RunSucceeded {
		t.Errorf("%+v", n.last)
	}
}

// Another process reads where the last run is, also while it runs and after damage, and changes
// nothing.
func TestLastRun(t *testing.T) {
	if run, s, err := LastRun(t.TempDir()); run != nil || s != nil || err != nil {
		t.Errorf("a node without runs: %+v %+v %v", run, s, err)
	}
	n := newNode(t.TempDir())
	n.stopAfter(t, "kubeadm")
	path := onlyJournal(t, n.dir)
	j := openJournal(t, path)
	if err := j.appendEntry(entry{Event: eventStart, At: n.now, Step: "kubelet"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run, s, err := LastRun(n.dir)
	if err != nil || run.Name != "up" || s.State != v1alpha1.RunRunning || s.Step != "kubelet" || s.StepsDone != 1 {
		t.Errorf("%+v %+v %v", run, s, err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole) {
		t.Errorf("the journal was changed: %v", err)
	}
	whole[len(whole)/2] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, s, err := LastRun(n.dir); err != nil || s.State != v1alpha1.RunFailed || s.Reason != v1alpha1.ReasonJournalCorrupt {
		t.Errorf("a damaged journal: %+v %v", s, err)
	}
	finished, _ := ran(t)
	if _, s, err := LastRun(finished.dir); err != nil || s.State != v1alpha1.RunSucceeded || s.Step != "" || s.StepsDone != 3 {
		t.Errorf("a finished run: %+v %v", s, err)
	}
}

func openJournal(t *testing.T, path string) *journal {
	t.Helper()
	seq, named, ok := parseJournalName(path)
	if !ok {
		t.Fatal(path)
	}
	return readJournal(path, seq, named)
}
