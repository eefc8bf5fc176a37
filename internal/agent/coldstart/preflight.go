package coldstart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Runtime is what is asked of a node's container runtime.
type Runtime interface {
	imagekeeper.Runtime
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
	Config  agentconfig.Config
	Runtime Runtime
	// BootID of the machine.
	BootID string
	// Open opens the runtime if Runtime is nil. One that cannot be opened is tried again.
	Open func(ctx context.Context) (Runtime, error)
	// Patience is how long images that cannot be put back are waited for.
	Patience time.Duration
	// ErrorPatience is how long errors of the check itself may hold up the kubelet
	// without any progress; by default a minute.
	ErrorPatience time.Duration
	// Pause between two tries.
	Pause time.Duration
	Log   *slog.Logger

	// traffic is how many bytes this process has read and written; nil: as the kernel
	// counts them.
	traffic func() int64
}

// Files below the state directory, and the stamp below the run directory.
const (
	reportFile = "preflight.json"
	cleanFile  = "clean-end"
	// LockFile, below the run directory, is held by who changes images: this check, or the
	// agent.
	LockFile = "hold.lock"
	// runningFile, below the run directory, is locked while the check runs: the agent gives
	// way to it.
	runningFile = "preflight.lock"
	// indexDir holds the indexes of layers.
	indexDir = "layers"
)

const (
	// errorPatience is how long errors of the check itself are waited for.
	errorPatience = time.Minute
	// longest is how long the whole check may take while it makes progress: a comparison
	// of some hundred GB. Units wait longer than that.
	longest = 30 * time.Minute
	// runtimeTime is how long the runtime may take for an image without any byte read or
	// written here: it unpacks layers by itself.
	runtimeTime = 5 * time.Minute
	// answerTime is how long it may take to list images.
	answerTime = 20 * time.Second
)

func platform() string { return "linux/" + runtime.GOARCH }

// Run checks, and returns when the kubelet may start, or with the context.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.ErrorPatience <= 0 {
		o.ErrorPatience = errorPatience
	}
	if err := os.MkdirAll(o.Config.RunPath(), 0o755); err != nil {
		o.Log.Error("failed to make the run directory", "error", err)
	}
	defer markRunning(o.Config)()
	c := &check{Options: o, begin: time.Now(), whole: map[string]bool{}, reloaded: map[string]bool{}, torn: map[string]bool{}, deep: unclean(o.Config)}
	c.good = c.begin
	if c.deep {
		o.Log.Info("last shutdown unclean or unknown; contents are compared")
	}
	for ctx.Err() == nil {
		if r, done := Done(o.Config, o.BootID); done {
			return r, nil
		}
		if r, ok := c.try(ctx); ok {
			r.Seconds = time.Since(c.begin).Seconds()
			return r, r.write(o)
		}
		sleep(ctx, o.Pause)
	}
	return Report{}, ctx.Err()
}

// try makes one attempt; ok says that the kubelet may start.
func (c *check) try(ctx context.Context) (r Report, ok bool) {
	c.alive()
	last := time.Since(c.begin) >= c.Patience
	r, err := c.watched(ctx, last)
	var stalled *stalledError
	switch {
	case ctx.Err() != nil:
		return r, false
	case errors.As(err, &stalled),
		err != nil && (time.Since(c.good) >= c.ErrorPatience || time.Since(c.begin) >= longest):
		return c.release(ctx, err), true
	case err != nil:
		c.Log.Error("the kubelet waits: the check of its images failed and is repeated", "error", err, "until", c.good.Add(c.ErrorPatience).Format(time.TimeOnly))
		return r, false
	case r.OK || len(r.Missing) == 0:
		return r, true
	}
	c.Log.Warn("the kubelet waits for images that this node has no copy of", "images", len(r.Missing), "image", r.Missing[0].Image, "error", r.Missing[0].Why, "until", c.begin.Add(c.Patience).Format(time.TimeOnly))
	return r, false
}

// release lets the kubelet start although the check could not be finished: refit must
// never be the reason that a node stays down. Images that are known to be torn are taken
// out first, as far as the runtime answers.
func (c *check) release(ctx context.Context, why error) Report {
	r := Report{BootID: c.BootID, At: time.Now(), OK: true, Released: why.Error()}
	c.Log.Error("THE KUBELET STARTS WITHOUT A FINISHED CHECK OF ITS IMAGES", "error", why)
	var stalled *stalledError
	if errors.As(why, &stalled) && stalled.hangs {
		return r // what hangs may still be at work on the rest
	}
	partial := c.report
	partial.BootID, partial.At, partial.OK, partial.Released = r.BootID, r.At, true, r.Released
	partial.Missing = c.removeTorn(ctx)
	return partial
}

// removeTorn takes images out that are known to be torn.
func (c *check) removeTorn(ctx context.Context) (missing []Problem) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(c.torn)) {
		why := "it is torn and could not be repaired"
		if err := c.Runtime.Remove(ctx, name); err != nil {
			why += "; it stays in the runtime: " + err.Error()
		}
		missing = append(missing, Problem{Image: name, Why: why})
	}
	return missing
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
	// begin of all tries, and when the last one made progress.
	begin, good time.Time
	// beats are counted for the kubelet's unit.
	beats int
	// torn are images with damage that is not repaired yet, by name.
	torn map[string]bool
	// inRuntime: a call to the runtime is under way that may take long.
	inRuntime atomic.Bool
	// played: the images were taken out for a drill.
	played bool
	whole  map[string]bool // files and directories that were found or made right
	// reloaded are images that were taken out to be loaded anew.
	reloaded map[string]bool
	lib      *bundlestore.Library
	src      source
	index    LayerIndexDir
	// report of this try; what was done in earlier ones is carried over.
	report Report
}

