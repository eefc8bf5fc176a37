package track

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Kinds of targets.
const (
	Deployment  = "Deployment"
	DaemonSet   = "DaemonSet"
	StatefulSet = "StatefulSet"
	CronJob     = "CronJob"
	StaticPod   = "StaticPod"
)

// States of a row. The words are those of the API.
const (
	Current    = "Current"
	Waiting    = "Waiting"
	Preloading = "Preloading"
	Rolling    = "Rolling"
	Proposed   = "Proposed"
	Stopped    = "Blocked"
	OnNextRun  = "OnNextRun"
)

// Container of a workload whose image is of the track's repository.
type Container struct {
	Name string
	Init bool
	// Image as it stands in the template.
	Image string
}

// Budget is a PodDisruptionBudget over a workload's pods.
type Budget struct {
	Name string
	// Allowed disruptions now; Most that it ever allows with these replicas.
	Allowed, Most int
}

// Target is a workload as a roll-out sees it.
type Target struct {
	Kind, Namespace, Name string
	// Critical: its node needs it.
	Critical bool
	// Owner is the GitOps tool that would take a change back, "" if there is none.
	Owner string
	// Denied is why refit may not write to it, "" if it may; Closed why nothing of
	// it may begin now: outside of the windows, or what is left is too short.
	Denied, Closed string
	Containers     []Container
	// Nodes of a static pod; Kubeadm: it is one of kubeadm's own.
	Nodes   []NodePod
	Kubeadm bool
	// TakesDown is how many pods its own strategy stops before others are ready;
	// Strategy names the field that says so.
	TakesDown int
	Strategy  string
	// OnDelete: it replaces a pod only when that one goes. Old are pods that then
	// still have another image, in the order in which they go.
	OnDelete bool
	Old      []string
	Budgets  []Budget
	// Down is how many of its pods are missing, leaving or not ready; Observed: its
	// controller has seen its template. Batch is how many may be down at once while an
	// old pod is replaced, by the pod's name: the budget of the pool of its node.
	Down     int
	Observed bool
	Batch    map[string]int
	// Drains: each node is drained before its pod is replaced. Drain is the node that is drained now.
	// NodeOf are the nodes of old pods, Undrainable has why a node may not be drained now.
	Drains      bool
	Drain       NodeDrain
	NodeOf      map[string]string
	Undrainable map[string]string
	// Settled: what its template says runs and is ready; else Progress says how far.
	Settled  bool
	Progress string
}

// Key of a target.
func (w *Target) Key() string { return w.Kind + "/" + w.Namespace + "/" + w.Name }

// Rewrite is a container's image with the approved digest: the repository as it
// was written, the tag that is followed, the digest. changed is false if it says
// that already.
func Rewrite(image string, approved *Image) (out string, changed bool) {
	repo := image
	if i := strings.IndexByte(repo, '@'); i >= 0 {
		repo = repo[:i]
	}
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo = repo[:i]
	}
	out = repo + ":" + approved.Tag + "@" + approved.Digest
	if ref, err := imagetag.ParseRef(image); err == nil && approved.Is(ref.Digest) && ref.Tag == approved.Tag {
		return image, false
	}
	return out, out != image
}

// AppliesTo reports whether a container's image is one that the track is about: of
// its repository or a mirror of it, and of the same variant as what is approved.
func AppliesTo(t Track, approved *Image, image string) bool {
	ref, err := imagetag.ParseRef(image)
	if err != nil || ref.Repository != t.Repository && !slices.Contains(t.Mirrors, ref.Repository) {
		return false
	}
	if approved == nil || ref.Tag == "" {
		return true
	}
	a, b := parseTag(t, ref.Tag), parseTag(t, approved.Tag)
	return a.Text == "" || b.Text == "" || a.Tier == imagetag.Floating || b.Tier == imagetag.Floating || a.Variant == b.Variant
}

// Changes reports whether a target's template is not as approved.
func (w *Target) Changes(approved *Image) bool {
	if w.Kind == StaticPod {
		return slices.ContainsFunc(w.Nodes, func(n NodePod) bool { return n.changes(approved) })
	}
	for _, c := range w.Containers {
		if _, changed := Rewrite(c.Image, approved); changed {
			return true
		}
	}
	return false
}

