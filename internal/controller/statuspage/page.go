package statuspage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/text"
)

// The page stays small with 30,000 nodes and with texts of any length.
const (
	nodesPerPage = 100
	maxRows      = 25
	maxText      = 1024
	maxShortText = 160
	maxName      = 100
)

// Phases that agents report, and the one of a node without an agent.
const (
	nodeFailed   = "Failed"
	nodeUpdating = "Updating"
	nodeReady    = "Ready"
	noAgent      = "NoAgent"
)

// Tones are the classes of the style sheet.
const (
	toneOK   = "ok"
	toneRun  = "run"
	toneWait = "wait"
	toneBad  = "bad"
)

var tones = map[string]string{explain.Green: toneOK, explain.Blue: toneRun, explain.Yellow: toneWait, explain.Red: toneBad}

// page is what the template of the administrator's view shows.
type page struct {
	Title, Headline, Tone, Next string
	At                          time.Time
	Version, Update, Plan, Left string
	Elapsed, APIDown            string
	Progress                    *explain.Progress
	Waits, Warnings             []waitRow
	MoreWaits                   int
	Pools                       []poolRow
	MorePools                   int
	Nodes                       nodeList
	Groups                      []planGroup
	MoreGroups                  int
	PlanMissing                 string
	GateOpen                    bool
	Checks                      []checkRow
	Risks                       []riskRow
	Bundles                     []bundleRow
	MoreBundles                 int
	Media                       []mediumRow
	MoreMedia                   int
	Images                      imageTotals
	Tracks                      []trackRow
	MoreTracks                  int
	Sources                     []sourceRow
	MoreSources                 int
	Phases                      []phaseRow
	History                     []historyRow
	MoreHistory                 int
}

type waitRow struct {
	Reason, Message, Fix, Object string
	Since                        time.Time
}

type poolRow struct {
	Name, Link, Window, Reason     string
	Nodes                          int
	Updated, Updating, Unavailable int32
	Known                          bool
	States                         []stateCount
}

type stateCount struct {
	State, Tone, Link string
	Nodes             int
}

type nodeList struct {
	Rows                  []nodeRow
	Total, From, To       int
	Pool, State           string
	Previous, Following   string
	Filtered, MoreThanOne bool
}

type nodeRow struct {
	Name, Pool, Role, State, Tone, Step, Kubelet, Images, Copied, Message string
}

type checkRow struct{ Name, Question, Answer, Tone string }

type riskRow struct {
	Check, Reason, State string
	Until                time.Time
}

type bundleRow struct {
	Name, Version, Digest, Approved, Loaded, Use, Places, Signed, Reason, Message string
	Images                                                                        int32
	Size                                                                          string
}

type imageTotals struct {
	Pinned, Total int
	Done, Bytes   string
	Media, Peers  string
}

type trackRow struct{ Name, Repository, Approved, Preloaded, Reason, Message string }

type sourceRow struct{ Name, State, Referenced, Wanted, NewEnough, Reason, Message string }

type phaseRow struct {
	Phase string
	At    time.Time
}

type historyRow struct {
	Name, Version, Phase, Progress string
	Started, Finished              time.Time
}

// filter selects the nodes that are listed.
type filter struct {
	pool, state string
	page        int
}

func readFilter(q url.Values) filter {
	n, err := strconv.Atoi(q.Get("page"))
	if err != nil || n < 1 {
		n = 1
	}
	return filter{pool: text.Truncate(q.Get("pool"), 253), state: text.Truncate(q.Get("state"), 64), page: n}
}

func (f filter) link() string {
	q := url.Values{}
	if f.pool != "" {
		q.Set("pool", f.pool)
	}
	if f.state != "" {
		q.Set("state", f.state)
	}
	if f.page > 1 {
		q.Set("page", strconv.Itoa(f.page))
	}
	return "?" + q.Encode() + "#nodes"
}