// attempt looks at everything once and puts back what can be. last: what is torn
// and cannot be put back is taken out, and that is the end.
func (c *check) attempt(ctx context.Context, last bool) (Report, error) {
	unlock, err := c.awaitLock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if r, done := Done(c.Config, c.BootID); done { // another run came first
		return r, nil
	}
	c.report = Report{BootID: c.BootID, At: time.Now(), Unclean: c.deep, Restored: c.report.Restored, Damage: c.report.Damage, Files: c.report.Files, Bytes: c.report.Bytes, Layers: c.report.Layers}
	w := desired.Read(c.Config.Path("want.json"), c.note)
	if w == nil {
		// The API server may be on this very node: it must come up to send it again.
		c.report.OK = true
		return c.report, nil
	}
	if err := c.open(ctx); err != nil {
		return Report{}, err
	}
	c.lib = bundlestore.OpenLibrary(c.Config.StateDir, c.Log, c.note)
	for name, err := range w.Shelve(c.lib) {
		c.Log.Error("image that was made on the site cannot be assembled", "image", name, "error", err)
	}
	c.src, c.index = source{c.lib, authority.Stored(c.Config.Path(authority.File), c.lib.Digests(), w.Trust, c.note)}, LayerIndexDir(c.Config.Path(indexDir))
	err = c.look(ctx, w.Hold.Images, last)
	return c.report, err
}

// open opens the runtime.
func (c *check) open(ctx context.Context) (err error) {
	if c.Runtime == nil {
		c.Runtime, err = c.Open(ctx)
	}
	return err
}

// note keeps a problem for the node's status.
func (c *check) note(p statefile.Problem) {
	c.Log.Error("state of the agent damaged", "file", p.Object, "error", p.Message)
	statefile.At(c.Config.RunPath()).Add(p)
}

// look fills the report. An image that cannot be checked keeps no other one from being
// checked, repaired and loaded.
func (c *check) look(ctx context.Context, images []model.HeldImage, last bool) error {
	if err := c.play(ctx, images); err != nil {
		return err
	}
	problems, failed := c.images(ctx, images)
	if ctx.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	if last {
		failed = errors.Join(failed, c.takeOut(ctx, images, problems))
	}
	if err := errors.Join(failed, c.loadMissing(ctx, images, problems)); err != nil {
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
func (c *check) images(ctx context.Context, images []model.HeldImage) (problems map[string]string, failed error) {
	problems = map[string]string{}
	for _, img := range images {
		if ctx.Err() != nil {
			break
		}
		why, err := c.image(ctx, img)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("image %s: %w", img.Name, err))
			continue
		case why != "":
			problems[img.Name] = why
		}
		delete(c.torn, img.Name) // whole, gone, or taken out when patience ends
	}
	return problems, failed
}

// loadMissing loads and pins, and looks at what was loaded.
func (c *check) loadMissing(ctx context.Context, images []model.HeldImage, problems map[string]string) error {
	k := imagekeeper.NewKeeper(c.Runtime, c.Config.StateDir, c.note)
	before, err := c.present(ctx, images)
	if err != nil {
		return err
	}
	c.inRuntime.Store(true)
	r, err := k.Sync(ctx, images, c.src, func(imagekeeper.Result) {})
	c.inRuntime.Store(false)
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
		c.Log.Error("torn image without a copy removed from the runtime, so that no pod starts from it", "image", img.Name, "error", why)
		if err := c.Runtime.Remove(ctx, img.Name); err != nil {
			return err
		}
		problems[img.Name] = why + "; it was taken out of the runtime"
	}
	return nil
}

// present are the images that the runtime reports under name and digest.
func (c *check) present(ctx context.Context, images []model.HeldImage) (map[string]bool, error) {
	asked, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	have, err := c.Runtime.Present(asked)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, img := range images {
		out[img.Name] = true
	}
	for _, img := range pin.Decide(images, have, nil).Load {
		out[img.Name] = false
	}
	return out, nil
}

// Running reports whether a check is under way that the kubelet waits for.
func Running(c agentconfig.Config) bool {
	if _, err := os.Stat(stampPath(c)); err == nil {
		return false
	}
	unlock, err := fsutil.Lock(c.RunPath(runningFile))
	if err == nil {
		unlock()
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// markRunning makes Running true until end is called. The agent, which asks by the same
// lock, may hold it for a moment.
func markRunning(c agentconfig.Config) (end func()) {
	for range 10 {
		unlock, err := fsutil.Lock(c.RunPath(runningFile))
		if err == nil {
			return unlock
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() {}
}

// awaitLock waits for the agent to end a pass over the images. Where no lock can be made
// there is none: to check matters more.
func (c *check) awaitLock(ctx context.Context) (unlock func(), err error) {
	for {
		unlock, err = fsutil.Lock(c.Config.RunPath(LockFile))
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			c.Log.Error("failed to lock the images; they are checked without", "error", err)
			return func() {}, nil
		}
		sleep(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// stampPath is where the stamp is.
func stampPath(c agentconfig.Config) string { return c.RunPath(reportFile) }
