package audit

import "slices"

// States of a line.
const (
	Unrestartable      = "unrestartable"
	Backwards          = "backwards"
	TagVersionMismatch = "tag-mismatch"
	Skewed             = "skewed"
	Latent             = "latent"
	Unpinned           = "unpinned"
	RollbackLost       = "rollback-lost"
	MirrorBehind       = "mirror-behind"
	Stale              = "stale-same-tag"
	Differs            = "different"
	NewerRev           = "newer-rev"
	NewerApp           = "newer-app"
	Unknown            = "unknown"
	Unasked            = "unasked" // no registry was asked about the tag
	Current            = "current"
)

// states, the worst first: how they are counted, whether they want a person, and
// what to do.
var states = []struct {
	word, says string
	acts       bool
	fix        string
}{
	{Unrestartable, "unable to restart", true, "bring the image to its node and pin it (a bundle, a PinnedImageSet), with imagePullPolicy IfNotPresent"},
	{Backwards, "about to go backwards", true, "find out who moved the tag to an older image; name the running digest until then"},
	{TagVersionMismatch, "with a version mismatch", true, "publish the version that is inside under its own tag, and name that"},
	{Skewed, "skewed between replicas", true, "name one digest in the template and roll it out"},
	{Latent, "changing at the next restart", true, "name the running digest in the template, and move it when you decide"},
	{Unpinned, "not pinned on a site without a registry", true, "pin them: a bundle, or a PinnedImageSet"},
	{RollbackLost, "without a way back", true, "bring the image before this one in a bundle, and pin it, until the next update is done"},
	{MirrorBehind, "waiting for the mirror", true, "synchronise the mirror"},
	{Stale, "with a rebuild", false, "roll out the new digest"},
	{Differs, "different from what the tag means now", false, "check the change, then roll out the wanted digest"},
	{NewerRev, "with a newer definition", false, "roll out the newer image"},
	{NewerApp, "with a newer version", false, "plan the move to the newer version"},
	{Unknown, "of unknown state", false, ""},
	{Unasked, "not compared with a registry", false, "ask: an ImageTrack for the repository, or --published FILE"},
	{Current, "current", false, ""},
}

func index(word string) int {
	for i := range states {
		if states[i].word == word {
			return i
		}
	}
	return len(states)
}

func rank(word string) int { return index(word) }

func needsAction(word string) bool {
	i := index(word)
	return i < len(states) && states[i].acts
}

// stateReason is one state and the sentence behind it.
type stateReason struct{ word, why string }

// setStates puts the worst state first.
func setStates(l *Line, all []stateReason) {
	if len(all) == 0 {
		all = []stateReason{{Current, ""}}
	}
	slices.SortStableFunc(all, func(a, b stateReason) int { return rank(a.word) - rank(b.word) })
	l.State = all[0].word
	for _, s := range all {
		if slices.Contains(l.States, s.word) {
			continue
		}
		l.States = append(l.States, s.word)
		if s.why != "" {
			if l.Message != "" {
				l.Message += "; "
			}
			l.Message += s.why
		}
	}
	if i := index(l.State); i < len(states) {
		l.Fix = states[i].fix
	}
}
