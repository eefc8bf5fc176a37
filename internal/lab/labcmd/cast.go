package labcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Size of the terminal that a recording is played in.
const castWidth, castHeight = 160, 45

// cast records what is printed, with its times, in a file of asciinema:
// https://docs.asciinema.org/manual/asciicast/v2/
type cast struct {
	screen io.Writer
	now    func() time.Time
	start  time.Time
	// own replaces directories of this computer: another reader has others.
	own *strings.Replacer

	mu   sync.Mutex
	file io.WriteCloser
	err  error
}

// castHeader is the first line of the file.
type castHeader struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title"`
}

// newCast writes the header of a recording. programs is the directory of refit's programs.
func newCast(file io.WriteCloser, screen io.Writer, title, programs, home string, now func() time.Time) *cast {
	c := &cast{screen: screen, now: now, start: now(), own: strings.NewReplacer(programs+"/", "bin/", home+"/", "~/", "\n", "\r\n"), file: file}
	c.writeLine(castHeader{2, castWidth, castHeight, c.start.Unix(), title})
	return c
}

// recordTo is a recording in a file; without a name nothing is recorded.
func recordTo(name string, screen io.Writer, title string) (io.Writer, func() error, error) {
	if name == "" {
		return screen, func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	home, err := os.UserHomeDir()
	self, err2 := os.Executable()
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	c := newCast(f, screen, title, filepath.Dir(self), home, time.Now)
	return c, c.close, nil
}

// Write shows p, and records it. A recording that fails does not end what is recorded: close reports it.
func (c *cast) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seconds := json.Number(fmt.Sprintf("%.3f", c.now().Sub(c.start).Seconds()))
	c.writeLine([]any{seconds, "o", c.own.Replace(string(p))})
	return c.screen.Write(p)
}

func (c *cast) writeLine(v any) {
	if c.err != nil {
		return
	}
	e := json.NewEncoder(c.file)
	e.SetEscapeHTML(false)
	c.err = e.Encode(v)
}

func (c *cast) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.err, c.file.Close()); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	return nil
}
