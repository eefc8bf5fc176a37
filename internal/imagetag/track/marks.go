package track

// Marks of a node: how urgent the image is that its pods do not run yet.
const (
	MarkSecurity  = "security"
	MarkAvailable = "available"
)

// Pending is the image that the targets run next: the newest candidate that is not blocked, else
// the approved one. nil if there is none.
func Pending(s State, candidates []Candidate) *Image {
	for i := range candidates {
		switch c := &candidates[i]; c.Class {
		case Security, Rebuild, ImageFix, NewVersion:
			if c.Decision != Blocked {
				return &c.Image
			}
		}
	}
	return s.Approved
}

// Mark is how a node is marked that does not run the image. A label alone does not make it a
// security fix.
func (i *Image) Mark() string {
	if i.Security && i.Vouched {
		return MarkSecurity
	}
	return or(i.Severity, MarkAvailable)
}
