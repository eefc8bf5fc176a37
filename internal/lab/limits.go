package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/refit-dev/refit/internal/lab/cgroups"
)

// All nodes of all labs draw on limits that Linux keeps per user for the whole
// machine. Debian's limit of 128 inotify instances is enough for six nodes: the
// seventh kubelet ends at its start. So the limit is raised while there are
// labs, and set back when the last one is taken down.

const (
	inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"
	wantedInstances  = 4096
	// limitsRecord holds what the limit was; /run is forgotten with the limit itself.
	limitsRecord = "/run/refit-lab-inotify-instances"
)

// raiseLimits must be called when the lab's control group exists.
func raiseLimits(ctx context.Context) error {
	unlock, err := lock(ctx, "/run", "refit-lab-limits")
	if err != nil {
		return err
	}
	defer unlock()
	now, err := readLimit(inotifyInstances)
	if err != nil || now >= wantedInstances {
		return err
	}
	if err := renameio.WriteFile(limitsRecord, []byte(strconv.Itoa(now)), 0o600); err != nil {
		return err
	}
	return os.WriteFile(inotifyInstances, []byte(strconv.Itoa(wantedInstances)), 0)
}

// restoreLimits must be called when the lab's control group is gone. It does
// nothing while there are other labs, or if someone else changed the limit since.
func restoreLimits(ctx context.Context) error {
	unlock, err := lock(ctx, "/run", "refit-lab-limits")
	if err != nil {
		return err
	}
	defer unlock()
	before, err := readLimit(limitsRecord)
	if os.IsNotExist(err) || anyLab() {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := readLimit(inotifyInstances)
	if err != nil {
		return err
	}
	if now == wantedInstances {
		if err := os.WriteFile(inotifyInstances, []byte(strconv.Itoa(before)), 0); err != nil {
			return err
		}
	}
	return os.Remove(limitsRecord)
}

func anyLab() bool {
	all, _ := cgroups.Mounted()
	for _, h := range all {
		if found, _ := filepath.Glob(filepath.Join(h.Mount, groupOf("*"))); len(found) > 0 {
			return true
		}
	}
	return false
}

func readLimit(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
