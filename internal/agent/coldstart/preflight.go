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
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Runtime is the node's container runtime, as this package needs it.
type Runtime interface {
	imagekeeper.Runtime
	// Parts of an image in the runtime's store; cri.ErrNoImage if it is not there.
	Parts(ctx context.Context, img cri.Target) ([]cri.Part, error)
	// Refresh makes the runtime read an image again that was repaired.
	Refresh(ctx context.Context, img cri.Target) error
	// Remove removes an image, by name.
	Remove(ctx context.Context, name string) error
	// RemovePods removes the pods from before a restart; the kubelet makes new ones.
	RemovePods(ctx context.Context) error
}

// Options of Run.
type Options struct {
	Config  agentconfig.Config
	Runtime Runtime
	// BootID of the machine.
	BootID string
	// Open opens the runtime if Runtime is nil. A failure is retried.
	Open func(ctx context.Context) (Runtime, error)
	// Patience is how long the check waits for images that it cannot restore.
	Patience time.Duration
	// ErrorPatience is how long errors of the check itself may delay the kubelet
	// without any progress; by default a minute.
	ErrorPatience time.Duration
	// Pause between two tries.
	Pause time.Duration
	Log   *slog.Logger

	// traffic is how many bytes this process has read and written; nil uses the kernel's
	// count.
	traffic func() int64
}

// Files below the state directory, and the stamp below the run directory.
const (
	reportFile = "preflight.json"
	cleanFile  = "clean-end"
	// LockFile, below the run directory, is held while images change: by this check, or by
	// the agent.
	LockFile = "hold.lock"
	// runningFile, below the run directory, is locked while the check runs: the agent
	// waits for it.
	runningFile = "preflight.lock"
	// indexDir holds the indexes of layers.
	indexDir = "layers"
)

const (
	// errorPatience is how long errors of the check itself are retried.
	errorPatience = time.Minute
	// maxCheckTime is how long the whole check may take while it makes progress: a comparison
	// of some hundred GB. Units wait longer than that.
	maxCheckTime = 30 * time.Minute
	// runtimeTime is how long the runtime may take for an image while this process reads
	// and writes nothing: the runtime unpacks layers by itself.
	runtimeTime = 5 * time.Minute
	// answerTime is how long the runtime may take to list images.
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
	c := &check{Options: o, started: time.Now(), intact: map[string]bool{}, reloaded: map[string]bool{}, torn: map[string]bool{}, deep: uncleanShutdown(o.Config)}
	c.lastProgress = c.started
	if c.deep {
		o.Log.Info("last shutdown unclean or unknown; contents are compared")
	}
	for ctx.Err() == nil {
		if r, done := Done(o.Config, o.BootID); done {
			return r, nil
		}
		if r, ok := c.tryOnce(ctx); ok {
			r.Seconds = time.Since(c.started).Seconds()
			return r, r.write(o)
		}
		sleep(ctx, o.Pause)
	}
	return Report{}, ctx.Err()
}

// tryOnce makes one attempt; ok says that the kubelet may start.
func (c *check) tryOnce(ctx context.Context) (r Report, ok bool) {
	c.writeHeartbeat()
	last := time.Since(c.started) >= c.Patience
	r, err := c.watchAttempt(ctx, last)
	var stalled *stalledError
	switch {
	case ctx.Err() != nil:
		return r, false
	case errors.As(err, &stalled),
		err != nil && (time.Since(c.lastProgress) >= c.ErrorPatience || time.Since(c.started) >= maxCheckTime):
		return c.startUnchecked(ctx, err), true
	case err != nil:
		c.Log.Error("the kubelet waits: the check of its images failed; retrying", "error", err, "until", c.lastProgress.Add(c.ErrorPatience).Format(time.TimeOnly))
		return r, false
	case r.OK || len(r.Missing) == 0:
		return r, true
	}
	c.Log.Warn("the kubelet waits for images that this node has no copy of", "images", len(r.Missing), "image", r.Missing[0].Image, "error", r.Missing[0].Why, "until", c.started.Add(c.Patience).Format(time.TimeOnly))
	return r, false
}

