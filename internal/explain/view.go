package explain

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// Colours of a view.
const (
	Green  = "green"  // nothing to do, or done
	Blue   = "blue"   // working, leave it alone
	Yellow = "yellow" // waits for a person
	Red    = "red"    // halted
)

// View is what every surface shows.
type View struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Headline   string `json:"headline"`
	Colour     string `json:"colour"`
	Update     string `json:"update,omitempty"`
	Version    string `json:"version,omitempty"`
	Phase      string `json:"phase"`
	Paused     bool   `json:"paused,omitempty"`
	PlanDigest string `json:"planDigest,omitempty"`
	// Hop of Hops is the current one, from 1, of an update through several; the nodes are
	// counted in it. HopVersion is the version that it leads to.
	Hop        int    `json:"hop,omitempty"`
	Hops       int    `json:"hops,omitempty"`
	HopVersion string `json:"hopVersion,omitempty"`
	NodesDone  int    `json:"nodesDone"`
	NodesTotal int    `json:"nodesTotal"`
	// Percent of the update is done, by nodes and by the steps of those that are being updated.
	Percent int `json:"percent"`
	// Current nodes are being updated.
	Current []string `json:"current,omitempty"`
	Elapsed int64    `json:"elapsedSeconds,omitempty"`
	// DoneEarliest and DoneLatest: when it is expected to be done, learned from this
	// cluster's own nodes, or by the times of refit's lab.
	DoneEarliest time.Time `json:"doneEarliest,omitzero"`
	DoneLatest   time.Time `json:"doneLatest,omitzero"`
	DoneFromLab  bool      `json:"doneFromLab,omitempty"`
	// Left is the same as a time from now, for people.
	Left string `json:"-"`
	// Away is how long the API server was unavailable while nodes were updated, Longest
	// the longest stretch.
	Away      int64     `json:"apiAwaySeconds,omitempty"`
	Longest   int64     `json:"apiAwayLongestSeconds,omitempty"`
	Waiting   []Blocker `json:"waiting,omitempty"`
	MoreWaits int       `json:"moreWaits,omitempty"`
	Warnings  []Blocker `json:"warnings,omitempty"`
	Next      string    `json:"next,omitempty"`
	Nodes     []Node    `json:"nodes,omitempty"`
	Bundles   []Bundle  `json:"bundles,omitempty"`
}

// Make builds the view.
func Make(f Facts) View {
	v := View{APIVersion: "refit.dev/status/v1", Kind: "Status", Phase: "Idle", Colour: Green, Nodes: sortedNodes(f.Nodes), Bundles: f.Bundles}
	if f.Update == nil {
		idle(&v, f)
		return v
	}
	u := f.Update
	v.Update, v.Version, v.Phase, v.Paused, v.PlanDigest = u.Name, u.Version, u.Phase, u.Paused, u.PlanDigest
	v.Hop, v.Hops, v.HopVersion = u.Hop, u.Hops, u.HopVersion
	v.NodesDone, v.NodesTotal, v.Current = u.Done, u.Total, u.Current
	v.Waiting, v.MoreWaits = u.Blockers, max(0, u.BlockerCount-len(u.Blockers))
	v.Elapsed, v.Warnings = elapsed(u, f.Now), u.Warnings
	v.Away, v.Longest = u.Away, u.Longest
	v.DoneEarliest, v.DoneLatest, v.DoneFromLab, v.Left = u.Earliest, u.Latest, u.FromLab, left(u, f.Now)
	v.Percent = v.percent()
	describeUpdate(&v, f)
	return v
}

// percent counts a node that is being updated by its steps, so that it grows on a site of one
// node, too. The drain before them and the last observation count as a step each: a node is
// whole when the update counts it as done.
func (v *View) percent() int {
	const whole = 1000
	parts := int64(v.NodesDone) * whole
	for _, n := range v.moving() {
		parts += int64(whole * (1 + n.StepsDone) / (2 + n.StepsTotal))
	}
	percent := Percent(parts, int64(v.NodesTotal)*whole)
	if v.Hops > 1 {
		percent = (100*(v.Hop-1) + percent) / v.Hops
	}
	return percent
}

// moving returns the nodes that may do their steps now.
func (v *View) moving() []*Node {
	var out []*Node
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.StepsTotal > 0 && slices.Contains(v.Current, n.Name) {
			out = append(out, n)
		}
	}
	return out
}

// Step is the step of the node that is being updated, or the number of these nodes; empty if
// none has started.
func (v *View) Step() string {
	moving := v.moving()
	switch {
	case len(moving) == 0:
		return ""
	case len(moving) > 1:
		return fmt.Sprintf("%d nodes are being updated", len(moving))
	case moving[0].StepsDone >= moving[0].StepsTotal:
		return fmt.Sprintf("all %d steps of %s are done", moving[0].StepsTotal, moving[0].Name)
	}
	return fmt.Sprintf("step %d of %d on %s", moving[0].StepsDone+1, moving[0].StepsTotal, moving[0].Name)
}

