package statuspage

import "github.com/refit-dev/refit/internal/explain"

// technicianView is the technician's view of all nodes, for the page and for events.
type technicianView struct {
	Sentence string            `json:"sentence"`
	Tone     string            `json:"colour"`
	Sign     string            `json:"-"`
	Progress *explain.Progress `json:"-"`
	Percent  int               `json:"percent"`
	Medium   string            `json:"medium,omitempty"`
}

// technician makes the technician's view.
func (st *state) technician() technicianView {
	media := make([]string, 0, len(st.media))
	for _, m := range st.media {
		media = append(media, m.State)
	}
	t := explain.MakeTechnician(&st.view, media)
	out := technicianView{Sentence: t.Sentence, Tone: tones[t.Colour], Sign: explain.Signs[t.Colour], Progress: t.Progress, Medium: t.Medium}
	if out.Progress != nil {
		out.Percent = out.Progress.Percent
	}
	return out
}
