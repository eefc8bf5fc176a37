package console

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// heartbeat is the longest silence that is not on a terminal.
const heartbeat = 5 * time.Second

// NewProgress returns a printer to w.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{w: w, now: time.Now}
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		p.live, p.size = true, func() (width, height int, err error) { return term.GetSize(int(f.Fd())) }
	}
	return p
}

// Progress shows views and lines; it is not safe for concurrent use.
type Progress struct {
	w    io.Writer
	live bool
	size func() (width, height int, err error) // of the terminal
	rows int                                   // of the screen that are drawn on
	last string
	at   time.Time

	now   func() time.Time
	nodes nodesProgress
}

// ShowView shows a view.
func (p *Progress) ShowView(v explain.View) {
	if !p.live {
		p.PrintLine(v.Headline)
		return
	}
	var b bytes.Buffer
	if err := render.Status(&b, render.Table, v); err != nil {
		return
	}
	p.redraw(b.String())
}

// PrintLine shows one sentence.
func (p *Progress) PrintLine(s string) {
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

func (p *Progress) redraw(s string) {
	p.Clear()
	s, p.rows = p.fit(s)
	fmt.Fprint(p.w, s)
}

// fit truncates lines that would scroll off the screen, because they cannot be redrawn. It
// counts rows of the screen: a long line has more than one.
func (p *Progress) fit(s string) (string, int) {
	width, height, err := p.size()
	if err != nil || width < 1 || height < 3 {
		width, height = 80, 24
	}
	lines := strings.SplitAfter(strings.TrimSuffix(s, "\n")+"\n", "\n")
	lines = lines[:len(lines)-1]
	const room = 2 // for the cursor, and for the line that counts the rest
	rows := 0
	for i, line := range lines {
		n := max(1, (utf8.RuneCountInString(line)-1+width-1)/width)
		last := i == len(lines)-1
		if i > 0 && rows+n > height-room && (!last || rows+n >= height) {
			return strings.Join(lines[:i], "") + fmt.Sprintf("... %d more lines: refit status\n", len(lines)-i), rows + 1
		}
		rows += n
	}
	return strings.Join(lines, ""), rows
}

// Clear removes the last drawing.
func (p *Progress) Clear() {
	if p.rows > 0 {
		text.WriteControl(p.w, fmt.Sprintf("\x1b[%dA\x1b[J", p.rows))
	}
	p.rows = 0
}
