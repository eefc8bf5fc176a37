package startuptaint

// NoAgent is what is noted of a node that was let in because nothing was asked of it.
const NoAgent = "-"

// Facts of a node.
type Facts struct {
	// Tainted: it carries the taint. ByPool: refit set it because a pool asks;
	// otherwise its kubelet registered with it.
	Tainted, ByPool bool
	// Asks: a pool that it is in wants nodes to hold first.
	Asks bool
	// First: it is younger than that pool, and nobody has told it anything yet.
	First bool
	// Held: it has proven, since it booted, that it holds all that it is to hold; or
	// nothing is asked of it.
	Held bool
	// Key of the agent that speaks since it booted, empty while none does.
	Key string
	// Admitted is the key that was noted when it was let in, empty if it never was.
	Admitted string
}

// Action is what becomes of a node.
type Action string

// Actions.
const (
	// Leave it as it is.
	Leave Action = ""
	// KeepOut: it gets the taint, because it is new.
	KeepOut Action = "KeepOut"
	// KeepOutAgain: it gets the taint, because its store is another one.
	KeepOutAgain Action = "KeepOutAgain"
	// LetIn: it loses the taint, and the key is noted.
	LetIn Action = "LetIn"
	// Note the key; there is no taint.
	Note Action = "Note"
	// Drop the taint: nobody asks for it any more.
	Drop Action = "Drop"
)

// Decide says what becomes of a node.
func Decide(f Facts) Action {
	switch {
	case f.Tainted:
		return f.kept()
	case !f.Asks:
		return Leave
	case f.Held && (f.Key == "" || f.Key == f.Admitted):
		return Leave
	case f.Held:
		return Note
	case f.First && f.Admitted == "":
		return KeepOut
	case f.lostStore():
		return KeepOutAgain
	}
	return Leave
}

// kept is what becomes of a node that carries the taint.
func (f Facts) kept() Action {
	switch {
	case f.Held:
		return LetIn
	case f.ByPool && !f.Asks:
		return Drop
	}
	return Leave
}

// lostStore: another key than the one that was let in means that the disk with the
// agent's store is another one. A store that the agent lost together with its images
// it fills again before the kubelet starts.
func (f Facts) lostStore() bool {
	return f.Key != "" && f.Key != f.Admitted && f.Admitted != "" && f.Admitted != NoAgent
}

// Noted is what is written down of a node that is let in.
func (f Facts) Noted() string {
	if f.Key == "" {
		return NoAgent
	}
	return f.Key
}