// startUnchecked lets the kubelet start although the check could not finish: refit must
// never keep a node down. It first removes images that are known to be torn, as far as the
// runtime answers.
func (c *check) startUnchecked(ctx context.Context, why error) Report {
	r := Report{BootID: c.BootID, At: time.Now(), OK: true, Released: why.Error()}
	c.Log.Error("THE KUBELET STARTS WITHOUT A FINISHED CHECK OF ITS IMAGES", "error", why)
	var stalled *stalledError
	if errors.As(why, &stalled) && stalled.hangs {
		return r // the hanging call may still work on the rest
	}
	partial := c.report
	partial.BootID, partial.At, partial.OK, partial.Released = r.BootID, r.At, true, r.Released
	partial.Missing = c.removeTorn(ctx)
	return partial
}

// removeTorn removes images that are known to be torn.
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

// check is one run over all attempts.
type check struct {
	Options
	deep bool
	// started is the start of the first attempt, lastProgress when an attempt last made some.
	started, lastProgress time.Time
	// heartbeats are counted for the kubelet's unit.
	heartbeats int
	// torn are images with damage that is not repaired yet, by name.
	torn map[string]bool
	// inRuntime: a call to the runtime is in progress that may take long.
	inRuntime atomic.Bool
	// played: the images were removed for a drill.
	played bool
	intact map[string]bool // files and directories that are intact, or were repaired
	// reloaded are images that were removed to be loaded again.
	reloaded map[string]bool
	lib      *bundlestore.Library
	src      source
	keeper   *imagekeeper.Keeper
	index    LayerIndexDir
	// report of this attempt; what earlier ones did is carried over.
	report Report
}

