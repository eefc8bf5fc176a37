package agent

import (
	"context"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// programNeeds adds the room that replacing the node's programs takes: the new
// ones beside the old in their directory, and a copy of each old one in our own
// store, so that it can be put back. Only the wanted bundle's: it is the first.
func (a *Agent) programNeeds(ctx context.Context, w *desired.State, out map[string]int64) {
	if a.place == nil || len(w.Spec.Bundles) == 0 {
		return
	}
	s := a.library.Shelf(w.Spec.Bundles[0].Digest)
	if s == nil {
		return
	}
	out[pin.ProgramsFS] = 0
	for _, held := range w.Hold.Payloads {
		path := a.place(ctx, held.Name)
		p := s.Bundle().PayloadByName(held.Name, platform())
		if path == "" || p == nil || held.Digest != p.Digest {
			continue
		}
		if have, err := a.digests.Of(path); err == nil && have == p.Digest {
			continue
		}
		out[pin.ProgramsFS] += p.Size
		if st, err := os.Stat(path); err == nil {
			out[pin.StateFS] += st.Size()
		}
	}
}

// programsDir is where the kubelet is, and what is replaced with it; "" if that
// is not known.
func (a *Agent) programsDir(ctx context.Context) string {
	if a.place == nil {
		return ""
	}
	if path := a.place(ctx, kubeletProgram); path != "" {
		return filepath.Dir(path)
	}
	return ""
}

const kubeletProgram = "kubelet"
