package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// demoCast is a recording of the demo: bin/refit-lab demo --cast FILE.
const demoCast = "docs/tutorial/demo.cast"

// ownTime is the time that the demo prints itself; later lines of an output are indented by as much.
var ownTime = regexp.MustCompile(`^( *\d+\.\d  | {9})`)

// TestDemoPage: docs/tutorial/demo.md is the recording of the demo as text, line by line.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	title, at, lines := readCast(t, readFile(t, filepath.Join(root, demoCast)))
	var b strings.Builder
	fmt.Fprintf(&b, "# The demo, as it ran\n\n%s, recorded on %s by `refit-lab demo --cast FILE`. Minutes and seconds are from the start; the lab had built Kubernetes\nbefore. "+
		"[The recording](demo.cast) has the same lines for `asciinema play`. [First steps](first-steps.md) do it by hand.\n\n```text\n", title, at.Format(time.DateOnly))
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	b.WriteString("```\n")
	comparePage(t, "docs/tutorial/demo.md", b.String())
	if len(lines) < 30 {
		t.Errorf("the recording has only %d lines", len(lines))
	}
	for _, want := range []string{"$ refit install --from", "$ refit approve sha256:", "$ refit plan --to", "$ refit apply", "v1.36.3"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the recording does not show %q", want)
		}
	}
}

// readCast reads a recording of asciinema, version 2: a header, then one event in each line.
func readCast(t *testing.T, data []byte) (title string, at time.Time, lines []string) {
	t.Helper()
	events := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	var head struct {
		Version   int    `json:"version"`
		Timestamp int64  `json:"timestamp"`
		Title     string `json:"title"`
	}
	if err := json.Unmarshal(events[0], &head); err != nil || head.Version != 2 {
		t.Fatalf("the header of the recording: %v, version %d", err, head.Version)
	}
	last, rest := 0.0, ""
	for _, raw := range events[1:] {
		var event [3]any
		if err := json.Unmarshal(raw, &event); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		seconds, isTime := event[0].(float64)
		text, isText := event[2].(string)
		if !isTime || !isText || event[1] != "o" || seconds < last {
			t.Fatalf("no event of a recording: %s", raw)
		}
		last = seconds
		rest += strings.ReplaceAll(text, "\r\n", "\n")
		for {
			line, after, whole := strings.Cut(rest, "\n")
			if !whole {
				break
			}
			rest = after
			lines = append(lines, demoLine(int(seconds), line))
		}
	}
	return head.Title, time.Unix(head.Timestamp, 0).UTC(), lines
}

// demoLine is a line with its time. Lines of an output are indented below their command.
func demoLine(seconds int, line string) string {
	own := ownTime.FindString(line)
	line = strings.TrimPrefix(line, own)
	if strings.TrimSpace(own) == "" {
		line = "  " + line
	}
	return strings.TrimRight(fmt.Sprintf("%d:%02d  %s", seconds/60, seconds%60, line), " ")
}

func TestReadCast(t *testing.T) {
	t.Parallel()
	title, at, lines := readCast(t, []byte(`{"version":2,"width":160,"height":45,"timestamp":1795852800,"title":"a title"}
[0.5,"o","    0.5  $ refit plan"]
[61.25,"o"," --to x\r\n         two\r\n         lines\r\n"]
[130,"o","  129.9  done\r\nnot whole"]
`))
	if title != "a title" || at.Format(time.RFC3339) != "2026-11-28T08:00:00Z" {
		t.Errorf("%s at %s", title, at)
	}
	want := "1:01  $ refit plan --to x|1:01    two|1:01    lines|2:10  done"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