// attempt checks all images once and repairs what it can. last: it removes torn images that
// it cannot repair, and the check ends.
func (c *check) attempt(ctx context.Context, last bool) (Report, error) {
	unlock, err := c.lockImages(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if r, done := Done(c.Config, c.BootID); done { // another run came first
		return r, nil
	}
	c.report = Report{BootID: c.BootID, At: time.Now(), Unclean: c.deep, Restored: c.report.Restored, Damage: c.report.Damage, Files: c.report.Files, Bytes: c.report.Bytes, Layers: c.report.Layers}
	w := desired.ReadFile(c.Config.Path("want.json"), c.recordProblem)
	if w == nil {
		// The API server may be on this very node: it must come up to send it again.
		c.report.OK = true
		return c.report, nil
	}
	if err := c.open(ctx); err != nil {
		return Report{}, err
	}
	c.readState(w)
	err = c.checkImages(ctx, c.verified(w.Pins.Images), last)
	return c.report, err
}

// readState opens what the node has of the images that it wants.
func (c *check) readState(w *desired.State) {
	c.lib = bundlestore.OpenLibrary(c.Config.StateDir, c.Log, c.recordProblem)
	for name, err := range w.StoreOverlays(c.lib) {
		c.Log.Error("image built on the site cannot be assembled", "image", name, "error", err)
	}
	c.src, c.index = source{c.lib, authority.Stored(c.Config.Path(authority.File), c.lib.Digests(), w.Trust, c.recordProblem)}, LayerIndexDir(c.Config.Path(indexDir))
	c.keeper = imagekeeper.NewKeeper(c.Runtime, c.Config.StateDir, c.recordProblem)
}

// verified are the images without those that the agent has not pinned yet and that need a
// signature: only the agent verifies it. A damaged record of pins says nothing about which were
// pinned, and must not keep the node down.
func (c *check) verified(images []model.PinSetImage) []model.PinSetImage {
	d := imageproof.NewDemands(authority.StoredImageRules(c.Config.Path(authority.File), c.recordProblem))
	known := c.keeper.Known()
	if !c.keeper.RecordComplete() {
		return images
	}
	return slices.DeleteFunc(slices.Clone(images), func(img model.PinSetImage) bool {
		_, pinned := known[pin.Key(img)]
		return !pinned && img.Bundle != "" && d.For(pin.Repository(c.signedName(img)))
	})
}

// signedName is the name by which an image may be signed: of one that was put together on the
// site that of its base.
func (c *check) signedName(img model.PinSetImage) string {
	if shelf := c.lib.Shelf(img.Bundle); shelf != nil {
		if have := shelf.Bundle().ImageForPin(img); have != nil {
			return have.Name
		}
	}
	return img.Name
}

// open opens the runtime.
func (c *check) open(ctx context.Context) (err error) {
	if c.Runtime == nil {
		c.Runtime, err = c.Open(ctx)
	}
	return err
}

// recordProblem records a problem for the node's status.
func (c *check) recordProblem(p statefile.Problem) {
	c.Log.Error("state of the agent damaged", "file", p.Object, "error", p.Message)
	statefile.At(c.Config.RunPath()).Add(p)
}

// checkImages fills the report. An image that cannot be checked does not keep the others
// from being checked, repaired and loaded.
func (c *check) checkImages(ctx context.Context, images []model.PinSetImage, last bool) error {
	if err := c.playDrill(ctx, images); err != nil {
		return err
	}
	problems, failed := c.repairImages(ctx, images)
	if ctx.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	if last {
		failed = errors.Join(failed, c.removeUnrepaired(ctx, images, problems))
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

// repairImages repairs what it can, and says what it cannot.
func (c *check) repairImages(ctx context.Context, images []model.PinSetImage) (problems map[string]string, failed error) {
	problems = map[string]string{}
	for _, img := range images {
		if ctx.Err() != nil {
			break
		}
		why, err := c.repairImage(ctx, img)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("image %s: %w", img.Name, err))
			continue
		case why != "":
			problems[img.Name] = why
		}
		delete(c.torn, img.Name) // intact, gone, or removed when patience ends
	}
	return problems, failed
}

// loadMissing loads and pins missing images, and checks what was loaded.
func (c *check) loadMissing(ctx context.Context, images []model.PinSetImage, problems map[string]string) error {
	before, err := c.presentImages(ctx, images)
	if err != nil {
		return err
	}
	c.inRuntime.Store(true)
	r, err := c.keeper.Sync(ctx, images, c.src, func(imagekeeper.Result) {})
	c.inRuntime.Store(false)
	if err != nil {
		return err
	}
	after, err := c.presentImages(ctx, images)
	if err != nil {
		return err
	}
	for _, img := range images {
		if err := r.Failed[img.Name]; err != nil {
			problems[img.Name] = err.Error()
			continue
		}
		if err := c.classifyLoaded(ctx, img, before[img.Name], after[img.Name], problems); err != nil {
			return err
		}
	}
	return nil
}

// classifyLoaded handles an image after all were loaded; before says whether it was there
// already.
func (c *check) classifyLoaded(ctx context.Context, img model.PinSetImage, before, after bool, problems map[string]string) error {
	switch {
	case !after && !img.Registry && problems[img.Name] == "":
		problems[img.Name] = "it is not in the runtime, and this node has no complete copy of it"
	case !before && after:
		return c.checkLoaded(ctx, img, problems)
	}
	return nil
}

// checkLoaded checks an image that was just loaded.
func (c *check) checkLoaded(ctx context.Context, img model.PinSetImage, problems map[string]string) error {
	why, err := c.repairImage(ctx, img)
	if err != nil {
		return err
	}
	if delete(problems, img.Name); why != "" {
		problems[img.Name] = why
		return nil
	}
	c.recordRestored(img, "loaded from this node's copy")
	return nil
}

func (c *check) recordRestored(img model.PinSetImage, how string) {
	c.Log.Info("image restored", "image", img.Name, "how", how)
	c.report.Restored = append(c.report.Restored, Restored{Image: img.Name, Digest: img.Digest, How: how})
}

// removeUnrepaired removes torn images that could not be repaired.
func (c *check) removeUnrepaired(ctx context.Context, images []model.PinSetImage, problems map[string]string) error {
	for _, img := range images {
		why := problems[img.Name]
		if why == "" {
			continue
		}
		if _, err := c.Runtime.Parts(ctx, cri.Target{Name: img.Name, Digest: img.Digest}); errors.Is(err, cri.ErrNoImage) {
			continue
		}
		c.Log.Error("removing a torn image without a copy from the runtime, so that no pod starts from it", "image", img.Name, "error", why)
		if err := c.Runtime.Remove(ctx, img.Name); err != nil {
			return err
		}
		problems[img.Name] = why + "; it was removed from the runtime"
	}
	return nil
}

// presentImages are the images that the runtime reports under name and digest.
func (c *check) presentImages(ctx context.Context, images []model.PinSetImage) (map[string]bool, error) {
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

// Running reports whether a check is in progress that the kubelet waits for.
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

// markRunning makes Running true until end is called. The agent asks with the same lock, and
// may hold it for a moment.
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

// lockImages waits for the agent to end a pass over the images. If the lock file cannot be
// made it continues without: the check matters more.
func (c *check) lockImages(ctx context.Context) (unlock func(), err error) {
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
