package model

// Blocker is the universal "no" or "not yet".
type Blocker struct {
	// Reason is a word of the catalogue (api/v1alpha1, Reason...).
	Reason string `json:"reason"`
	// Message is one sentence: what, where, how much. It holds no time and no
	// text that changes from one look to the next.
	Message string `json:"message"`
	// Fix says what would unblock it; empty if waiting is enough.
	Fix string `json:"fix,omitempty"`
	// Object the blocker is about, as kind/name or kind/namespace/name.
	Object string `json:"object,omitempty"`
	// Waiting is true if it resolves by itself, false if a person must act.
	Waiting bool `json:"waiting,omitempty"`
}

// NeedsPerson reports whether any blocker needs a person.
func NeedsPerson(vs []Blocker) bool {
	for _, v := range vs {
		if !v.Waiting {
			return true
		}
	}
	return false
}
