package track

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/tag"
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
	Owner      string
	Containers []Container
	// TakesDown is how many pods its own strategy stops before others are ready;
	// Strategy names the field that says so.
	TakesDown int
	Strategy  string
	// OnDelete: it replaces a pod only when that one goes. Old are pods that then
	// still have another image, in the order in which they go.
	OnDelete bool
	Old      []string
	Budgets  []Budget
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
	if ref, err := tag.ParseRef(image); err == nil && approved.Is(ref.Digest) && ref.Tag == approved.Tag {
		return image, false
	}
	return out, out != image
}

// Means reports whether a container's image is one that the track is about: of
// its repository or a mirror of it, and of the same variant as what is approved.
func Means(t Track, approved *Image, image string) bool {
	ref, err := tag.ParseRef(image)
	if err != nil || ref.Repository != t.Repository && !slices.Contains(t.Mirrors, ref.Repository) {
		return false
	}
	if approved == nil || ref.Tag == "" {
		return true
	}
	a, b := parsed(t, ref.Tag), parsed(t, approved.Tag)
	return a.Text == "" || b.Text == "" || a.Tier == tag.Floating || b.Tier == tag.Floating || a.Variant == b.Variant
}

// changes reports whether a target's template is not as approved.
func (w *Target) changes(approved *Image) bool {
	for _, c := range w.Containers {
		if _, changed := Rewrite(c.Image, approved); changed {
			return true
		}
	}
	return false
}

// Preload is how far the digest is on the nodes that run the targets.
type Preload struct {
	// Wanted is false if nobody asked for it.
	Wanted      bool
	Done, Nodes int
	// Why it does not go on, "" if it does.
	Why string
}

func (p Preload) ready() bool { return !p.Wanted || p.Done >= p.Nodes }

// Row is how far one target is.
type Row struct {
	Key, State, Message string
}

// Step is the one thing to do now; the zero Step is nothing.
type Step struct {
	// Write the approved digest into this target, by index; -1 for none.
	Write int
	// Evict this pod of target Of, through the Eviction API; "" for none.
	Evict string
	Of    int
}

// Roll says how far every target is, and the one thing to do next. propose is
// true if nothing may be written.
func Roll(targets []Target, approved *Image, pre Preload, propose bool) ([]Row, Step) {
	step := Step{Write: -1}
	order := sequence(targets)
	rows := make([]Row, len(targets))
	busy := ""
	for _, i := range order {
		w := &targets[i]
		rows[i] = Row{Key: w.Key()}
		r := &rows[i]
		switch {
		case approved == nil:
			r.State, r.Message = Waiting, "nothing is approved yet"
		case len(w.Containers) == 0:
			r.State, r.Message = Stopped, "no container of it has an image of this repository"
		case !w.changes(approved):
			rolled(w, i, r, &busy, &step)
		case propose || w.Owner != "" || w.Kind == StaticPod:
			r.State, r.Message = Proposed, whyProposed(w, propose)
		case !pre.ready():
			r.State, r.Message = Preloading, fmt.Sprintf("%d of %d nodes hold %s", pre.Done, pre.Nodes, approved.Name())
			if pre.Why != "" {
				r.Message += "; " + pre.Why
			}
			busy = or(busy, "the nodes")
		case busy != "":
			r.State, r.Message = Waiting, "it is the turn of "+busy
		default:
			start(w, i, r, &step)
			busy = w.Key()
		}
	}
	return rows, step
}

// sequence: ordinary workloads by name, then DaemonSets, then what nodes need,
// static pods last (R3.53).
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

// rolled is a target whose template is as approved.
func rolled(w *Target, i int, r *Row, busy *string, step *Step) {
	switch {
	case w.Kind == CronJob:
		r.State, r.Message = OnNextRun, "its next run has it"
	case w.Settled && len(w.Old) == 0:
		r.State = Current
	case *busy != "":
		r.State, r.Message = Waiting, "it is the turn of "+*busy
	default:
		r.State, r.Message = Rolling, w.Progress
		*busy = w.Key()
		if w.OnDelete && w.Settled {
			evict(w, i, r, step)
		}
	}
}

// evict the next pod of a target that replaces only what goes; the Eviction API
// keeps its budgets, and it is asked only when they allow it.
func evict(w *Target, i int, r *Row, step *Step) {
	for _, b := range w.Budgets {
		if b.Allowed < 1 {
			r.Message = fmt.Sprintf("pod %s waits for budget %s, which allows no disruption now", w.Old[0], b.Name)
			return
		}
	}
	r.Message = fmt.Sprintf("%d pods still run another image; %s goes next", len(w.Old), w.Old[0])
	step.Evict, step.Of = w.Old[0], i
}

// start writes into a target if its own strategy keeps the budgets.
func start(w *Target, i int, r *Row, step *Step) {
	for _, b := range w.Budgets {
		if w.OnDelete || w.Kind == CronJob || w.TakesDown == 0 {
			break
		}
		if w.TakesDown > b.Most {
			r.State = Stopped
			r.Message = fmt.Sprintf("its strategy (%s) stops %d pods at once, budget %s allows %d: lower the one or raise the other", w.Strategy, w.TakesDown, b.Name, b.Most)
			return
		}
		// One that is not well has its broken pods counted by its own strategy, and
		// what is written now may be what mends it.
		if w.Settled && w.TakesDown > b.Allowed {
			r.State, r.Message = Waiting, fmt.Sprintf("budget %s allows %d disruptions now, its roll-out takes %d", b.Name, b.Allowed, w.TakesDown)
			return
		}
	}
	if w.Critical && w.Kind == DaemonSet && !w.OnDelete && w.TakesDown > 1 {
		r.State, r.Message = Stopped, fmt.Sprintf("nodes need it, and its strategy (%s) stops it on %d nodes at once: set maxUnavailable to 1", w.Strategy, w.TakesDown)
		return
	}
	r.State, r.Message = Rolling, "the digest is written"
	step.Write = i
}

func whyProposed(w *Target, propose bool) string {
	switch {
	case w.Owner != "":
		return "it belongs to " + w.Owner + ", which would take a change back: change it there"
	case w.Kind == StaticPod:
		return "a static pod is a file of its node: refit does not write it; put the image into the manifest, one node after the other, after a drain"
	case propose:
		return "the track only proposes (spec.mode)"
	}
	return ""
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
