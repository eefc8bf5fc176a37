package updaters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Updater changes one part of this node.
type Updater interface {
	// Name of the updater in steps.
	Name() string
	// Observe reports whether the node is as the step requires. An error means that
	// the state is unknown.
	Observe(ctx context.Context, t Task) (Observation, error)
	// Update drives the node on and returns soon. The engine calls it until the Result
	// is final. An error means: try again.
	Update(ctx context.Context, t Task) (Result, error)
	// Undo drives the node to its state before the step and returns soon. The engine
	// calls it until the Result is final. Done means that Undo observed it: the old part
	// is there, runs, and is healthy. Undo also works for a step that was interrupted or
	// has not changed anything yet. A step that cannot be undone returns
	// ErrNotReversible; the plan has announced that (model.Step.NotReversible).
	Undo(ctx context.Context, t Task) (Result, error)
}

// Waiter is an updater that may only observe and wait: if OnlyWaits is true, its steps change
// nothing, and there is nothing to undo.
type Waiter interface{ OnlyWaits() bool }

// Restarter is an updater whose steps restart the machine, so that files are read at boot.
type Restarter interface{ RestartsMachine() bool }

// SelfReverter is an updater whose steps return the node by themselves if it is not well after
// them. The deadline of the run does not count meanwhile.
type SelfReverter interface{ RevertsItself() bool }

// LogSource is an Updater that can read the log of the part it changes. LogTail is the end
// of that log, without secrets. The engine reads it once, when a step missed its deadline.
type LogSource interface {
	LogTail(ctx context.Context) string
}

// ErrNotReversible says that a step cannot be undone.
var ErrNotReversible = errors.New("this step cannot be undone")

// ErrNoPayload says that the run's bundle has no such file for this node, or that the file
// is not on the node. The run then fails: waiting does not help.
var ErrNoPayload = errors.New("the payload is not on this node")

// Payload is a file of the bundle.
type Payload struct {
	// Path of the file; Digest is verified while it is read.
	Path, Digest string
}

// Task is one step of one run on this node.
type Task struct {
	// UID of the ClusterUpdate and the attempt; for Undo, the attempt in which the
	// step was started last.
	UID     string
	Attempt int32
	Step    v1alpha1.UpdateStep
	// Started is when this process of the agent started, or resumed, the step.
	Started time.Time
	// Dir is the run's own directory; Rollback has backups of what was replaced.
	Dir, Rollback string
	// Payload finds a file of the run's bundle.
	Payload func(name string) (Payload, error)
}

// Observation is the observed state of a step.
type Observation struct {
	// Done: the node is as the step requires.
	Done bool
	// Detail says what is missing.
	Detail string
}

// Result of one call of Update.
type Result struct {
	// Done and Failed are final; with neither, the step is still in progress.
	Done, Failed bool
	// Reason word of the catalogue, for a failure or a wait.
	Reason string
	// Message for people, without secrets.
	Message string
	// After is the time until the next call; 0 leaves it to the caller.
	After time.Duration
}

// InProgress is a Result that is not final.
func InProgress(reason, format string, args ...any) Result {
	return Result{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Fail is a final Result.
func Fail(reason, format string, args ...any) Result {
	return Result{Failed: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Swap replaces a program by a payload, once, with a backup of the old program in the run's
// rollback directory. swapped is false if the payload was in place already.
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
	if err := BackUp(t, name, path); err != nil {
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

// ReadTries reads the number of tries from a file, 0 if there is no such file.
func ReadTries(path string) int {
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

// BackUp copies a file before it changes, or records that it does not exist. Restore finds
// the backup by its name. A backup of an earlier try is the older one and stays.
func BackUp(t Task, name, path string) error {
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

// Restore restores the backup, once; it removes a file that did not exist before. ok is
// false if there is no backup: then the file was never replaced.
func Restore(t Task, name, path string) (ok bool, err error) {
	kept := filepath.Join(t.Rollback, name)
	digest, err := fsutil.Digest(kept)
	if errors.Is(err, fs.ErrNotExist) {
		return removeAdded(kept+absent, path)
	}
	if err != nil {
		return false, err
	}
	if have, err := fsutil.Digest(path); err == nil && have == digest {
		return true, nil
	}
	return true, copyFile(kept, path, digest)
}

// removeAdded removes a file that did not exist before, if the mark says so.
func removeAdded(mark, path string) (ok bool, err error) {
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

// UpdateRecord writes the JSON file at path if do changes what load reads from it.
func UpdateRecord[T any](path string, load func() (T, error), do func(*T)) error {
	have, err := load()
	if err != nil {
		return err
	}
	now, err := load()
	if err != nil {
		return err
	}
	if do(&now); reflect.DeepEqual(now, have) {
		return nil
	}
	return fsutil.WriteJSON(path, now)
}
