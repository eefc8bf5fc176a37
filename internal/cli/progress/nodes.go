package progress

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render/clean"
)

// linesEvery is how often progress of nodes is written where there is no terminal.
const linesEvery = 10 * time.Second

// most nodes are listed; the others are in the sum.
const mostNodes = 20

// nodesProgress shows how much of what they need the nodes hold. What was shown never
// shrinks, also when an agent that started anew counts again from the beginning. A
// share is less than before only if more is wanted than before.
type nodesProgress struct {
	best map[string]explain.Node
	// saidWait and saidBytes were written last, at a time, without a terminal.
	saidWait, saidBytes string
	at                  time.Time
}

// keep merges what nodes report with the most that they reported before.
func (p *nodesProgress) keep(nodes []explain.Node) []explain.Node {
	if p.best == nil {
		p.best = map[string]explain.Node{}
	}
	if len(nodes) == 0 { // they could not be read now
		nodes = slices.Collect(maps.Values(p.best))
	}
	out := make([]explain.Node, 0, len(nodes))
	for _, n := range nodes {
		if b, ok := p.best[n.Name]; ok && b.BytesTotal > 0 {
			n.BytesTotal = max(n.BytesTotal, b.BytesTotal)
			n.BytesDone = max(n.BytesDone, b.BytesDone)
			n.ImagesTotal, n.ImagesPinned = max(n.ImagesTotal, b.ImagesTotal), max(n.ImagesPinned, b.ImagesPinned)
		}
		p.best[n.Name] = n
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b explain.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func percent(n explain.Node) int64 {
	if n.BytesTotal <= 0 {
		return 0
	}
	return min(100, int64(float64(n.BytesDone)/float64(n.BytesTotal)*100))
}

// sum is all nodes in one line, "" if none has reported what it needs.
func sum(nodes []explain.Node) string {
	all, ready := explain.Node{}, 0
	for _, n := range nodes {
		all.BytesDone, all.BytesTotal = all.BytesDone+n.BytesDone, all.BytesTotal+n.BytesTotal
		if n.BytesTotal > 0 && n.BytesDone >= n.BytesTotal {
			ready++
		}
	}
	if all.BytesTotal == 0 {
		return ""
	}
	return fmt.Sprintf("%d%%  %s of %s on %d nodes, %d complete", percent(all), explain.Bytes(all.BytesDone), explain.Bytes(all.BytesTotal), len(nodes), ready)
}

// table is a line for each node that still fetches, the furthest behind first.
func table(nodes []explain.Node) string {
	left := slices.DeleteFunc(slices.Clone(nodes), func(n explain.Node) bool { return n.BytesTotal == 0 || n.BytesDone >= n.BytesTotal })
	slices.SortStableFunc(left, func(a, b explain.Node) int { return int(percent(a) - percent(b)) })
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, n := range left[:min(len(left), mostNodes)] {
		full := int(percent(n)) * barWidth / 100
		fmt.Fprintf(t, "  %s\t[%s%s]\t%3d%%\t%s of %s\t%d of %d images pinned\n", clean.Line(n.Name), strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percent(n),
			explain.Bytes(n.BytesDone), explain.Bytes(n.BytesTotal), n.ImagesPinned, n.ImagesTotal)
	}
	_ = t.Flush() // a builder does not fail
	if more := len(left) - mostNodes; more > 0 {
		fmt.Fprintf(&b, "  and %d more nodes\n", more)
	}
	return b.String()
}

const barWidth = 20

// Prepare shows what is waited for and how far the nodes are: redrawn on a terminal,
// else the sum when it has changed, every ten seconds at most, and the wait at once.
func (p *Printer) Prepare(wait string, nodes []explain.Node) {
	nodes = p.nodes.keep(nodes)
	wait, bytes := clean.Line(wait), sum(nodes)
	if p.live {
		text := wait + "\n"
		if bytes != "" {
			text += bytes + "\n" + table(nodes)
		}
		p.redraw(text)
		return
	}
	now := p.now()
	stamp := now.UTC().Format("15:04:05Z")
	if wait != p.nodes.saidWait {
		p.nodes.saidWait = wait
		fmt.Fprintf(p.w, "%s %s\n", stamp, wait)
	}
	if bytes == "" || bytes == p.nodes.saidBytes || now.Sub(p.nodes.at) < linesEvery {
		return
	}
	p.nodes.saidBytes, p.nodes.at = bytes, now
	fmt.Fprintf(p.w, "%s %s\n", stamp, bytes)
}
