package updateplan

import (
	"fmt"
	"maps"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Question is what an updater is asked about one node.
type Question struct {
	// Input is what is known of the cluster; nil if only the node is known.
	Input *Input
	Node  Node
	// Current is the node as the claims before have left it.
	Current Fields
	Desired Fields
	// Left are the differences that no updater has claimed yet, by path.
	Left []model.Change
	// First is true for the node on which kubeadm moves the cluster's own
	// configuration.
	First bool
}

// ChangesBelow returns the differences left whose path begins so.
func (q Question) ChangesBelow(prefix string) []model.Change {
	var out []model.Change
	for _, c := range q.Left {
		if strings.HasPrefix(c.Path, prefix) {
			out = append(out, c)
		}
	}
	return out
}

// Claim is what an updater answers.
type Claim struct {
	// Steps with the changes each of them makes: the patch. An updater makes one
	// step for what is done in one go: a node runs at most 32. Updater and By are
	// filled in.
	Steps []model.Step
	// Refusals say why a path that it knows cannot be moved, or not yet.
	Refusals []Refusal
	// Blockers are what is missing although the claim stands, such as a payload.
	Blockers []model.Blocker
}

// Refusal is why an updater does not move a path.
type Refusal struct {
	Path string
	// Why is a half sentence; Fix says what would help, may be empty.
	Why, Fix string
}

// Updater claims parts of a difference. Its other half, which runs on the node,
// is in updaters/ and has the same name.
type Updater struct {
	Name string
	// Claim is asked once and again, as long as any updater moves anything. It
	// must be a function of the question.
	Claim func(Question) Claim
}

// Builtin are the updaters in the order in which they are asked. Adding one is
// one file, one line here and a pass of the conformance tests.
func Builtin() []Updater {
	return []Updater{programsUpdater(), supervisorUpdater(), controlPlaneUpdater(), kubeadmUpdater(), kubeletUpdater(), sandboxUpdater(), kubeletConfigUpdater(), filesUpdater(), certificatesUpdater(), osImageUpdater()}
}

// Covered is what came of asking all updaters about one node.
type Covered struct {
	// Steps in the order in which they run, each with its changes.
	Steps []model.Step
	// Left are the differences that no updater claimed.
	Left []model.Change
	// Blockers: one for every difference that is left, and what claims miss.
	Blockers []model.Blocker
}

// Cover asks the updaters about a node until nothing moves. Every change that is
// taken brings a path from what it is to what is desired, so a path has one
// owner, and asking comes to an end.
func Cover(list []Updater, q Question) Covered {
	c := cover{q: q, ids: map[string]int{}}
	c.q.Current = Fields{}
	maps.Copy(c.q.Current, q.Current)
	for moved := true; moved; {
		moved = false
		c.refused = map[string][]refused{}
		for _, u := range list {
			c.q.Left = Differences(c.q.Current, c.q.Desired)
			if len(c.q.Left) > 0 && c.askUpdater(u) {
				moved = true
			}
		}
	}
	c.out.Left = Differences(c.q.Current, c.q.Desired)
	for _, d := range c.out.Left {
		c.out.Blockers = append(c.out.Blockers, uncovered(q.Node, d, c.refused[d.Path]))
	}
	if n := len(c.out.Steps); n > maxSteps {
		c.out.Blockers = append(c.out.Blockers, model.Blocker{Reason: reasonNoUpdater, Object: "Node/" + q.Node.Name,
			Message: fmt.Sprintf("the updaters split what node %s needs into %d steps, and a node is given at most %d", q.Node.Name, n, maxSteps),
			Fix:     "let an updater do in one step what is done in one go, or make several updates of it"})
	}
	return c.out
}

// maxSteps is how many a node's run may have, less the one that settles it.
const maxSteps = 31

type refused struct{ updater, why, fix string }

type cover struct {
	q       Question
	out     Covered
	ids     map[string]int
	refused map[string][]refused
}

// askUpdater one updater; moved says whether it took anything.
func (c *cover) askUpdater(u Updater) (moved bool) {
	q := c.q
	q.Current, q.Desired = maps.Clone(q.Current), maps.Clone(q.Desired)
	claim := u.Claim(q)
	for _, r := range claim.Refusals {
		c.refused[r.Path] = append(c.refused[r.Path], refused{u.Name, r.Why, r.Fix})
	}
	for _, s := range claim.Steps {
		if why := c.invalidStep(s); why != "" {
			for _, d := range s.Changes {
				c.refused[d.Path] = append(c.refused[d.Path], refused{u.Name, why, "fix the updater"})
			}
			continue
		}
		c.addStep(u, s)
		moved = true
	}
	if moved {
		c.out.Blockers = append(c.out.Blockers, claim.Blockers...)
	}
	return moved
}

// invalidStep says why a step's changes are not those of the question, "" if they are.
func (c *cover) invalidStep(s model.Step) string {
	if len(s.Changes) == 0 {
		return "its step " + s.ID + " changes nothing"
	}
	seen := map[string]bool{}
	for _, d := range s.Changes {
		want, wanted := c.q.Desired[d.Path]
		switch have := c.q.Current[d.Path]; {
		case !wanted || seen[d.Path] || Equal(d.Path, have, want):
			return "its step " + s.ID + " claims " + d.Path + ", which is not left to change"
		case d.From != have || d.To != want:
			return fmt.Sprintf("its step %s moves %s from %s to %s, and it was asked for %s to %s", s.ID, d.Path, displayValue(d.From), displayValue(d.To), displayValue(have), displayValue(want))
		}
		seen[d.Path] = true
	}
	return ""
}

func (c *cover) addStep(u Updater, s model.Step) {
	s.Updater = u.Name
	if s.By == "" {
		s.By = model.ByAgent
	}
	if s.ID == "" {
		s.ID = u.Name
	}
	if s.Disruption == "" {
		s.Disruption = model.DisruptionDrain // the updater named none: assume the careful one
	}
	c.ids[s.ID]++
	if n := c.ids[s.ID]; n > 1 {
		s.ID = fmt.Sprintf("%s-%d", s.ID, n)
		c.ids[s.ID]++
	}
	for _, d := range s.Changes {
		c.q.Current[d.Path] = d.To
	}
	c.out.Steps = append(c.out.Steps, s)
}

// uncovered names a path that no updater moves, with the updaters' reasons.
func uncovered(n Node, d model.Change, why []refused) model.Blocker {
	v := model.Blocker{
		Reason:  reasonNoUpdater,
		Message: fmt.Sprintf("no updater covers %s of node %s (%s -> %s)", d.Path, n.Name, displayValue(d.From), displayValue(d.To)),
		Fix:     "change what is wanted of " + d.Path + ", or register an updater that covers it",
		Object:  "Node/" + n.Name,
		Waiting: waitsForOffer(n, d.Path),
	}
	said := make([]string, 0, len(why))
	for _, w := range why {
		said = append(said, w.updater+": "+w.why)
		if w.fix != "" {
			v.Fix = w.fix
		}
	}
	if len(said) > 0 {
		v.Message += ": " + strings.Join(said, "; ")
	}
	return v
}
