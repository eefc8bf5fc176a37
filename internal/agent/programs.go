package agent

import (
	"context"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// programNeeds adds the room to replace the node's programs. The new programs need room next to
// the old ones, and the store keeps a copy of each old one for an undo. Only the first bundle,
// the desired one, replaces programs.
func (sc *spaceChecker) programNeeds(ctx context.Context, w *desired.State, out map[string]int64) {
	if sc.place == nil || len(w.Spec.Bundles) == 0 {
		return
	}
	s := sc.library.Shelf(w.Spec.Bundles[0].Digest)
	if s == nil {
		return
	}
	out[pin.ProgramsFS] = 0
	for _, held := range w.Pins.Payloads {
		path := sc.place(ctx, held.Name)
		p := s.Bundle().PayloadByName(held.Name, platform())
		if path == "" || p == nil || held.Digest != p.Digest {
			continue
		}
		if have, err := sc.digests.DigestOf(path); err == nil && have == p.Digest {
			continue
		}
		out[pin.ProgramsFS] += p.Size
		if st, err := os.Stat(path); err == nil {
			out[pin.StateFS] += st.Size()
		}
	}
}

// programsDir returns the directory of the kubelet and the programs next to it; "" if it is
// unknown.
func (sc *spaceChecker) programsDir(ctx context.Context) string {
	if sc.place == nil {
		return ""
	}
	if path := sc.place(ctx, kubeletProgram); path != "" {
		return filepath.Dir(path)
	}
	return ""
}

const kubeletProgram = "kubelet"
