package text

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// unclean matches characters that a terminal interprets or hides. Private use and
// unassigned ones, which a terminal shows as boxes, stay.
var unclean = []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Cs,
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point}

func isClean(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r < 0x7f || r == '\n' || r == '\t'
	}
	return !unicode.In(r, unclean...)
}

// escapeRune returns the character as JSON writes it.
func escapeRune(b *strings.Builder, r rune) {
	if r > 0xffff {
		hi, lo := utf16.EncodeRune(r)
		fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// CleanWriter returns a writer of clean text to w. If w is one already, it returns w.
func CleanWriter(w io.Writer) io.Writer {
	if _, ok := w.(*cleanWriter); ok {
		return w
	}
	return &cleanWriter{w: w}
}

type cleanWriter struct {
	mu sync.Mutex
	w  io.Writer
	// rest is the start of a character whose end was not written yet.
	rest []byte
}

// Write writes p with everything unclean escaped. It reports len(p) unless the
// writer below fails.
func (c *cleanWriter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := append(c.rest, p...)
	var b strings.Builder
	b.Grow(len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		r, n := utf8.DecodeRune(in)
		switch {
		case r == utf8.RuneError && n == 1:
			escapeRune(&b, utf8.RuneError)
		case isClean(r):
			b.Write(in[:n])
		default:
			escapeRune(&b, r)
		}
		in = in[n:]
	}
	c.rest = append([]byte(nil), in...)
	if b.Len() == 0 {
		return len(p), nil
	}
	if _, err := io.WriteString(c.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Fd returns the descriptor of the writer below, or an invalid one if it has none.
func (c *cleanWriter) Fd() uintptr {
	if f, ok := c.w.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// RawWriter returns the writer below a clean one, for output of other programs, such as a
// program on a lab's node.
func RawWriter(w io.Writer) io.Writer {
	if c, ok := w.(*cleanWriter); ok {
		return c.w
	}
	return w
}

// WriteControl writes a control sequence of refit's own, a constant.
func WriteControl(w io.Writer, sequence string) {
	_, _ = io.WriteString(RawWriter(w), sequence) // the next text reports a closed terminal
}

// CleanLine returns text for one line or cell: clean, with spaces for line feeds and tabs.
func CleanLine(s string) string {
	clean := true
	for _, r := range s {
		if r == '\n' || r == '\t' || r == utf8.RuneError || !isClean(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n', r == '\t':
			b.WriteByte(' ')
		case isClean(r):
			b.WriteRune(r)
		default:
			escapeRune(&b, r)
		}
	}
	return b.String()
}
