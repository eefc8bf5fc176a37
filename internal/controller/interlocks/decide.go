package interlocks

import (
	"maps"
	"slices"
	"time"
)

const (
	// heldFor is how long a mark on a Machine stands without being renewed, and
	// renewAfter how much of it is left when it is.
	heldFor    = time.Hour
	renewAfter = 30 * time.Minute
)

// Node is what the decision needs of a node.
type Node struct {
	Name string
	// MarkedBy is the UID of the update whose mark the node carries.
	MarkedBy string
	// Busy is true if the node runs steps that it was permitted.
	Busy bool
	// NodePool of Karpenter and Machine of Cluster API ("namespace/name"), empty
	// if none.
	NodePool, Machine string
	Annotations       map[string]string
	// HeldBy is the update that everything is held for already, empty if something
	// is missing.
	HeldBy string
}

// Object is a Machine or a NodePool that is held.
type Object struct {
	// Key as namespace/name, or the name alone.
	Key string
	// By is the update it is held for.
	By string
	// Until when a Machine's mark stands.
	Until time.Time
}

// Input is everything that is seen.
type Input struct {
	Now time.Time
	// Running are the UIDs of updates that have started and not ended.
	Running map[string]bool
	Nodes   []Node
	// Machines and NodePools that are held now.
	Machines, NodePools []Object
}

// Verbs of an Action.
const (
	VerbHold    = "hold"
	VerbRestore = "restore"
)

// Kinds of an Action.
const (
	KindNode     = "Node"
	KindMachine  = "Machine"
	KindNodePool = "NodePool"
)

// Action is one write.
type Action struct {
	Verb, Kind, Key string
	// By is the update it is held for.
	By string
	// Node of a Machine: it must still be that node's.
	Node string
}

// wantedBy is the update that owns a node now, empty if none does: the mark of
// an update that has ended counts only while the node still runs its steps.
func (n Node) wantedBy(running map[string]bool) string {
	if n.MarkedBy != "" && (running[n.MarkedBy] || n.Busy) {
		return n.MarkedBy
	}
	return ""
}

// heldBy is the update that a node is held for with all that it gets, empty if
// something is missing.
func heldBy(annotations map[string]string, nodePool string) string {
	by := owner(annotations)
	if _, missing := hold(annotations, by, wants(nodePool)); missing {
		return ""
	}
	return by
}

// wants are the annotations that a node gets.
func wants(nodePool string) map[string]string {
	out := map[string]string{scaleDownDisabled: "true"}
	if nodePool != "" {
		out[doNotDisrupt] = "true"
	}
	return out
}

// Decide says what must be written so that exactly what running updates own is
// held. With nothing to change it is empty.
func Decide(in Input) []Action {
	var out []Action
	machines, pools := map[string]Action{}, map[string]Action{}
	for _, n := range in.Nodes {
		by := n.wantedBy(in.Running)
		out = append(out, decideNode(n, by)...)
		if by != "" && n.Machine != "" {
			machines[n.Machine] = Action{Verb: VerbHold, Kind: KindMachine, Key: n.Machine, By: by, Node: n.Name}
		}
		if by != "" && n.NodePool != "" {
			pools[n.NodePool] = Action{Verb: VerbHold, Kind: KindNodePool, Key: n.NodePool, By: by}
		}
	}
	out = append(out, reconcileHeld(in.Machines, KindMachine, machines, func(m Object) bool { return m.Until.Sub(in.Now) > renewAfter }, nil)...)
	out = append(out, reconcileHeld(in.NodePools, KindNodePool, pools, func(Object) bool { return true }, in.Running)...)
	for _, set := range []map[string]Action{machines, pools} {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			out = append(out, set[key])
		}
	}
	return out
}

func decideNode(n Node, by string) []Action {
	if by == "" {
		if _, held := restore(n.Annotations); held {
			return []Action{{Verb: VerbRestore, Kind: KindNode, Key: n.Name}}
		}
		return nil
	}
	if by == n.HeldBy {
		return nil
	}
	if _, missing := hold(n.Annotations, by, wants(n.NodePool)); missing {
		return []Action{{Verb: VerbHold, Kind: KindNode, Key: n.Name, By: by}}
	}
	return nil
}

// reconcileHeld removes from wanted the objects that are held and fresh, and returns the
// objects to restore: held, and no longer wanted. Updates in stay keep their objects
// although no node wants them now.
func reconcileHeld(held []Object, kind string, wanted map[string]Action, fresh func(Object) bool, stay map[string]bool) []Action {
	var out []Action
	for _, o := range held {
		switch a, want := wanted[o.Key]; {
		case !want && !stay[o.By]:
			out = append(out, Action{Verb: VerbRestore, Kind: kind, Key: o.Key})
		case want && o.By == a.By && fresh(o):
			delete(wanted, o.Key)
		}
	}
	return out
}
