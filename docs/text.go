package docs

import (
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Text renders a page for a terminal of some width: paragraphs are filled, code is indented, and
// a table that is too wide becomes one paragraph for each row.
func Text(p *Page, width int) string {
	w := writer{width: width, dir: path.Dir(p.Topic)}
	for line := range strings.Lines(p.Text) {
		w.line(strings.TrimRight(line, "\n"))
	}
	w.flush()
	return w.out.String()
}

// writer collects the lines of a paragraph, a list item or a table until they end.
type writer struct {
	out   strings.Builder
	width int
	// dir is the section of the page: links start there.
	dir string
	// prose is the paragraph or item that is read; indent is for all its lines but the first.
	prose, indent string
	table         [][]string
	code          bool
}

var item = regexp.MustCompile(`^( *)([-*]|\d+\.) `)

func (w *writer) line(line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(trimmed, "```"):
		w.flush()
		w.code = !w.code
	case w.code:
		w.out.WriteString(strings.TrimRight("    "+line, " ") + "\n")
	case strings.HasPrefix(trimmed, "<!--") && strings.HasSuffix(trimmed, "-->"): // for tests and for the web pages
	case strings.HasPrefix(trimmed, "|"):
		w.flushProse()
		w.row(w.topics(trimmed))
	case trimmed == "":
		w.flush()
		w.out.WriteString("\n")
	case strings.HasPrefix(line, "#"):
		w.flush()
		w.heading(line)
	default:
		w.text(line)
	}
}

// topics names the topic behind the text of each link to a page.
func (w *writer) topics(line string) string {
	return links.ReplaceAllStringFunc(line, func(l string) string {
		m := links.FindStringSubmatch(l)
		topic, isPage := strings.CutSuffix(m[2], ".md")
		if !isPage || strings.Contains(topic, ":") || strings.HasPrefix(path.Join(w.dir, topic), "..") {
			return m[1]
		}
		return m[1] + " (refit docs " + path.Join(w.dir, topic) + ")"
	})
}

func (w *writer) heading(line string) {
	title := plain(strings.TrimLeft(line, "# "))
	w.out.WriteString(title + "\n")
	if under := strings.Index(line, " "); under == 1 {
		w.out.WriteString(strings.Repeat("=", utf8.RuneCountInString(title)) + "\n")
	} else if under == 2 {
		w.out.WriteString(strings.Repeat("-", utf8.RuneCountInString(title)) + "\n")
	}
}

// text adds a line to the paragraph; an item of a list begins another one.
func (w *writer) text(line string) {
	w.flushTable()
	if m := item.FindString(line); m != "" {
		w.flushProse()
		w.prose, w.indent = line, strings.Repeat(" ", len(m))
		return
	}
	if w.prose == "" {
		w.prose, w.indent = strings.TrimSpace(line), ""
		return
	}
	w.prose += " " + strings.TrimSpace(line)
}

func (w *writer) flush() {
	w.flushProse()
	w.flushTable()
}

func (w *writer) flushProse() {
	if w.prose != "" {
		w.fill(plain(w.topics(w.prose)), w.indent) // a link may go over two lines
	}
	w.prose = ""
}

// fill writes a text as lines; all but the first are indented.
func (w *writer) fill(text, indent string) {
	line := text[:len(text)-len(strings.TrimLeft(text, " "))]
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > w.width {
			w.out.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	w.out.WriteString(line + "\n")
}

// row adds a row of a table; that under the headings only draws a line.
func (w *writer) row(line string) {
	cells := splitRow(line)
	if strings.Trim(strings.Join(cells, ""), "-: ") == "" && len(w.table) > 0 {
		return
	}
	w.table = append(w.table, cells)
}

// splitRow returns the cells between the bars that are not escaped.
func splitRow(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.Trim(line, " "), `\|`, bar)
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i, c := range cells {
		cells[i] = plain(strings.TrimSpace(strings.ReplaceAll(c, bar, "|")))
	}
	return cells
}

func (w *writer) flushTable() {
	if len(w.table) == 0 {
		return
	}
	if widths, fits := w.columns(); fits {
		for i, row := range w.table {
			w.out.WriteString(aligned(row, widths) + "\n")
			if i == 0 {
				w.out.WriteString(strings.Repeat("-", utf8.RuneCountInString(aligned(row, widths))) + "\n")
			}
		}
	} else {
		w.records()
	}
	w.table = nil
}

// columns returns the width of each column, and whether all of them fit side by side.
func (w *writer) columns() (widths []int, fits bool) {
	total := 0
	for _, row := range w.table {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, n := range widths {
		total += n + 2
	}
	return widths, total-2 <= w.width
}

func aligned(row []string, widths []int) string {
	var b strings.Builder
	for i, c := range row {
		b.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return strings.TrimRight(b.String(), " ")
}

// records writes each row of a table as a paragraph: its cells with the headings of their columns,
// all but the first indented.
func (w *writer) records() {
	head := w.table[0]
	for i, row := range w.table[1:] {
		if i > 0 {
			w.out.WriteString("\n")
		}
		for n, c := range row {
			if c == "" {
				continue
			}
			if n < len(head) && head[n] != "" {
				c = head[n] + ": " + c
			}
			indent := strings.Repeat("  ", min(n, 1))
			w.fill(indent+c, indent+"  ")
		}
	}
}
