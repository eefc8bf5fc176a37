package coldstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Report is what a check of the images found and did: the evidence of a cold start.
type Report struct {
	// BootID of the boot that was checked.
	BootID string `json:"bootID"`
	// At is when the deciding attempt started, Seconds how long all of them took.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	// Unclean: the last shutdown was not clean, or is unknown, so contents were compared
	// and not only sizes.
	Unclean bool `json:"unclean"`
	// Drill that this start was.
	Drill string `json:"drill,omitempty"`
	// OK: the kubelet may start.
	OK bool `json:"ok"`
	// Released says why the kubelet started without a finished check; Off that an
	// administrator has switched it off.
	Released string `json:"released,omitempty"`
	Off      bool   `json:"off,omitempty"`
	// Images that this node has pinned from bundles.
	Images int `json:"images"`
	// Layers that were compared; Files whose content was, and their Bytes.
	// Unchecked layers are those whose content this node does not know.
	Layers    int   `json:"layers"`
	Files     int   `json:"files"`
	Bytes     int64 `json:"bytes"`
	Unchecked int   `json:"unchecked,omitempty"`
	// Damage that was found, in one sentence each.
	Damage []string `json:"damage,omitempty"`
	// Restored images; Missing ones could not be.
	Restored []Restored `json:"restored,omitempty"`
	Missing  []Problem  `json:"missing,omitempty"`
}

// Restored is an image that was restored.
type Restored struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
	// How it was restored.
	How string `json:"how"`
}

// Problem is an image that is not intact.
type Problem struct {
	Image string `json:"image"`
	Why   string `json:"why"`
}

// write stamps this boot as checked, in memory and first: with the stamp the kubelet
// starts even if the disk fails. The report on disk is best effort.
func (r Report) write(o Options) error {
	c := o.Config
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report of the images: %w", err)
	}
	if err := fsutil.WriteFile(stampPath(c), b, 0o644); err != nil {
		o.Log.Error("failed to write the stamp; the next start of the kubelet checks again", "error", err)
	}
	// A clean shutdown says nothing about the next one.
	err = os.Remove(c.Path(cleanFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, fsutil.WriteFile(c.Path(reportFile), b, 0o600), recordDrillDone(c, r))
	if err != nil {
		o.Log.Error("failed to write the report to disk", "error", err)
		statefile.At(c.RunPath()).Add(statefile.NotWritable(c.Path(reportFile), err))
	}
	return nil
}

// ReadReport returns the last report of a node: that of this boot, which is in memory, or
// else the one on disk; fs.ErrNotExist if there is none.
func ReadReport(c agentconfig.Config) (Report, error) {
	if r, err := readReport(stampPath(c)); err == nil {
		return r, nil
	}
	return readReport(c.Path(reportFile))
}

// ReleasedByUnit returns why the kubelet's unit gave up the check in this boot; empty if it
// did not.
func ReleasedByUnit(c agentconfig.Config, bootID string) string {
	b, err := os.ReadFile(c.RunPath(releasedFile))
	boot, why, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if err != nil || boot != bootID {
		return ""
	}
	return why
}

func readReport(path string) (Report, error) {
	var r Report
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Done is the report of this boot, if it was checked and the kubelet may start.
func Done(c agentconfig.Config, bootID string) (Report, bool) {
	r, err := readReport(stampPath(c))
	return r, err == nil && r.OK && r.BootID == bootID
}

// uncleanShutdown reports whether the last shutdown was not clean, as far as is known.
func uncleanShutdown(c agentconfig.Config) bool {
	b, err := os.ReadFile(c.Path(cleanFile))
	last, lastErr := readReport(c.Path(reportFile))
	return err != nil || lastErr != nil || strings.TrimSpace(string(b)) != last.BootID
}

// RecordShutdown records that the machine shuts down cleanly; called while it goes down.
func RecordShutdown(c agentconfig.Config, bootID string) error {
	if err := fsutil.SyncFS(c.StateDir); err != nil {
		return err
	}
	return fsutil.WriteFile(c.Path(cleanFile), []byte(bootID+"\n"), 0o600)
}

// Indexer keeps indexes of the layers of pinned images, so that they can be compared later
// without unpacking anything, and without a copy of the blobs.
type Indexer struct {
	Config  agentconfig.Config
	Runtime interface {
		Parts(ctx context.Context, img cri.Target) ([]cri.Part, error)
	}
	Log *slog.Logger

	// images are those whose layers were indexed, indexed the layers.
	images, indexed map[string]bool
}

// Index makes the missing indexes and removes those of other layers. It is the slow part of
// a check, done while nothing waits for it.
func (x *Indexer) Index(ctx context.Context, images []model.PinSetImage, lib *bundlestore.Library) {
	all := map[string]bool{}
	for _, img := range images {
		all[pin.Key(img)] = true
	}
	if maps.Equal(all, x.images) {
		return
	}
	shelf := LayerIndexDir(x.Config.Path(indexDir))
	wanted := map[string]bool{}
	c := &check{Options: Options{Config: x.Config, Log: x.Log}, lib: lib, index: shelf}
	for _, img := range images {
		parts, err := x.Runtime.Parts(ctx, cri.Target{Name: img.Name, Digest: img.Digest})
		if err != nil {
			return // tried again when all images are pinned again
		}
		for _, p := range parts {
			if p.Dir == "" || wanted[p.Digest] {
				continue
			}
			wanted[p.Digest] = true
			if x.indexed[p.Digest] {
				continue
			}
			if _, err := c.layerIndex(ctx, p.Digest, parts); err != nil {
				x.Log.Warn("failed to index a layer for later checks", "image", img.Name, "error", err)
				return // tried again
			}
		}
	}
	x.images, x.indexed = all, wanted
	if err := shelf.Retain(wanted); err != nil {
		x.Log.Warn("failed to remove the indexes of old layers", "error", err)
	}
}
