package console

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// screen is a terminal as far as it is used here: lines that wrap and scroll, going up,
// and clearing to the end.
type screen struct {
	width, height int
	rows          []string // what scrolled away is in front
	at            int
}

func (s *screen) Write(b []byte) (int, error) {
	text := string(b)
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			var up int
			if _, err := fmt.Sscanf(rest, "%dA", &up); err == nil {
				s.at = max(s.at-up, len(s.rows)-s.height, 0)
				text = rest[strings.Index(rest, "A")+1:]
				continue
			}
			if rest, ok := strings.CutPrefix(rest, "J"); ok {
				s.rows, text = s.rows[:s.at], rest
				continue
			}
			return 0, errors.New("unknown sequence " + rest)
		}
		line, rest, ended := strings.Cut(text, "\n")
		if !ended {
			return 0, errors.New("a line without an end")
		}
		for first := true; first || line != ""; first = false {
			n := min(len(line), s.width)
			s.rows, line = append(s.rows[:s.at], line[:n]), line[n:]
			s.at++
		}
		text = rest
	}
	return len(b), nil
}

// For any sequence of views and any size of terminal, the screen shows only the last view,
// from its first line. Clear leaves nothing.
func TestOnlyTheLastDrawingIsSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &screen{width: rapid.IntRange(40, 120).Draw(t, "width"), height: rapid.IntRange(6, 40).Draw(t, "height")}
		p := &Progress{w: s, live: true, size: func() (int, int, error) { return s.width, s.height, nil }}
		for n := range rapid.IntRange(1, 6).Draw(t, "drawings") {
			var b strings.Builder
			head := fmt.Sprint("drawing ", n)
			fmt.Fprintln(&b, head)
			for range rapid.IntRange(0, 60).Draw(t, "lines") {
				fmt.Fprintln(&b, strings.Repeat("x", rapid.IntRange(0, 200).Draw(t, "columns")))
			}
			p.redraw(b.String())
			if len(s.rows) >= s.height || s.rows[0] != head {
				t.Fatalf("%d rows of %d; the first is %q, not %q", len(s.rows), s.height, s.rows[0], head)
			}
		}
		if p.Clear(); len(s.rows) != 0 {
			t.Fatalf("left over: %q", s.rows)
		}
	})
}

func TestAWholeDrawingIsNotCut(t *testing.T) {
	t.Parallel()
	p := &Progress{size: func() (int, int, error) { return 80, 24, nil }}
	for _, lines := range []int{1, 22, 23} {
		whole := strings.Repeat("a line\n", lines)
		if got, rows := p.fit(whole); got != whole || rows != lines {
			t.Errorf("%d lines are %d rows:\n%s", lines, rows, got)
		}
	}
	if got, rows := p.fit(strings.Repeat("a line\n", 40)); rows != 23 || !strings.HasSuffix(got, "... 18 more lines: refit status\n") {
		t.Errorf("%d rows:\n%s", rows, got)
	}
}

// Without a terminal, a line is reported once, with its time.
func TestWithoutATerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := NewProgress(&b)
	p.PrintLine("waits")
	p.PrintLine("waits")
	p.PrintLine("goes on")
	p.Clear()
	if got := b.String(); strings.Count(got, "Z waits\n") != 1 || strings.Count(got, "Z goes on\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
