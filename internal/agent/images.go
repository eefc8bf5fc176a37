package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// imagesEvery is how often the loop checks pins without an event.
const imagesEvery = time.Minute

// imageLoop loads and pins the images of the desired state, and reads them back over CRI.
type imageLoop struct {
	*shared
	space   *spaceChecker
	release *releaseCheck
	pulls   *pullRepair

	// rechecked are images whose blobs were compared after a failure to load them.
	rechecked map[string]bool
	// firstPass is closed when the first pass has ended.
	firstPass chan struct{}
}

// Run syncs the images at every wake-up and now and then.
func (l *imageLoop) Run(ctx context.Context) {
	first := sync.OnceFunc(func() { close(l.firstPass) })
	// A single timer: otherwise each wake-up in between would start its own series of retries.
	again := time.AfterFunc(imagesEvery, func() { wake(l.wakeImages) })
	defer again.Stop()
	wait := imagesRetry
	each(ctx, l.wakeImages, imagesEvery, func(ctx context.Context) {
		if l.sync(ctx) {
			again.Stop()
			wait = imagesRetry
			first()
			return
		}
		again.Reset(wait)
		wait = min(2*wait, imagesEvery)
	})
}

// imagesRetry is the pause before a failed pass is repeated. It doubles with every failure.
const imagesRetry = 2 * time.Second

// sync loads and pins the images that are complete in the store. ok is false if the loop has
// to retry.
func (l *imageLoop) sync(ctx context.Context) (ok bool) {
	w := l.desiredState()
	if w == nil {
		return true
	}
	if !l.unwanted.Expired("pins", w.Spec.Pins != "") && w.Spec.Pins == "" {
		time.AfterFunc(l.unwanted.Grace, func() { wake(l.wakeImages) }) // the grace time ends then
		return true
	}
	ctx, unlock, err := l.lockImages(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	verdicts := l.storeOverlays(w)
	src := source{lib: l.library, policy: l.policy(w), partial: l.partial(ctx, w), known: l.keeper.Known(), busy: l.runner.Busy()}
	refused, refusals := l.refusedImages(w, time.Now())
	src.refused = refused
	verdicts = append(verdicts, refusals...)
	verdicts = append(verdicts, l.checkRoom(ctx, w, &src)...)
	r, err := l.keeper.Sync(ctx, w.Pins.Images, src, func(r imagekeeper.Result) {
		l.update(func(s *state) {
			if l.want.Spec.Pins == w.Spec.Pins {
				s.countPins(r)
			}
		})
	})
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		l.log.Info("images cannot be pinned yet", "error", err)
		l.update(func(s *state) {
			s.imageVerdicts = []model.Blocker{{Reason: v1alpha1.ReasonLoading, Waiting: true, Message: err.Error(), Object: "Node/" + l.conf.Node}}
		})
		return false
	}
	l.recheck(w, r.Failed)
	verdicts = append(verdicts, imageVerdicts(l.conf.Node, l.runtimeName(ctx), r)...)
	l.removeUnused(ctx, w, r)
	l.followUp(ctx, w, r, src.busy)
	payloads := l.countStore(ctx, w)
	missing := l.release.check(ctx, w, r.Held == r.Total)
	verdicts = append(verdicts, missing.verdicts...)
	cold := l.coldStart(w)
	// In one update, so that all counts are those of one pin set.
	l.update(func(s *state) {
		s.imageVerdicts, s.coldStart = verdicts, cold
		if l.want.Spec.Pins != w.Spec.Pins {
			return // the desired state changed meanwhile, and these counts are those of the old list
		}
		s.countPins(r)
		payloads(&s.pins)
		s.pins.Content, s.pins.Missing = w.Spec.Pins, missing.images
		if !missing.known || s.observedPins != w.Spec.Pins {
			// No run may start on incomplete counts, or before the agent observed which
			// programs the list would replace.
			s.pins.Content = ""
		}
	})
	l.space.measure(ctx, w)
	return len(r.Failed) == 0
}

// lockImages locks the images for a pass. The check before the kubelet's start changes images
// too, and the kubelet waits for it: a pass starts after that check, and ends when that check
// wants to start.
func (l *imageLoop) lockImages(ctx context.Context) (pass context.Context, unlock func(), err error) {
	for coldstart.Running(l.conf) && ctx.Err() == nil {
		sleep(ctx, time.Second)
	}
	free, err := fsutil.Lock(l.conf.RunPath(coldstart.LockFile))
	if err != nil {
		return ctx, nil, err
	}
	pass, cancel := context.WithCancel(ctx)
	go func() {
		for pass.Err() == nil {
			if sleep(pass, time.Second); coldstart.Running(l.conf) {
				cancel()
			}
		}
	}()
	return pass, func() { cancel(); free() }, nil
}

// checkRoom returns why there is no room for the missing images, and restricts the source.
func (l *imageLoop) checkRoom(ctx context.Context, w *desired.State, src *source) []model.Blocker {
	vs := l.space.checkSpace(ctx, w)
	l.setFull(hasReason(vs, v1alpha1.ReasonInsufficientSpace))
	if len(vs) > 0 {
		src.closed = true
		return vs
	}
	vs = l.space.checkFetch(ctx, w)
	src.full = len(vs) > 0
	return vs
}

// setFull records that the node needs room. The bundle loop then removes what is unwanted
// without the grace time.
func (l *imageLoop) setFull(full bool) {
	if l.full.Swap(full) != full && full {
		wake(l.wakeBundles)
	}
}

func hasReason(vs []model.Blocker, reason string) bool {
	return slices.ContainsFunc(vs, func(v model.Blocker) bool { return v.Reason == reason })
}

