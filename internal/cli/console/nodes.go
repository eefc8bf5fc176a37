package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

// linesEvery is how often the progress of nodes is written without a terminal.
const linesEvery = 10 * time.Second

// most nodes are listed; the sum includes the others.
const mostNodes = 20

// nodesProgress shows how many bytes of their total the nodes have. A shown number never
// shrinks, even if a restarted agent counts from the beginning. A share shrinks only if
// the total grows.
type nodesProgress struct {
	best map[string]explain.Node
	// saidWait and saidBytes were written last, at that time, without a terminal.
	saidWait, saidBytes string
	at                  time.Time
}

// mergeReports merges the reports of nodes with the highest of their earlier ones.
func (p *nodesProgress) mergeReports(nodes []explain.Node) []explain.Node {
	if p.best == nil {
		p.best = map[string]explain.Node{}
	}
	if len(nodes) == 0 { // they are unreadable now
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

func percentDone(n explain.Node) int64 {
	if n.BytesTotal <= 0 {
		return 0
	}
	return min(100, int64(float64(n.BytesDone)/float64(n.BytesTotal)*100))
}

// sumNodes returns all nodes in one line, "" if none has reported its total.
func sumNodes(nodes []explain.Node) string {
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
	return fmt.Sprintf("%d%%  %s of %s on %s, %d complete", percentDone(all), explain.Bytes(all.BytesDone), explain.Bytes(all.BytesTotal), text.Count(len(nodes), "node"), ready)
}

// nodeTable returns a line for each node that still fetches, the least complete first.
func nodeTable(nodes []explain.Node) string {
	left := slices.DeleteFunc(slices.Clone(nodes), func(n explain.Node) bool { return n.BytesTotal == 0 || n.BytesDone >= n.BytesTotal })
	slices.SortStableFunc(left, func(a, b explain.Node) int { return int(percentDone(a) - percentDone(b)) })
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, n := range left[:min(len(left), mostNodes)] {
		full := int(percentDone(n)) * barWidth / 100
		fmt.Fprintf(t, "  %s\t[%s%s]\t%3d%%\t%s of %s\t%d of %d images pinned\n", text.CleanLine(n.Name), strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percentDone(n),
			explain.Bytes(n.BytesDone), explain.Bytes(n.BytesTotal), n.ImagesPinned, n.ImagesTotal)
	}
	_ = t.Flush() // a strings.Builder does not fail
	if more := len(left) - mostNodes; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

const barWidth = 20

// ShowPreparation shows what the update waits for and the progress of the nodes. It redraws a
// terminal; else it writes a changed sum every ten seconds at most, and a new wait at once.
func (p *Progress) ShowPreparation(wait string, nodes []explain.Node) {
	nodes = p.nodes.mergeReports(nodes)
	wait, bytes := text.CleanLine(wait), sumNodes(nodes)
	if p.live {
		text := wait + "\n"
		if bytes != "" {
			text += bytes + "\n" + nodeTable(nodes)
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
