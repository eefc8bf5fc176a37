package preflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/config"
	"github.com/refit-dev/refit/internal/agent/told"
	"github.com/refit-dev/refit/internal/host/cri"
	"github.com/refit-dev/refit/internal/host/disk"
	"github.com/refit-dev/refit/internal/host/layers"
	"github.com/refit-dev/refit/internal/model"
	load "github.com/refit-dev/refit/internal/pipeline/load/agent"
	decide "github.com/refit-dev/refit/internal/pipeline/pin"
	pin "github.com/refit-dev/refit/internal/pipeline/pin/agent"
)

// Runtime is what is asked of a node's container runtime.
type Runtime interface {
	pin.Runtime
	// Parts of an image in the runtime's store; cri.ErrNoImage if it is not there.
	Parts(ctx context.Context, img cri.Target) ([]cri.Part, error)
	// Refresh has the runtime look again at an image that was put back.
	Refresh(ctx context.Context, img cri.Target) error
	// Remove takes an image out, by name.
	Remove(ctx context.Context, name string) error
	// RemovePods takes away the pods of before a restart; the kubelet makes new ones.
	RemovePods(ctx context.Context) error
}

// Options of Run.
type Options struct {
	Config  config.Config
	Runtime Runtime
	// BootID of the machine.
	BootID string
	// Patience is how long images that cannot be put back are waited for.
	Patience time.Duration
	// Pause between two tries.
	Pause time.Duration
	Log   *slog.Logger
}

// Files below the state directory, and the stamp below the run directory.
const (
	reportFile = "preflight.json"
	cleanFile  = "clean-end"
	// LockFile is held by who changes images: this check, or the agent.
	LockFile = "hold.lock"
	// indexDir holds the indexes of layers.
	indexDir = "layers"
)

// attemptTime bounds one look: a runtime that hangs is asked anew.
const attemptTime = 30 * time.Minute

func platform() string { return "linux/" + runtime.GOARCH }

// Run looks, and returns when the kubelet may start, or with the context.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := os.MkdirAll(o.Config.StateDir, 0o700); err != nil {
		return Report{}, fmt.Errorf("state directory: %w", err)
	}
	begin := time.Now()
	c := &check{Options: o, whole: map[string]bool{}, reloaded: map[string]bool{}, deep: unclean(o.Config)}
	if c.deep {
		o.Log.Info("the machine's last end was no orderly one, or is not known: contents are compared")
	}
	for ctx.Err() == nil {
		if r, done := Done(o.Config, o.BootID); done {
			return r, nil
		}
		r, err := c.attempt(ctx, time.Since(begin) >= o.Patience)
		switch {
		case err != nil && ctx.Err() == nil:
			o.Log.Error("the kubelet waits: images cannot be looked at; it is tried again", "because", err)
		case err == nil && (r.OK || len(r.Missing) == 0):
			r.Seconds = time.Since(begin).Seconds()
			return r, r.write(o.Config)
		case err == nil:
			o.Log.Warn("the kubelet waits for images that this node has no copy of", "images", len(r.Missing), "first", r.Missing[0].Image, "because", r.Missing[0].Why, "until", begin.Add(o.Patience).Format(time.TimeOnly))
		}
		sleep(ctx, o.Pause)
	}
	return Report{}, ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// check is one run over all tries.
type check struct {
	Options
	deep bool
	// played: the images were taken out for a drill.
	played bool
	whole  map[string]bool // files and directories that were found or made right
	// reloaded are images that were taken out to be loaded anew.
	reloaded map[string]bool
	lib      *load.Library
	src      source
	index    layers.Shelf
	// report of this try; what was done in earlier ones is carried over.
	report Report
}

// attempt looks at everything once and puts back what can be. last: what is torn
// and cannot be put back is taken out, and that is the end.
func (c *check) attempt(ctx context.Context, last bool) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	unlock, err := awaitLock(ctx, c.Config.Path(LockFile))
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if r, done := Done(c.Config, c.BootID); done { // another run came first
		return r, nil
	}
	c.report = Report{BootID: c.BootID, At: time.Now(), Unclean: c.deep, Restored: c.report.Restored, Damage: c.report.Damage, Files: c.report.Files, Bytes: c.report.Bytes, Layers: c.report.Layers}
	w, err := told.Read(c.Config.Path("want.json"))
	if err != nil {
		// The API server may be on this very node: it must come up to tell anew.
		c.Log.Error("what this node was told is unreadable, so nothing is compared", "because", err)
		w = nil
	}
	if w == nil {
		c.report.OK = true
		return c.report, nil
	}
	if c.lib, err = load.OpenLibrary(c.Config.StateDir, c.Log); err != nil {
		return Report{}, err
	}
	for name, err := range w.Shelve(c.lib) {
		c.Log.Error("an image that was made on the site cannot be put together", "image", name, "because", err)
	}
	c.src, c.index = source{c.lib, authority.Stored(c.Config.Path(authority.File), c.lib.Digests(), w.Trust)}, layers.Shelf(c.Config.Path(indexDir))
	return c.report, c.look(ctx, w.Hold.Images, last)
}