// page makes the administrator's view.
func (st *state) page(f filter) page {
	v := &st.view
	p := page{Title: st.title(), Headline: short(v.Headline, maxText), Tone: tones[v.Colour], Next: short(v.Next, maxText), At: st.at.UTC(), Version: v.Version, Update: v.Update, Plan: v.PlanDigest,
		Left: v.Left, Elapsed: seconds(v.Elapsed), APIDown: seconds(v.Away), Progress: v.Progress(), MoreWaits: v.MoreWaits,
		Waits: waitRows(v.Waiting, maxText), Warnings: waitRows(v.Warnings, maxShortText), PlanMissing: short(st.plan.Missing, maxText), Images: st.imageTotals()}
	p.Pools, p.MorePools = limited(st.poolRows())
	p.Nodes = st.nodeList(f)
	p.Groups, p.MoreGroups = limited(st.plan.Groups)
	p.Media, p.MoreMedia = limited(st.media)
	p.Bundles, p.MoreBundles = limited(st.bundleRows())
	p.Tracks, p.MoreTracks = limited(st.trackRows())
	p.Sources, p.MoreSources = limited(st.sourceRows())
	p.History, p.MoreHistory = limited(st.historyRows())
	st.addGate(&p)
	return p
}

// limited returns the first rows, and the number of the others.
func limited[T any](rows []T) ([]T, int) {
	if len(rows) <= maxRows {
		return rows, 0
	}
	return rows[:maxRows], len(rows) - maxRows
}

func (st *state) title() string {
	v := st.view
	if v.NodesTotal > 0 {
		return fmt.Sprintf("%s: %d of %d nodes", v.Phase, v.NodesDone, v.NodesTotal)
	}
	return v.Phase
}

func waitRows(in []explain.Blocker, most int) []waitRow {
	out := make([]waitRow, 0, len(in))
	for _, b := range in {
		out = append(out, waitRow{Reason: short(b.Reason, maxShortText), Message: short(b.Message, most), Fix: short(b.Fix, most), Object: short(b.Object, maxShortText), Since: b.Since.UTC()})
	}
	return out
}

// stateOf returns the state of a node in one word, its tone, and its rank: what needs a person
// comes first.
func stateOf(n *explain.Node) (word, tone string, rank int) {
	switch {
	case n.Phase == nodeFailed:
		return n.Phase, toneBad, 0
	case n.Phase == nodeUpdating:
		return n.Phase, toneRun, 1
	case !n.Ready:
		return "NotReady", toneBad, 2
	case n.OnHold:
		return "OnHold", toneWait, 3
	case n.Unschedulable:
		return "Cordoned", toneWait, 4
	case n.Phase == noAgent:
		return n.Phase, toneWait, 5
	case n.Phase == nodeReady:
		return n.Phase, toneOK, 7
	}
	return cmp.Or(n.Phase, "Unknown"), toneRun, 6
}

func (st *state) poolRows() []poolRow {
	rows, index := []poolRow{}, map[string]int{}
	for i := range st.pools {
		s := st.pools[i].Status
		row := poolRow{Name: st.pools[i].Name, Updated: s.Updated, Updating: s.Updating, Unavailable: s.Unavailable, Known: true, Window: short(s.Window, maxShortText)}
		if st.pools[i].Spec.Paused {
			row.Reason = "paused"
		}
		index[row.Name] = len(rows)
		rows = append(rows, row)
	}
	counts := map[string]map[string]*stateCount{}
	for i := range st.view.Nodes {
		n := &st.view.Nodes[i]
		pool := st.poolOf[n.Name]
		if _, ok := index[pool]; !ok {
			index[pool] = len(rows)
			rows = append(rows, poolRow{Name: pool})
		}
		rows[index[pool]].Nodes++
		if counts[pool] == nil {
			counts[pool] = map[string]*stateCount{}
		}
		word, tone, _ := stateOf(n)
		c := counts[pool][word]
		if c == nil {
			c = &stateCount{State: word, Tone: tone, Link: filter{pool: pool, state: word}.link()}
			counts[pool][word] = c
		}
		c.Nodes++
	}
	for i := range rows {
		rows[i].Link = filter{pool: rows[i].Name}.link()
		for _, c := range counts[rows[i].Name] {
			rows[i].States = append(rows[i].States, *c)
		}
		sort.Slice(rows[i].States, func(a, b int) bool { return rows[i].States[a].State < rows[i].States[b].State })
	}
	return rows
}

