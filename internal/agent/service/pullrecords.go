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

// repairPulls removes the kubelet's records by which it would pull images again that are here
// (see kube.UncreditedPulls). It restarts the kubelet, which has them in memory; pods continue
// meanwhile. The file note exists from the first removal until the restart, so that the agent
// restarts the kubelet also after a crash in between. It also removes the kubelet's pull intents
// for these names, because the kubelet would recreate the records from them.
func (h *nodeHost) repairPulls(ctx context.Context, note string, ids, names []string) (removed int, err error) {
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
	if err := fsutil.WriteFile(note, []byte("restart the kubelet\n"), 0o600); err != nil {
		return 0, err
	}
	for _, path := range append(records, kube.PullIntents(h.paths, names)...) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("remove the kubelet's records of pulled images: %w", err)
		}
	}
	if err := h.restartKubelet(ctx); err != nil {
		return 0, fmt.Errorf("restart the kubelet, which has removed pull records in memory: %w", err)
	}
	return len(records), os.Remove(note)
}
