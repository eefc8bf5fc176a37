package bundlecmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

// How often progress is shown: on a terminal, and as lines elsewhere.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 30
	eraseLine = "\r\x1b[K"
)

// progress shows the progress of a long copy: a bar on a terminal, else a line from
// time to time. It is safe for several goroutines.
type progress struct {
	w     io.Writer
	verb  string
	bar   bool
	start time.Time

	mu   sync.Mutex
	done int64
	next time.Time
	used bool
}

func newProgress(w io.Writer, verb string) *progress {
	f, ok := w.(interface{ Fd() uintptr })
	now := time.Now()
	p := &progress{w: w, verb: verb, bar: ok && term.IsTerminal(int(f.Fd())), start: now, next: now}
	if !p.bar {
		p.next = now.Add(lineEvery)
	}
	return p
}

// set takes the bytes copied so far, and ignores calls out of order.
func (p *progress) set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if done < p.done || now.Before(p.next) {
		return
	}
	p.done, p.used = done, true
	if p.bar {
		p.next = now.Add(barEvery)
		text.WriteControl(p.w, eraseLine)
		fmt.Fprint(p.w, p.line(now, done, total))
		return
	}
	p.next = now.Add(lineEvery)
	fmt.Fprintln(p.w, p.line(now, done, total))
}

func (p *progress) line(now time.Time, done, total int64) string {
	share := 1.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	var b strings.Builder
	b.WriteString(p.verb + " ")
	if p.bar {
		full := int(share * barWidth)
		fmt.Fprintf(&b, "[%s%s] ", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full))
	}
	fmt.Fprintf(&b, "%3.0f%%  %s of %s", share*100, explain.Bytes(done), explain.Bytes(total))
	if spent := now.Sub(p.start); spent > time.Second && done > 0 {
		rate := float64(done) / spent.Seconds()
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		fmt.Fprintf(&b, "  %s/s, %s left", explain.Bytes(int64(rate)), left.Round(time.Second))
	}
	return b.String()
}

// finish ends the display.
func (p *progress) finish(ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.bar || !p.used {
		return
	}
	if ok {
		text.WriteControl(p.w, eraseLine)
		return
	}
	fmt.Fprintln(p.w)
}
