package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
)

// mendPulls removes the kubelet's records by which it would pull images again
// that are here (see kube.UncreditedPulls), and restarts it: it keeps them in
// memory. Pods go on meanwhile. note is a file that is there from the first
// removal until the restart was carried out, so that whoever comes after a crash
// in between restarts it. The kubelet's own notes of pulls of these names go too,
// or it would make the records anew at its start.
func (h *nodeHost) mendPulls(ctx context.Context, note string, ids, names []string) (mended int, err error) {
	if kube.PullVerification(h.paths) == kube.NeverVerify {
		return 0, nil
	}
	records, err := kube.UncreditedPulls(h.paths, ids)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(note); err != nil && len(records) == 0 {
		return 0, nil
	}
	if err := fsutil.WriteFile(note, []byte("the kubelet is to be restarted\n"), 0o600); err != nil {
		return 0, err
	}
	for _, path := range append(records, kube.PullIntents(h.paths, names)...) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("the kubelet's records of pulled images: %w", err)
		}
	}
	if err := h.restartKubelet(ctx); err != nil {
		return 0, fmt.Errorf("the kubelet keeps records of images that it would pull again: %w", err)
	}
	return len(records), os.Remove(note)
}