// Preload is how far the digest is on the nodes that run the targets.
type Preload struct {
	// Wanted: spec.preload is set.
	Wanted      bool
	Done, Nodes int
	// Why it does not go on, "" if it does.
	Why string
}

func (p Preload) ready() bool { return !p.Wanted || p.Done >= p.Nodes }

// Row is how far one target is.
type Row struct {
	Key, State, Message string
	// Closed: it waits for a window.
	Closed bool
}

// Step is the one thing to do now; the zero Step is nothing.
type Step struct {
	// Write the approved digest into this target, by index; -1 for none.
	Write int
	// Evict this pod of target Of, through the Eviction API; "" for none.
	Evict string
	Of    int
	// Turn is the node of target TurnOf that has the turn, "" while none has: its static pod is
	// written, or it is cordoned. A node that is cordoned without the turn is released.
	Turn   string
	TurnOf int
	// Drain this node, "" for none: cordon it, and evict what is left.
	Drain string
	// Node is what the node of a static pod is permitted now.
	Node NodeStep
}

// Roll says how far every target is, and the one thing to do next. propose is
// true if nothing may be written.
func Roll(targets []Target, approved *Image, pre Preload, gate Gate, propose bool) ([]Row, Step) {
	r := roll{approved: approved, pre: pre, gate: gate, propose: propose, step: Step{Write: -1}}
	rows := make([]Row, len(targets))
	for _, i := range sequence(targets) {
		w := &targets[i]
		rows[i] = Row{Key: w.Key()}
		rows[i].State, rows[i].Message = r.targetState(w, i)
		rows[i].Closed = w.Closed != "" && rows[i].Message == w.Closed
	}
	return rows, r.step
}

// roll evaluates all targets, in their order.
type roll struct {
	approved *Image
	pre      Preload
	gate     Gate
	propose  bool
	// busy is the target whose turn it is, "" for none.
	busy string
	step Step
}

func (r *roll) targetState(w *Target, i int) (state, message string) {
	switch {
	case r.approved == nil:
		return Waiting, "nothing is approved yet"
	case len(w.Containers) == 0:
		return Stopped, "no container of it has an image of this repository"
	case w.Kind == StaticPod:
		return r.staticPodState(w, i)
	case !w.Changes(r.approved):
		return r.rolledState(w, i)
	case r.propose || w.Owner != "":
		return Proposed, whyProposed(w)
	case !r.pre.ready():
		r.busy = or(r.busy, "the nodes")
		return Preloading, r.describePreload()
	case r.busy != "":
		return Waiting, "it is the turn of " + r.busy
	}
	state, message = r.startTarget(w, i)
	if state == Rolling {
		r.busy = w.Key()
	}
	return state, message
}

// describePreload says how far the nodes are.
func (r *roll) describePreload() string {
	message := fmt.Sprintf("%d of %d nodes hold %s", r.pre.Done, r.pre.Nodes, r.approved.Name())
	if r.pre.Why != "" {
		message += "; " + r.pre.Why
	}
	return message
}

// sequence: ordinary workloads by name, then DaemonSets, then what nodes need,
// static pods last.
func sequence(targets []Target) []int {
	order := make([]int, len(targets))
	for i := range order {
		order[i] = i
	}
	class := func(w *Target) int {
		switch {
		case w.Kind == StaticPod:
			return 3
		case w.Critical:
			return 2
		case w.Kind == DaemonSet:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &targets[a], &targets[b]
		return cmp.Or(cmp.Compare(class(x), class(y)), cmp.Compare(x.Key(), y.Key()))
	})
	return order
}

// rolledState is a target whose template is as approved.
func (r *roll) rolledState(w *Target, i int) (state, message string) {
	switch {
	case w.Kind == CronJob:
		return OnNextRun, "its next run has it"
	case r.propose && len(w.Old) > 0:
		return Waiting, fmt.Sprintf("the track only proposes (spec.mode); pod %s runs another image until it is deleted (OnDelete)", w.Old[0])
	case w.Drains && w.OnDelete:
		return r.drainedState(w, i)
	case w.Settled && len(w.Old) == 0:
		return Current, ""
	case r.busy != "":
		return Waiting, "it is the turn of " + r.busy
	}
	r.busy = w.Key()
	if pod := w.nextOld(); pod != "" {
		return Rolling, r.evictNext(w, i, pod)
	}
	return Rolling, w.Progress
}