// nodeList returns one page of the selected nodes, those that need a person first.
func (st *state) nodeList(f filter) nodeList {
	type ranked struct{ at, rank int }
	var found []ranked
	for i := range st.view.Nodes {
		n := &st.view.Nodes[i]
		word, _, rank := stateOf(n)
		if (f.pool == "" || st.poolOf[n.Name] == f.pool) && (f.state == "" || word == f.state) {
			found = append(found, ranked{i, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b ranked) int { return a.rank - b.rank }) // nodes are sorted by name
	pages := max(1, (len(found)+nodesPerPage-1)/nodesPerPage)
	f.page = min(f.page, pages)
	from := (f.page - 1) * nodesPerPage
	to := min(len(found), from+nodesPerPage)
	out := nodeList{Total: len(found), From: min(from+1, len(found)), To: to, Pool: f.pool, State: f.state, Filtered: f.pool != "" || f.state != "", MoreThanOne: pages > 1}
	if f.page > 1 {
		out.Previous = filter{f.pool, f.state, f.page - 1}.link()
	}
	if f.page < pages {
		out.Following = filter{f.pool, f.state, f.page + 1}.link()
	}
	for _, r := range found[from:to] {
		out.Rows = append(out.Rows, st.nodeRow(&st.view.Nodes[r.at]))
	}
	return out
}

func (st *state) nodeRow(n *explain.Node) nodeRow {
	word, tone, _ := stateOf(n)
	row := nodeRow{Name: n.Name, Pool: st.poolOf[n.Name], Role: n.Role, State: word, Tone: tone, Step: n.Step, Kubelet: short(n.Kubelet, 64), Message: short(n.Message, maxShortText)}
	if n.OnHold && n.OnHoldReason != "" {
		row.Message = short("on hold: "+n.OnHoldReason, maxShortText)
	}
	if n.ImagesTotal > 0 {
		row.Images = fmt.Sprintf("%d/%d", n.ImagesPinned, n.ImagesTotal)
	}
	if n.BytesTotal > 0 {
		row.Copied = fmt.Sprintf("%d%% of %s", explain.Percent(n.BytesDone, n.BytesTotal), explain.Bytes(n.BytesTotal))
	}
	return row
}

var answerTones = map[string]string{string(v1alpha1.CheckPassed): toneOK, string(v1alpha1.CheckClosed): toneBad}

// addGate adds the checks of the gate in its order. A check that was not asked yet is listed.
func (st *state) addGate(p *page) {
	if st.update == nil {
		return
	}
	s := st.update.Status
	answers := map[string]string{}
	p.GateOpen = len(s.Checks) > 0
	for _, c := range s.Checks {
		answers[c.Name] = string(c.Result)
		p.GateOpen = p.GateOpen && c.Result != v1alpha1.CheckClosed
	}
	for _, c := range gate.Checks() {
		a := cmp.Or(answers[c.Name], "NotAsked")
		p.Checks = append(p.Checks, checkRow{c.Name, c.Question, a, cmp.Or(answerTones[a], toneWait)})
	}
	for _, r := range s.AcceptedRisks {
		p.Risks = append(p.Risks, riskRow{Check: short(r.Check, maxShortText), Reason: short(r.Reason, maxShortText), State: string(r.State), Until: r.Until.UTC()})
	}
	for _, ph := range s.Phases {
		p.Phases = append(p.Phases, phaseRow{ph.Phase, ph.StartedAt.UTC()})
	}
}

func (st *state) bundleRows() []bundleRow {
	var out []bundleRow
	for i := range st.view.Bundles {
		b, s := st.view.Bundles[i], st.bundles[i].Status
		row := bundleRow{Name: b.Name, Version: b.Version, Digest: text.ShortDigest(b.Digest), Approved: "no", Loaded: b.Loaded, Use: b.Use, Places: listed(b.Locations), Signed: listed(s.SignedBy),
			Reason: b.Reason, Message: short(b.Message, maxShortText), Images: s.Images}
		if b.Approved {
			row.Approved = "yes"
		}
		if s.SizeBytes > 0 {
			row.Size = explain.Bytes(s.SizeBytes)
		}
		out = append(out, row)
	}
	return out
}

func (st *state) imageTotals() imageTotals {
	var t imageTotals
	var done, all, media, peers int64
	for i := range st.view.Nodes {
		n := &st.view.Nodes[i]
		t.Pinned, t.Total = t.Pinned+n.ImagesPinned, t.Total+n.ImagesTotal
		done, all, media, peers = done+n.BytesDone, all+n.BytesTotal, media+n.FromMedia, peers+n.FromPeers
	}
	t.Done, t.Bytes, t.Media, t.Peers = explain.Bytes(done), explain.Bytes(all), explain.Bytes(media), explain.Bytes(peers)
	return t
}

func (st *state) trackRows() []trackRow {
	var out []trackRow
	for i := range st.tracks {
		o := &st.tracks[i]
		row := trackRow{Name: o.Name, Repository: short(o.Spec.Repository, maxShortText), Preloaded: o.Status.Preloaded}
		if a := o.Status.Approved; a != nil {
			row.Approved = joined(a.Tag, text.ShortDigest(a.Digest))
		}
		row.Reason, row.Message = readyReason(o.Status.Conditions)
		out = append(out, row)
	}
	return out
}

func (st *state) sourceRows() []sourceRow {
	var out []sourceRow
	for i := range st.sources {
		o := &st.sources[i]
		row := sourceRow{Name: o.Name, State: o.Status.State, Referenced: osOf(o.Status.Referenced), Wanted: osOf(o.Status.Wanted)}
		if c := meta.FindStatusCondition(o.Status.Conditions, "NewEnough"); c != nil {
			row.NewEnough = string(c.Status)
		}
		row.Reason, row.Message = readyReason(o.Status.Conditions)
		out = append(out, row)
	}
	return out
}

func osOf(b *v1alpha1.BootImage) string {
	if b == nil {
		return ""
	}
	return short(b.OS, maxShortText)
}

func readyReason(cs []metav1.Condition) (reason, message string) {
	c := meta.FindStatusCondition(cs, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionStatus(corev1.ConditionTrue) {
		return "", ""
	}
	return c.Reason, short(c.Message, maxShortText)
}

// historyRows are the updates, the newest first.
func (st *state) historyRows() []historyRow {
	var out []historyRow
	for i := range st.updates {
		u := &st.updates[i]
		out = append(out, historyRow{u.Name, u.Status.Version, u.Status.Phase, u.Status.Progress, timeOf(u.Status.StartedAt), timeOf(u.Status.FinishedAt)})
	}
	slices.SortFunc(out, func(a, b historyRow) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Name, b.Name))
	})
	return out
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// short returns a text of at most so many bytes, without control characters.
func short(s string, most int) string {
	if s == "" {
		return ""
	}
	return text.Truncate(text.CleanLine(s), most)
}

func joined(a, b string) string { return strings.TrimSpace(a + " " + b) }

// listed names the first of several.
func listed(names []string) string { return text.FirstOf(names, 3, ", ") }

func seconds(n int64) string {
	if n <= 0 {
		return ""
	}
	return (time.Duration(n) * time.Second).String()
}
