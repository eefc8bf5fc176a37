package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
)

// CommandResult is how a command ended.
type CommandResult struct {
	// Exit is its exit status; 128 and the signal if it was killed.
	Exit int `json:"exit"`
	// Error is why it could not even be started.
	Error string `json:"error,omitempty"`
	// At is when it ended.
	At time.Time `json:"at"`
}

// RecordCommand runs a command to its end. It writes the output to the log file and to its own
// output, and the result to the result file. The context does not end the command: it means that
// the machine or the unit shuts down, and a command that a signal ends then gets no result. On a
// full disk, output is lost and the result waits for space.
func RecordCommand(ctx context.Context, log, result string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("no command was given")
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		return fmt.Errorf("log of the command: %w", err)
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of the command: %w", err)
	}
	defer f.Close()
	c := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	c.Stdout = io.MultiWriter(lossy{f}, os.Stdout)
	c.Stderr = c.Stdout
	r, err := resultOf(ctx, c.Run())
	if err != nil {
		return err
	}
	_ = f.Sync() // the result counts, the log is for people
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("result of the command: %w", err)
	}
	return write(ctx, result, b)
}

// resultOf a command that ended with an error or nil; it has none if a shutdown cut it off.
func resultOf(ctx context.Context, err error) (CommandResult, error) {
	r := CommandResult{At: time.Now().UTC()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() < 0 && ctx.Err() != nil:
		return r, fmt.Errorf("the command was cut off by a shutdown: %w", err)
	case errors.As(err, &exit):
		if r.Exit = exit.ExitCode(); r.Exit < 0 {
			r.Exit, r.Error = 137, exit.Error()
		}
	case err != nil:
		r.Exit, r.Error = 127, err.Error()
	}
	return r, nil
}

// write waits for room.
func write(ctx context.Context, result string, text []byte) error {
	for {
		err := fsutil.WriteFile(result, text, 0o600)
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "the command has ended, and its result cannot be written yet:", err)
		select {
		case <-ctx.Done():
		case <-time.After(writeAgain):
		}
	}
}

// writeAgain is how often a result is tried that cannot be written: without it the command
// would be run once more.
const writeAgain = time.Second

// lossy drops what a full disk does not take: an error would close the pipe, and the
// command would be killed by its next line of output.
type lossy struct{ w io.Writer }

func (l lossy) Write(p []byte) (int, error) {
	_, _ = l.w.Write(p)
	return len(p), nil
}

// ReadCommandResult is the result of a command, nil if it has not ended.
func ReadCommandResult(path string) (*CommandResult, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("result of the command: %w", err)
	}
	r := &CommandResult{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("result of the command %s: %w", path, err)
	}
	return r, nil
}

// colour is a terminal's escape sequence: no words for a condition.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// tailBytes is how much of a log's end is read.
const tailBytes = 16 << 10

// TailLog is the last lines of a log that say something, "" if there is none.
func TailLog(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	off := max(0, st.Size()-tailBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, off, st.Size()-off))
	if err != nil {
		return ""
	}
	var all []string
	for _, l := range strings.Split(colour.ReplaceAllString(string(b), ""), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			all = append(all, l)
		}
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
