package statuspage

import (
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
)

// technicianView is what a person without Kubernetes needs: one sentence, one colour, how far
// it is, and whether the medium may go.
type technicianView struct {
	Sentence string    `json:"sentence"`
	Tone     string    `json:"colour"`
	Sign     string    `json:"-"`
	Progress *progress `json:"-"`
	Percent  int       `json:"percent"`
	Medium   string    `json:"medium,omitempty"`
}

// Signs say the same as the colours, for those who do not see them.
var signs = map[string]string{toneOK: "✓", toneRun: "…", toneWait: "!", toneBad: "×"}

const (
	mediumStay = "Leave the USB stick in the machine."
	mediumPull = "You may pull the USB stick."
)

// technician makes the technician's view.
func (st *state) technician() technicianView {
	v := &st.view
	out := technicianView{Sentence: sentenceOf(st), Tone: tones[v.Colour], Progress: st.progress(), Medium: st.mediumAdvice()}
	out.Sign = signs[out.Tone]
	if out.Progress != nil {
		out.Percent = out.Progress.Percent
	}
	return out
}

// sentences of the phases of an update.
var sentences = map[string]string{
	v1alpha1.PhaseDone:     "Done: all machines are updated.",
	v1alpha1.PhaseHalted:   "The update has stopped: call the administrator.",
	v1alpha1.PhaseBlocked:  "The update cannot go on: call the administrator.",
	v1alpha1.PhaseReady:    "The machines are prepared, and the administrator starts the update.",
	"Starting":             "The update starts now: leave the machines on.",
	v1alpha1.PhaseUpdating: "The update is running: leave the machines on.",
}

func sentenceOf(st *state) string {
	v := &st.view
	if v.Phase == "Idle" {
		return idleSentence(v)
	}
	if v.Paused && v.Phase != v1alpha1.PhaseDone {
		return "The administrator paused the update: please wait."
	}
	if s, ok := sentences[v.Phase]; ok {
		return s
	}
	return "The machines are preparing the update: please wait."
}

func idleSentence(v *explain.View) string {
	inUse := func(b explain.Bundle) bool { return b.Use != "Released" && b.Digest != "" }
	switch i := slices.IndexFunc(v.Bundles, inUse); {
	case i < 0:
		return "Plug the USB stick into any machine."
	case !v.Bundles[i].Approved:
		return "The USB stick was found, and the administrator must approve it."
	}
	return "The USB stick was accepted, and the administrator plans the update."
}

// mediumAdvice says whether the medium may go, "" without a medium. It may when every node has
// all that it needs, or when all media were refused. A bundle that is not approved has not been
// copied.
func (st *state) mediumAdvice() string {
	is := func(states ...string) func(mediumRow) bool {
		return func(m mediumRow) bool { return slices.Contains(states, m.State) }
	}
	switch {
	case len(st.media) == 0:
		return ""
	case slices.ContainsFunc(st.media, is(v1alpha1.MediumFound, v1alpha1.MediumCopying)), slices.ContainsFunc(st.view.Nodes, needsMedium):
		return mediumStay
	}
	wanted := slices.ContainsFunc(st.view.Nodes, func(n explain.Node) bool { return n.ImagesTotal > 0 || n.BytesTotal > 0 })
	if wanted || !slices.ContainsFunc(st.media, is(v1alpha1.MediumCopied)) {
		return mediumPull
	}
	return mediumStay
}

// needsMedium reports whether a node may still need bytes of a medium.
func needsMedium(n explain.Node) bool {
	return n.Phase == noAgent || n.BytesDone < n.BytesTotal || n.ImagesPinned < n.ImagesTotal
}