// removeUnused removes images that refit loaded and that the pin set no longer names. A node
// that needs room does so at once. During a run everything stays: it may be undone.
func (l *imageLoop) removeUnused(ctx context.Context, w *desired.State, r imagekeeper.Result) {
	if r.Full != "" {
		l.setFull(true)
	}
	if l.runner.Busy() {
		return
	}
	grace := l.unwanted.Grace
	if l.full.Load() && w.Spec.Pins != "" {
		grace = 0
	}
	removed, err := l.keeper.RemoveUnused(ctx, w.Pins.Images, grace)
	if err != nil {
		l.log.Warn("failed to remove images that are no longer pinned", "error", err)
	}
	if n := len(removed); n > 0 {
		l.emitEvent(ctx, eventRemoved, fmt.Sprintf("removed %s that no pin set names any more: %s", text.Count(n, "image"), text.Truncate(strings.Join(removed, ", "), 800)))
		if r.Full != "" {
			wake(l.wakeImages) // there is room now
		}
	}
}

// recheck compares the blobs of images that failed to load with their digests, once per
// failure. Corrupt chunks are fetched again.
func (l *imageLoop) recheck(w *desired.State, failed map[string]error) {
	for _, img := range w.Pins.Images {
		key := pin.Key(img)
		if failed[img.Name] == nil {
			delete(l.rechecked, key)
			continue
		}
		shelf := l.library.Shelf(img.Bundle)
		if l.rechecked[key] || shelf == nil {
			continue
		}
		l.rechecked[key] = true
		have := shelf.Bundle().ImageForPin(img)
		if have == nil {
			continue
		}
		if bad := shelf.Recheck(have.Blobs); bad > 0 {
			l.log.Warn("corrupt chunks of an image in the store; fetching them again", "image", img.Name, "chunks", bad)
			wake(l.wakeBundles)
		}
	}
}

// imageVerdicts returns why images are not pinned. It has nothing about blobs that are still
// missing: the bundle loop reports those.
func imageVerdicts(node, runtime string, r imagekeeper.Result) []model.Blocker {
	var out []model.Blocker
	if r.Full != "" {
		out = append(out, model.Blocker{Reason: v1alpha1.ReasonInsufficientSpace, Object: "Node/" + node,
			Message: fmt.Sprintf("node %s has no space left while it loads image %s: %v. Loading has stopped; %d of %d images are pinned", node, r.Full, r.Failed[r.Full], r.Pinned, r.Total),
			Fix:     "Free space on the file system of the container runtime's images; do not delete images that refit pinned. Loading then continues by itself."})
	}
	names := make([]string, 0, len(r.Failed))
	for n := range r.Failed {
		if n != r.Full {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		out = append(out, model.Blocker{Reason: v1alpha1.ReasonImagesMissing, Waiting: true, Object: "Node/" + node,
			Message: r.Failed[n].Error(), Fix: "The agent retries. If this stays, check the container runtime's log."})
	}
	if missing := r.Held - r.Pinned; missing > 0 {
		out = append(out, model.Blocker{Reason: v1alpha1.ReasonPinsIgnored, Object: "Node/" + node,
			Message: fmt.Sprintf("runtime (%s) of node %s does not report %s as pinned over CRI: the kubelet may remove them", runtime, node, text.Count(missing, "image")),
			Fix:     "Use containerd 1.7.3 or later, or CRI-O 1.30 or later: earlier versions ignore pins. For CRI-O, search its log for \"Unable to reload\". Restart it once if /etc/crio/crio.conf.d did not exist at its start."})
	}
	return out
}

// partial returns the bundles that have not arrived completely. The agent loads none of their
// images yet: if a medium turns out to be altered, the runtime stays as it was.
func (l *imageLoop) partial(ctx context.Context, w *desired.State) map[string]bool {
	hold, _ := l.pinsToStore(ctx, w)
	out := map[string]bool{}
	for _, d := range w.Bundles() {
		if s := l.library.Shelf(d); s != nil {
			missing, _ := l.missing(s, hold)
			out[d] = missing > 0
		}
	}
	return out
}

// source gives the keeper images from the library.
type source struct {
	lib    *bundlestore.Library
	policy bundlestore.Policy
	// closed: there is no room to load any image; full: there is no room to pull from a
	// registry; busy: a run is in progress.
	closed, full, busy bool
	// partial are the bundles that have not arrived completely.
	partial map[string]bool
	// known are images that were pinned before: the agent loads a lost one again as soon
	// as its own blobs are here.
	known map[string]bool
	// refused are images, by key, without a signature that a TrustPolicy wants.
	refused map[string]bool
}

// Refuses reports whether an image may not be loaded or pinned, also if others loaded it.
func (s source) Refuses(img model.PinSetImage) bool { return s.refused[pin.Key(img)] }

// Image returns an image of an approved bundle if all its blobs are here.
func (s source) Image(img model.PinSetImage) (containerd.Image, bool) {
	shelf := s.lib.Shelf(img.Bundle)
	_, known := s.known[pin.Key(img)]
	if s.closed || s.Refuses(img) || s.partial[img.Bundle] && !known || shelf == nil || !s.policy.Decide(shelf.Bundle()).Allowed {
		return containerd.Image{}, false
	}
	return shelf.Target(img, platform())
}

// MayPull allows to pull images that no bundle has, if there is room and no run is in progress:
// an update does not wait for a registry.
func (s source) MayPull(img model.PinSetImage) bool {
	if img.Kubelet { // the kubelet pulls it; the agent only adds names
		return img.Registry && img.Bundle == "" && !s.busy
	}
	return img.Registry && img.Bundle == "" && !s.closed && !s.full && !s.busy
}

func (s source) Open(digest string) (io.ReadCloser, error) { return s.lib.Open(digest) }
