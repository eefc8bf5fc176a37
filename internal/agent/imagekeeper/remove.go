package imagekeeper

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Remover is a Runtime that can remove images.
type Remover interface {
	// Remove removes an image with all its names. One that is missing is no error.
	Remove(ctx context.Context, name string) error
	// Used returns the IDs, names and digests of images that containers were made from,
	// also of containers that ended.
	Used(ctx context.Context) (map[string]bool, error)
}

// loadedFile lists the images that refit loaded from bundles itself: only those are removed.
const loadedFile = "loaded.json"

// loadedImages has, by pin.Key, since when no pin set wants an image; zero while one does.
type loadedImages map[string]time.Time

func readLoaded(path string, note statefile.Note) loadedImages {
	l := loadedImages{}
	ok := statefile.Read(path, "images that refit loaded before are left to the kubelet's garbage collection", func(b []byte) error {
		if err := json.Unmarshal(b, &l); err != nil {
			return err
		}
		if l == nil {
			return errors.New("it is not a list of images")
		}
		return nil
	}, note)
	if !ok {
		return loadedImages{}
	}
	return l
}

// recordLoaded notes that refit loaded an image of a bundle. Without the record the image
// only stays longer, so a full disk is no error.
func (k *Keeper) recordLoaded(img model.PinSetImage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := pin.Key(img)
	if at, ok := k.loaded[key]; ok && at.IsZero() {
		return
	}
	k.loaded[key] = time.Time{}
	k.saveLoaded()
}

func (k *Keeper) saveLoaded() {
	b, err := json.MarshalIndent(k.loaded, "", " ")
	if err == nil {
		err = fsutil.WriteFile(filepath.Join(filepath.Dir(k.path), loadedFile), b, 0o600)
	}
	k.loadedUnsaved = err != nil
}

// RemoveUnused removes images that refit loaded, that no pin set has wanted for the grace
// time, and that nothing on the node needs. It returns their names. Images in use stay until
// a later call.
func (k *Keeper) RemoveUnused(ctx context.Context, want []model.PinSetImage, grace time.Duration) (removed []string, err error) {
	rt, can := k.runtime.(Remover)
	due := k.due(want, grace)
	if !can || len(due) == 0 {
		return nil, nil
	}
	used, err := rt.Used(ctx)
	if err != nil {
		return nil, err
	}
	have, err := k.runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	r := pin.Removable(due, want, have, used)
	gone := r.Forget
	for _, key := range r.Remove {
		name, _, _ := strings.Cut(key, "@")
		if err = rt.Remove(ctx, name); err != nil {
			break
		}
		failpoint.Here(failpoint.ImageRemoved)
		gone, removed = append(gone, key), append(removed, name)
	}
	k.forget(gone)
	return removed, err
}

// due updates since when images are not wanted, and returns those whose grace time is over.
func (k *Keeper) due(want []model.PinSetImage, grace time.Duration) (due []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted, changed := keysOf(want), k.loadedUnsaved
	for _, key := range slices.Sorted(maps.Keys(k.loaded)) {
		since := k.loaded[key]
		switch {
		case wanted[key] && !since.IsZero():
			k.loaded[key], changed = time.Time{}, true
		case wanted[key] || len(k.own[key]) > 0: // what carries a pin is released first
		case since.IsZero() || since.After(time.Now()): // a clock that was set back
			k.loaded[key], changed = time.Now(), true
			if grace == 0 {
				due = append(due, key)
			}
		case time.Since(since) >= grace:
			due = append(due, key)
		}
	}
	if changed {
		k.saveLoaded()
	}
	return due
}

func keysOf(images []model.PinSetImage) map[string]bool {
	out := map[string]bool{}
	for _, img := range images {
		out[pin.Key(img)] = true
	}
	return out
}

func (k *Keeper) forget(keys []string) {
	if len(keys) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		delete(k.loaded, key)
	}
	k.saveLoaded()
}

// Used lists the images of all containers.
func (c Containerd) Used(ctx context.Context) (map[string]bool, error) {
	return usedImages(ctx, c.CRI())
}

// Used lists the images of all containers.
func (c CRIO) Used(ctx context.Context) (map[string]bool, error) { return usedImages(ctx, c.CRI()) }

func usedImages(ctx context.Context, c *cri.Client) (map[string]bool, error) {
	all, err := c.Containers(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, k := range all {
		used[k.ImageID], used[k.Image] = true, true
	}
	delete(used, "")
	return used, nil
}
