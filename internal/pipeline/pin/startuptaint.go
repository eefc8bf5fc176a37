package pin

// NoAgentKey is recorded for a node that was admitted because no pool asked for its
// images.
const NoAgentKey = "-"

// TaintFacts of a node.
type TaintFacts struct {
	// Tainted: the node has the taint. ByPool: refit set the taint because a pool asks for it;
	// otherwise the kubelet registered with it.
	Tainted, ByPool bool
	// PoolAsks: a pool of the node asks for the startup taint.
	PoolAsks bool
	// New: the node is younger than that pool and has no desired state yet.
	New bool
	// ImagesReady: the agent reported since the boot of the node that its pin set is complete,
	// or the node has no pin set.
	ImagesReady bool
	// Key of the agent that reported since the boot of the node, empty before its first report.
	Key string
	// AdmittedKey is the key that refit recorded when it removed the taint, empty if it never did.
	AdmittedKey string
}

// TaintAction is a change of the startup taint of a node.
type TaintAction string

// Actions.
const (
	// LeaveTaint changes nothing.
	LeaveTaint TaintAction = ""
	// AddTaint adds the taint because the node is new.
	AddTaint TaintAction = "AddTaint"
	// AddTaintAgain adds the taint because the image store of the node was replaced.
	AddTaintAgain TaintAction = "AddTaintAgain"
	// AdmitNode removes the taint and records the key.
	AdmitNode TaintAction = "AdmitNode"
	// RecordKey records the key of a node without the taint.
	RecordKey TaintAction = "RecordKey"
	// DropTaint removes the taint because no pool asks for it any more.
	DropTaint TaintAction = "DropTaint"
)

// DecideTaint decides the change of the startup taint of a node.
func DecideTaint(f TaintFacts) TaintAction {
	switch {
	case f.Tainted:
		return f.decideTainted()
	case !f.PoolAsks:
		return LeaveTaint
	case f.ImagesReady && (f.Key == "" || f.Key == f.AdmittedKey):
		return LeaveTaint
	case f.ImagesReady:
		return RecordKey
	case f.New && f.AdmittedKey == "":
		return AddTaint
	case f.lostStore():
		return AddTaintAgain
	}
	return LeaveTaint
}

// decideTainted decides for a node with the taint.
func (f TaintFacts) decideTainted() TaintAction {
	switch {
	case f.ImagesReady:
		return AdmitNode
	case f.ByPool && !f.PoolAsks:
		return DropTaint
	}
	return LeaveTaint
}

// lostStore reports whether the disk with the agent's store was replaced: the key then
// differs from the recorded one. An agent that lost its store together with its images fills
// it again before the kubelet starts.
func (f TaintFacts) lostStore() bool {
	return f.Key != "" && f.Key != f.AdmittedKey && f.AdmittedKey != "" && f.AdmittedKey != NoAgentKey
}

// KeyToRecord returns the key that refit records when it removes the taint.
func (f TaintFacts) KeyToRecord() string {
	if f.Key == "" {
		return NoAgentKey
	}
	return f.Key
}
