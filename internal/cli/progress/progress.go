// Package progress shows on standard error what a command waits for: redrawn
// on a terminal, else a line at every change and at least every five seconds.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"golang.org/x/term"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
)

// heartbeat is the longest silence that is not on a terminal.
const heartbeat = 5 * time.Second

// New is a printer to w.
func New(w io.Writer) *Printer { return &Printer{w: w, live: isTerminal(w)} }

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Printer shows views and lines; it is not safe for concurrent use.
type Printer struct {
	w     io.Writer
	live  bool
	lines int
	last  string
	at    time.Time
}

// View shows a view.
func (p *Printer) View(v explain.View) {
	if !p.live {
		p.Line(v.Headline)
		return
	}
	var b bytes.Buffer
	if err := render.Status(&b, render.Table, v); err != nil {
		return
	}
	p.redraw(b.String())
}

// Line shows one sentence.
func (p *Printer) Line(s string) {
	if s == p.last && time.Since(p.at) < heartbeat {
		return
	}
	p.last, p.at = s, time.Now()
	if p.live {
		p.redraw(s + "\n")
		return
	}
	fmt.Fprintf(p.w, "%s %s\n", p.at.UTC().Format("15:04:05Z"), s)
}

func (p *Printer) redraw(s string) {
	p.End()
	fmt.Fprint(p.w, s)
	p.lines = bytes.Count([]byte(s), []byte("\n"))
}

// End takes the last drawing away.
func (p *Printer) End() {
	if p.lines > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.lines)
	}
	p.lines = 0
}