func sortedNodes(nodes []Node) []Node {
	out := append([]Node(nil), nodes...)
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func elapsed(u *Update, now time.Time) int64 {
	if u.StartedAt.IsZero() {
		return 0
	}
	end := now
	if !u.FinishedAt.IsZero() {
		end = u.FinishedAt
	}
	return max(0, int64(end.Sub(u.StartedAt)/time.Second))
}

// left returns how long an update still takes, in minutes, "" if unknown.
func left(u *Update, now time.Time) string {
	if u.Latest.IsZero() {
		return ""
	}
	from, to := minutes(u.Earliest.Sub(now)), minutes(u.Latest.Sub(now))
	out := "about " + span(to) + " left"
	if from != to {
		out = "about " + span(from) + " to " + span(to) + " left"
	}
	if u.FromLab {
		out += " by the times of refit's lab"
	}
	return out
}

// minutes rounds a duration to minutes, at least one: a late update is not done.
func minutes(d time.Duration) int { return max(1, int((d+time.Minute/2)/time.Minute)) }

func span(minutes int) string {
	if minutes < 60 {
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
}

func idle(v *View, f Facts) {
	for _, b := range f.Bundles {
		if b.Use == "Released" {
			continue
		}
		if b.Approved {
			v.Headline = fmt.Sprintf("Bundle %s is approved (on %s nodes); no update is planned.", b.Name, orNone(b.Loaded))
			v.Next = "refit plan --to " + b.Digest
			return
		}
		if b.Digest != "" {
			v.Colour = Yellow
			v.Headline = fmt.Sprintf("Bundle %s %s was found and waits for approval.", b.Name, b.Version)
			v.Next = "refit approve " + b.Digest
			return
		}
	}
	if len(f.Nodes) == 0 {
		v.Headline, v.Next = "No node has reported to refit yet.", "refit install --from BUNDLE --ssh HOSTS"
		return
	}
	v.Headline, v.Next = "Nothing to do: no bundle was found and no update is planned.", "plug a stick with a bundle into any node"
}

func orNone(s string) string {
	if s == "" {
		return "no"
	}
	return s
}

// describeUpdate sets headline, colour and next action of a view with an update.
func describeUpdate(v *View, f Facts) {
	u := f.Update
	first := firstWait(u)
	switch u.Phase {
	case "Done":
		v.Headline = fmt.Sprintf("Done: %d of %d nodes are at %s.", u.Done, u.Total, u.Version)
	case "Halted":
		v.Colour = Red
		v.Headline = fmt.Sprintf("Halted with %d of %d nodes at %s: %s", u.Done, u.Total, cmp.Or(u.HopVersion, u.Version), first)
		v.Next = "remove the cause, then refit retry " + u.Name + "; or roll back with refit rollback --end-current"
	case "Blocked":
		v.Colour = Yellow
		v.Headline = "Blocked, a person must act: " + first
		v.Next = fixOf(u)
	case "Ready":
		if u.Starting {
			v.Phase, v.Colour = "Starting", Blue
			v.Headline = fmt.Sprintf("Starting the update to %s.", u.Version)
			break
		}
		v.Colour = Yellow
		v.Headline = fmt.Sprintf("Ready: every node has pinned all it needs for %s; waits for refit apply.", u.Version)
		v.Next = "refit apply " + u.Name
	case "Updating":
		updating(v, u, first)
	default:
		v.Colour = Blue
		v.Headline = fmt.Sprintf("Preparing %s: %s", u.target(), preparing(f.Nodes, first))
		if u.BetweenHops {
			v.Headline = fmt.Sprintf("Hop %d of %d is done; before hop %d, to %s, every check passes again: %s", u.Hop-1, u.Hops, u.Hop, u.HopVersion, cmp.Or(first, "the nodes are asked."))
		}
	}
	if u.Paused && u.Phase != "Done" {
		v.Colour = Yellow
		v.Headline = "Paused. " + v.Headline
		v.Next = "refit resume " + u.Name
	}
}

func updating(v *View, u *Update, first string) {
	v.Colour = Blue
	v.Headline = fmt.Sprintf("Updating to %s: %d of %d nodes done", u.target(), u.Done, u.Total)
	if len(u.Current) > 0 {
		v.Headline += ", now " + strings.Join(u.Current, ", ")
	}
	if first != "" {
		v.Headline += "; waits: " + first
	} else {
		v.Headline += "."
	}
	v.Next = fixOf(u)
}

// target is the version that an update leads to, with its current hop.
func (u *Update) target() string {
	if u.Hops < 2 {
		return u.Version
	}
	return fmt.Sprintf("%s (hop %d of %d, to %s)", u.Version, u.Hop, u.Hops, u.HopVersion)
}

// firstWait returns the first line of the first reason. The reason itself has the
// last lines of a failed program.
func firstWait(u *Update) string {
	if len(u.Blockers) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(u.Blockers[0].Message, "\n")
	return strings.TrimSuffix(line, ":")
}

func fixOf(u *Update) string {
	if len(u.Blockers) == 0 {
		return ""
	}
	return u.Blockers[0].Fix
}

func preparing(nodes []Node, first string) string {
	var done, total int64
	held, all := 0, 0
	for _, n := range nodes {
		done, total = done+n.BytesDone, total+n.BytesTotal
		held, all = held+n.ImagesPinned, all+n.ImagesTotal
	}
	if total == 0 {
		if first != "" {
			return first
		}
		return "waiting for the nodes to report."
	}
	return fmt.Sprintf("%s of %s on the nodes, %d of %d images pinned.", Bytes(done), Bytes(total), held, all)
}

// Bytes is a size for people: 1.5 GiB.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), -1
	for f >= unit && i < 4 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}
