package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

// LabGroupPrefix begins the name of every lab's control group: by those it is known
// whether there are labs.
const LabGroupPrefix = "refit-lab-"

const (
	inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"
	wantedInstances  = 4096
	limitsLock       = "/run/refit-lab-limits.lock"
	// limitsRecord holds what the limit was; /run is forgotten with the limit itself.
	limitsRecord = "/run/refit-lab-inotify-instances"
)

// RaiseLimits must be called when the lab's control group exists.
func RaiseLimits(ctx context.Context) error {
	unlock, err := AcquireLock(ctx, limitsLock, nil)
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

// RestoreLimits must be called when the lab's control group is gone. It does
// nothing while there are other labs, or if someone else changed the limit since.
func RestoreLimits(ctx context.Context) error {
	unlock, err := AcquireLock(ctx, limitsLock, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if anyLab() {
		return nil
	}
	defer os.Remove(limitsLock) // while it is held
	before, err := readLimit(limitsRecord)
	if errors.Is(err, fs.ErrNotExist) {
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
	all, _ := CgroupHierarchies()
	for _, h := range all {
		if found, _ := filepath.Glob(filepath.Join(h.Mount, LabGroupPrefix+"*")); len(found) > 0 {
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