// look fills the report.
func (c *check) look(ctx context.Context, images []model.HeldImage, last bool) error {
	if err := c.play(ctx, images); err != nil {
		return err
	}
	problems, err := c.images(ctx, images)
	if err != nil {
		return err
	}
	if last {
		if err := c.takeOut(ctx, images, problems); err != nil {
			return err
		}
	}
	if err := c.loadMissing(ctx, images, problems); err != nil {
		return err
	}
	for _, img := range images {
		if !img.Registry {
			c.report.Images++
		}
		if why := problems[img.Name]; why != "" {
			c.report.Missing = append(c.report.Missing, Problem{Image: img.Name, Why: why})
		}
	}
	c.report.OK = last || len(c.report.Missing) == 0
	return nil
}

// images makes whole what can be, and says what cannot.
func (c *check) images(ctx context.Context, images []model.HeldImage) (problems map[string]string, err error) {
	problems = map[string]string{}
	for _, img := range images {
		why, err := c.image(ctx, img)
		if err != nil {
			return nil, err
		}
		if why != "" {
			problems[img.Name] = why
		}
	}
	return problems, nil
}

// loadMissing loads and pins, and looks at what was loaded.
func (c *check) loadMissing(ctx context.Context, images []model.HeldImage, problems map[string]string) error {
	k, err := pin.NewKeeper(c.Runtime, c.Config.StateDir)
	if err != nil {
		return err
	}
	before, err := c.present(ctx, images)
	if err != nil {
		return err
	}
	r, err := k.Sync(ctx, images, c.src, func(pin.Result) {})
	if err != nil {
		return err
	}
	after, err := c.present(ctx, images)
	if err != nil {
		return err
	}
	for _, img := range images {
		if err := r.Failed[img.Name]; err != nil {
			problems[img.Name] = err.Error()
			continue
		}
		if err := c.came(ctx, img, before[img.Name], after[img.Name], problems); err != nil {
			return err
		}
	}
	return nil
}

// came says what became of an image that was there, or not, before all were loaded.
func (c *check) came(ctx context.Context, img model.HeldImage, before, after bool, problems map[string]string) error {
	switch {
	case !after && !img.Registry && problems[img.Name] == "":
		problems[img.Name] = "it is not in the runtime, and this node has no whole copy of it"
	case !before && after:
		return c.loaded(ctx, img, problems)
	}
	return nil
}

// loaded looks at an image that just came in.
func (c *check) loaded(ctx context.Context, img model.HeldImage, problems map[string]string) error {
	why, err := c.image(ctx, img)
	if err != nil {
		return err
	}
	if delete(problems, img.Name); why != "" {
		problems[img.Name] = why
		return nil
	}
	c.restored(img, "loaded from this node's copy")
	return nil
}

func (c *check) restored(img model.HeldImage, how string) {
	c.Log.Info("an image is back", "image", img.Name, "how", how)
	c.report.Restored = append(c.report.Restored, Restored{Image: img.Name, Digest: img.Digest, How: how})
}

// takeOut removes torn images that could not be put back.
func (c *check) takeOut(ctx context.Context, images []model.HeldImage, problems map[string]string) error {
	for _, img := range images {
		why := problems[img.Name]
		if why == "" {
			continue
		}
		if _, err := c.Runtime.Parts(ctx, cri.Target{Name: img.Name, Digest: img.Digest}); errors.Is(err, cri.ErrNoImage) {
			continue
		}
		c.Log.Error("an image is torn and nobody has a copy: it is taken out of the runtime, so that no pod starts from it", "image", img.Name, "because", why)
		if err := c.Runtime.Remove(ctx, img.Name); err != nil {
			return err
		}
		problems[img.Name] = why + "; it was taken out of the runtime"
	}
	return nil
}

// present are the images that the runtime reports under name and digest.
func (c *check) present(ctx context.Context, images []model.HeldImage) (map[string]bool, error) {
	have, err := c.Runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, img := range images {
		out[img.Name] = true
	}
	for _, img := range decide.Decide(images, have, nil).Load {
		out[img.Name] = false
	}
	return out, nil
}

// awaitLock waits for the agent to end a pass over the images.
func awaitLock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		if unlock, err = disk.Lock(path); err == nil {
			return unlock, nil
		}
		sleep(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// runDir is where the stamp is.
func runDir(c config.Config) string {
	if c.RunDir != "" {
		return c.RunDir
	}
	return config.RunDir
}

func stampPath(c config.Config) string { return filepath.Join(runDir(c), reportFile) }