// nextOld is the old pod that may go now, "" for none. Without a budget of a pool the pod before
// it must be ready. With one, as many pods may be down as nodes of that pool; all pods that are
// down count, also those of other pools.
func (w *Target) nextOld() string {
	if !w.OnDelete || len(w.Old) == 0 {
		return ""
	}
	if w.Settled && w.Down == 0 {
		return w.Old[0]
	}
	for _, pod := range w.Old {
		if w.Observed && w.Down < w.Batch[pod] {
			return pod
		}
	}
	return ""
}

// evictNext evicts an old pod of a target that replaces only what goes; the Eviction API
// keeps its budgets, and it is asked only when they allow it.
func (r *roll) evictNext(w *Target, i int, pod string) string {
	for _, b := range w.Budgets {
		if b.Allowed < 1 {
			return fmt.Sprintf("pod %s waits for budget %s, which allows no disruption now", pod, b.Name)
		}
	}
	if w.Closed != "" {
		return w.Closed
	}
	r.step.Evict, r.step.Of = pod, i
	return fmt.Sprintf("%d pods still run another image; %s goes next", len(w.Old), pod)
}

// startTarget writes into a target if its own strategy keeps the budgets.
func (r *roll) startTarget(w *Target, i int) (state, message string) {
	if w.Denied != "" {
		return Stopped, w.Denied
	}
	if w.Closed != "" {
		return Waiting, w.Closed
	}
	if w.Drains && w.Kind == DaemonSet && !w.OnDelete {
		return Stopped, "spec.drain needs the updateStrategy OnDelete: with RollingUpdate its controller replaces pods and waits for no drain"
	}
	if !w.OnDelete && w.Kind != CronJob {
		if w.Critical && w.TakesDown > 1 {
			return Stopped, fmt.Sprintf("nodes need it, and its strategy (%s) stops it on %d nodes at once: set maxUnavailable to 1", w.Strategy, w.TakesDown)
		}
		if state, message := w.brokenBudget(); state != "" {
			return state, message
		}
	}
	r.step.Write = i
	return Rolling, "the digest is written"
}

// brokenBudget says which budget a target's strategy would break, "" if none.
func (w *Target) brokenBudget() (state, message string) {
	for _, b := range w.Budgets {
		switch {
		case w.TakesDown == 0:
		case w.TakesDown > b.Most:
			return Stopped, fmt.Sprintf("its strategy (%s) stops %d pods at once, budget %s allows %d: lower the one or raise the other", w.Strategy, w.TakesDown, b.Name, b.Most)
		case w.Settled && w.TakesDown > b.Allowed:
			// The strategy of an unhealthy target counts its broken pods, and this write may
			// be the one that repairs it.
			return Waiting, fmt.Sprintf("budget %s allows %d disruptions now, its roll-out takes %d", b.Name, b.Allowed, w.TakesDown)
		}
	}
	return "", ""
}

func whyProposed(w *Target) string {
	if w.Owner != "" {
		return "it belongs to " + w.Owner + ", which would revert a change: change it there"
	}
	return "the track only proposes (spec.mode)"
}

// Patch is what to change in a target, as a strategic merge patch in YAML, or
// for a static pod the images by container.
func Patch(w *Target, approved *Image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", approved.Name())
	indent := ""
	for _, key := range map[string][]string{
		CronJob:   {"spec", "jobTemplate", "spec", "template", "spec"},
		StaticPod: {"spec"},
	}[w.Kind] {
		fmt.Fprintf(&b, "%s%s:\n", indent, key)
		indent += "  "
	}
	if indent == "" {
		b.WriteString("spec:\n  template:\n    spec:\n")
		indent = "      "
	}
	for _, init := range []bool{true, false} {
		field := "containers"
		if init {
			field = "initContainers"
		}
		head := true
		for _, c := range w.Containers {
			image, changed := Rewrite(c.Image, approved)
			if w.Kind == StaticPod {
				image, changed = RewriteLong(c.Image, approved)
			}
			if c.Init != init || !changed {
				continue
			}
			if head {
				fmt.Fprintf(&b, "%s%s:\n", indent, field)
				head = false
			}
			fmt.Fprintf(&b, "%s- name: %s\n%s  image: %s\n", indent, c.Name, indent, image)
		}
	}
	return b.String()
}
