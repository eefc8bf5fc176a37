package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/explain"
)

func node(name string, done, total int64) explain.Node {
	return explain.Node{Name: name, BytesDone: done, BytesTotal: total, ImagesTotal: 24, ImagesPinned: int(done / 100)}
}

// Without a terminal: the wait once, and the sum when it has changed,
// every ten seconds at most.
func TestPrepareWithoutATerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := NewProgress(&b)
	now := time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	for i := range int64(60) {
		p.ShowPreparation("Preparing: the nodes load images", []explain.Node{node("n1", min(1000, i*50), 1000), node("n2", min(1000, i*100), 1000)})
		now = now.Add(time.Second)
	}
	want := "16:00:00Z Preparing: the nodes load images\n" +
		"16:00:00Z 0%  0 B of 2.0 KiB on 2 nodes, 0 complete\n" +
		"16:00:10Z 75%  1.5 KiB of 2.0 KiB on 2 nodes, 1 complete\n" +
		"16:00:20Z 100%  2.0 KiB of 2.0 KiB on 2 nodes, 2 complete\n"
	if got := b.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// At a terminal every node that still fetches has a line, the furthest behind first.
func TestPrepareAtATerminal(t *testing.T) {
	t.Parallel()
	s := &screen{width: 100, height: 24}
	p := &Progress{w: s, live: true, size: func() (int, int, error) { return s.width, s.height, nil }}
	p.ShowPreparation("Preparing", []explain.Node{node("n1", 500, 1000), node("node-2", 250, 1000), node("n3", 1000, 1000)})
	p.ShowPreparation("Preparing", []explain.Node{node("n1", 750, 1000), node("node-2", 500, 1000), node("n3", 1000, 1000)})
	want := "Preparing\n75%  2.2 KiB of 2.9 KiB on 3 nodes, 1 complete\n" +
		"  node-2  [##########..........]   50%  500 B of 1000 B  5 of 24 images pinned\n" +
		"  n1      [###############.....]   75%  750 B of 1000 B  7 of 24 images pinned"
	if got := strings.TrimRight(strings.Join(s.rows, "\n"), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A restarted agent may report less than before, and the wanted total may grow. The shown
// progress of a node, and of all nodes, never decreases.
func TestProgressNeverGoesBackwards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var p nodesProgress
		last := map[string]int64{}
		lastDone, lastTotal := map[string]int64{}, map[string]int64{}
		for range rapid.IntRange(1, 20).Draw(rt, "looks") {
			var nodes []explain.Node
			for i := range 3 {
				total := rapid.Int64Range(0, 1<<40).Draw(rt, "total")
				nodes = append(nodes, node(fmt.Sprint("n", i), rapid.Int64Range(0, total).Draw(rt, "done"), total))
			}
			if rapid.IntRange(0, 5).Draw(rt, "unreadable") == 0 {
				nodes = nil
			}
			for _, n := range p.mergeReports(nodes) {
				if percentDone(n) < last[n.Name] && n.BytesTotal == lastTotal[n.Name] || n.BytesTotal < lastTotal[n.Name] || n.BytesDone < lastDone[n.Name] || n.BytesDone > n.BytesTotal {
					rt.Fatalf("%s: %d%% after %d%%, %d bytes after %d, of %d", n.Name, percentDone(n), last[n.Name], n.BytesDone, lastDone[n.Name], n.BytesTotal)
				}
				last[n.Name], lastDone[n.Name], lastTotal[n.Name] = percentDone(n), n.BytesDone, n.BytesTotal
			}
		}
	})
}
