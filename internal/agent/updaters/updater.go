package updaters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Updater changes one part of this node.
type Updater interface {
	// Name as steps say it.
	Name() string
	// Observe says whether the node is as the step wants it. An error means
	// that it could not be seen.
	Observe(ctx context.Context, t Task) (Observation, error)
	// Update drives the node on and returns soon; it is called again until the
	// Result is final. An error means: try again.
	Update(ctx context.Context, t Task) (Result, error)
	// Undo takes the step back: it drives the node to where it was before the
	// step and returns soon, and is called again until the Result is final. Done
	// means that it was observed so: the old part is there, runs, and is well.
	// Also a step that was cut off in the middle, or had not begun to change
	// anything, is taken back. ErrNotReversible if it cannot be: the plan has
	// said so (model.Step.NotReversible).
	Undo(ctx context.Context, t Task) (Result, error)
}

// Watcher is an updater that may only look and wait: where Watches is true its
// steps change nothing, and there is nothing to take back.
type Watcher interface{ Watches() bool }

// Witness is an Updater that knows what the part it changes said last: the end of
// a log, without secrets. It is asked once, when a step has missed its deadline.
type Witness interface {
	LastWords(ctx context.Context) string
}

// ErrNotReversible says that a step cannot be taken back.
var ErrNotReversible = errors.New("this step cannot be taken back")

// ErrNoPayload says that the run's bundle has no such file for this node, or
// that the node does not hold it. A run with it fails: waiting does not help.
var ErrNoPayload = errors.New("the payload is not on this node")

// Payload is a file of the bundle.
type Payload struct {
	// Path to read it; Digest is compared while it is read.
	Path, Digest string
}

// Task is one step of one run on this node.
type Task struct {
	// UID of the ClusterUpdate and the attempt; for Undo, the attempt in which the
	// step was started last.
	UID     string
	Attempt int32
	Step    v1alpha1.UpdateStep
	// Started is when this life of the agent began, or went on, with the step.
	Started time.Time
	// Dir is the run's own directory; Rollback keeps what was replaced.
	Dir, Rollback string
	// Payload finds a file of the run's bundle.
	Payload func(name string) (Payload, error)
}

// Observation is what was seen.
type Observation struct {
	// Done: the node is as the step wants it.
	Done bool
	// Detail says what is not so yet.
	Detail string
}

// Result of one call of Update.
type Result struct {
	// Done and Failed are final; neither means that it is still going on.
	Done, Failed bool
	// Reason word of the catalogue, for what fails or waits.
	Reason string
	// Message for people, without secrets.
	Message string
	// After is when to call again; 0 leaves it to the caller.
	After time.Duration
}

// Going is a Result that goes on.
func Going(reason, format string, args ...any) Result {
	return Result{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Fail is a final Result.
func Fail(reason, format string, args ...any) Result {
	return Result{Failed: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Swap puts a payload in the place of a program, once, keeping the old one in
// the run's rollback directory. swapped is false if it was in place already.
func Swap(t Task, name, path string) (swapped bool, err error) {
	p, err := t.Payload(name)
	if err != nil {
		return false, err
	}
	have, err := fsutil.Digest(path)
	if err == nil && have == p.Digest {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := Keep(t, name, path); err != nil {
		return false, err
	}
	f, err := os.Open(p.Path)
	if err != nil {
		return false, fmt.Errorf("payload %s: %w", name, err)
	}
	defer f.Close()
	return true, fsutil.Replace(path, f, p.Digest, 0o755)
}

// absent marks a file that was not there before.
const absent = ".absent"

// ReadCount reads the number of tries that a file holds, 0 if there is none.
func ReadCount(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	var n int
	if _, err := fmt.Sscan(string(b), &n); err != nil {
		return 0
	}
	return n
}

// Keep copies a file away before it is changed, or remembers that it was not
// there; name is what Restore knows it by. What an earlier try kept is the older
// one and stays.
func Keep(t Task, name, path string) error {
	to := filepath.Join(t.Rollback, name)
	for _, kept := range []string{to, to + absent} {
		if _, err := os.Stat(kept); err == nil {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("copy of the old %s: %w", path, err)
	}
	digest, err := fsutil.Digest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fsutil.WriteFile(to+absent, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("copy of the old %s: %w", path, err)
	}
	return copyFile(path, to, digest)
}

// copyFile copies content and mode.
func copyFile(from, to, digest string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy of %s: %w", from, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("copy of %s: %w", from, err)
	}
	return fsutil.Replace(to, f, digest, st.Mode().Perm())
}

// Restore puts the kept file back, once; one that was not there before is
// removed. ok is false if nothing was kept: then it was never replaced.
func Restore(t Task, name, path string) (ok bool, err error) {
	kept := filepath.Join(t.Rollback, name)
	digest, err := fsutil.Digest(kept)
	if errors.Is(err, fs.ErrNotExist) {
		return remove(kept+absent, path)
	}
	if err != nil {
		return false, err
	}
	if have, err := fsutil.Digest(path); err == nil && have == digest {
		return true, nil
	}
	return true, copyFile(kept, path, digest)
}

// remove a file that was not there before, if the mark says so.
func remove(mark, path string) (ok bool, err error) {
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, fsutil.SyncDir(filepath.Dir(path))
}
