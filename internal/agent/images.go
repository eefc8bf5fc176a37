package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
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
)

// holdEvery is how often pins are looked at without any event.
const holdEvery = time.Minute

func (a *Agent) holdLoop(ctx context.Context) {
	first := sync.OnceFunc(func() { close(a.firstHold) })
	// One timer, or every kick in between would begin a row of tries of its own.
	again := time.AfterFunc(holdEvery, func() { wake(a.wakeHold) })
	defer again.Stop()
	wait := holdAgain
	each(ctx, a.wakeHold, holdEvery, func(ctx context.Context) {
		if a.holdPass(ctx) {
			again.Stop()
			wait = holdAgain
			first()
			return
		}
		again.Reset(wait)
		wait = min(2*wait, holdEvery)
	})
}

// holdAgain is when a pass is repeated that something kept from its end; it
// doubles with every one that fails.
const holdAgain = 2 * time.Second

// holdPass loads and pins what is complete in the store. ok is false if it has
// to be tried again.
func (a *Agent) holdPass(ctx context.Context) (ok bool) {
	w := a.wanted()
	if w == nil {
		return true
	}
	if !a.unwanted.Over("pins", w.Spec.Pins != "") && w.Spec.Pins == "" {
		time.AfterFunc(a.unwanted.Grace, func() { wake(a.wakeHold) }) // then it is over
		return true
	}
	ctx, unlock, err := a.lockImages(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	verdicts := a.shelve(w)
	src := source{lib: a.library, policy: a.policy(w), partial: a.partial(ctx, w), known: a.keeper.Known(), busy: a.runner.Busy()}
	verdicts = append(verdicts, a.asks(ctx, w, &src)...)
	r, err := a.keeper.Sync(ctx, w.Hold.Images, src, func(r imagekeeper.Result) {
		a.update(func(s *state) {
			if a.want.Spec.Pins == w.Spec.Pins {
				s.countHeld(r)
			}
		})
	})
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		a.log.Info("images cannot be pinned yet", "error", err)
		a.update(func(s *state) {
			s.holdVerdicts = []model.Verdict{{Reason: v1alpha1.ReasonLoading, Waiting: true, Message: err.Error(), Object: "Node/" + a.conf.Node}}
		})
		return false
	}
	a.recheck(w, r.Failed)
	verdicts = append(verdicts, holdVerdicts(a.conf.Node, a.runtimeName(ctx), r)...)
	a.lookAfter(ctx, w, r, src.busy)
	payloads := a.countStore(ctx, w)
	lacks := a.checkRelease(ctx, w, r.Held == r.Total)
	verdicts = append(verdicts, lacks.verdicts...)
	cold := a.coldStart(w)
	// In one stroke: what is called held is all of one list.
	a.update(func(s *state) {
		s.holdVerdicts, s.cold = verdicts, cold
		if a.want.Spec.Pins != w.Spec.Pins {
			return // it moved on meanwhile, and these counts are not about it
		}
		s.countHeld(r)
		payloads(&s.holding)
		s.holding.Content, s.holding.Missing = w.Spec.Pins, lacks.images
		if !lacks.known || s.observedHold != w.Spec.Pins {
			// Nothing may start on counts that are not all, or before it was seen which
			// programs the list would replace.
			s.holding.Content = ""
		}
	})
	a.measure(ctx, w)
	return len(r.Failed) == 0
}

// lockImages locks the images for a pass. The check before the kubelet's start changes
// images too, and the kubelet waits for it: a pass begins after it, and ends when it wants
// to begin.
func (a *Agent) lockImages(ctx context.Context) (pass context.Context, unlock func(), err error) {
	for coldstart.Running(a.conf) && ctx.Err() == nil {
		sleep(ctx, time.Second)
	}
	free, err := fsutil.Lock(a.conf.RunPath(coldstart.LockFile))
	if err != nil {
		return ctx, nil, err
	}
	pass, cancel := context.WithCancel(ctx)
	go func() {
		for pass.Err() == nil {
			if sleep(pass, time.Second); coldstart.Running(a.conf) {
				cancel()
			}
		}
	}()
	return pass, func() { cancel(); free() }, nil
}

// asks whether there is room, and closes the source if there is none.
func (a *Agent) asks(ctx context.Context, w *desired.State, src *source) []model.Verdict {
	if vs := a.checkSpace(ctx, w); len(vs) > 0 {
		src.closed = true
		return vs
	}
	vs := a.checkFetch(ctx, w)
	src.full = len(vs) > 0
	return vs
}

// recheck looks, once for a failure, whether the blobs of images that could not
// be loaded have rotted in the store; those that have are fetched again.
func (a *Agent) recheck(w *desired.State, failed map[string]error) {
	for _, img := range w.Hold.Images {
		key := pin.Key(img)
		if failed[img.Name] == nil {
			delete(a.rechecked, key)
			continue
		}
		shelf := a.library.Shelf(img.Bundle)
		if a.rechecked[key] || shelf == nil {
			continue
		}
		a.rechecked[key] = true
		have := shelf.Bundle().Held(img)
		if have == nil {
			continue
		}
		if bad := shelf.Recheck(have.Blobs); bad > 0 {
			a.log.Warn("corrupt chunks of an image in the store; fetching them again", "image", img.Name, "chunks", bad)
			wake(a.wakeBundles)
		}
	}
}

// holdVerdicts says why images are not held. Nothing is said while their blobs
// are on the way: that is the bundles' affair.
func holdVerdicts(node, runtime string, r imagekeeper.Result) []model.Verdict {
	var out []model.Verdict
	names := make([]string, 0, len(r.Failed))
	for n := range r.Failed {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		out = append(out, model.Verdict{Reason: v1alpha1.ReasonImagesMissing, Waiting: true, Object: "Node/" + node,
			Message: r.Failed[n].Error(), Fix: "it is tried again; if it stays, look at the container runtime's log"})
	}
	if missing := r.Held - r.Pinned; missing > 0 {
		out = append(out, model.Verdict{Reason: v1alpha1.ReasonPinsIgnored, Object: "Node/" + node,
			Message: fmt.Sprintf("%d images of node %s are to be pinned, and its runtime (%s) does not report them so over CRI: the kubelet may collect them", missing, node, runtime),
			Fix:     "use containerd 1.7.3 or later, or CRI-O 1.30 or later: earlier ones ignore pins; of CRI-O look for \"Unable to reload\" in its log, and restart it once if /etc/crio/crio.conf.d was not there when it started"})
	}
	return out
}

// partial says of which bundles something that this node wants has not arrived.
// None of their images is loaded yet: what is found altered on a stick leaves
// the runtime as it was.
func (a *Agent) partial(ctx context.Context, w *desired.State) map[string]bool {
	hold, _ := a.inStore(ctx, w)
	out := map[string]bool{}
	for _, d := range w.Bundles() {
		if s := a.library.Shelf(d); s != nil {
			missing, _ := a.missing(s, hold)
			out[d] = missing > 0
		}
	}
	return out
}

// source is the library as package pin sees it.
type source struct {
	lib    *bundlestore.Library
	policy bundlestore.Policy
	// closed: nothing may be loaded now; full: nothing may be fetched from a
	// registry; busy: a run is under way.
	closed, full, busy bool
	// partial are bundles of which something this node wants is not here yet.
	partial map[string]bool
	// known are images that this node has held: one that was lost comes back as soon
	// as it is here itself.
	known map[string]bool
}

// Image is a held image whose blobs are all here, of a bundle that is allowed.
func (s source) Image(img model.HeldImage) (containerd.Image, bool) {
	shelf := s.lib.Shelf(img.Bundle)
	_, known := s.known[pin.Key(img)]
	if s.closed || s.partial[img.Bundle] && !known || shelf == nil || !s.policy.Decide(shelf.Bundle()).Allowed {
		return containerd.Image{}, false
	}
	return shelf.Target(img, platform())
}

// MayPull: what comes from no bundle, if there is room, and while no update runs
// here: that one waits for no registry.
func (s source) MayPull(img model.HeldImage) bool {
	if img.Kubelet { // it is fetched by somebody else, and only gets its names
		return img.Registry && img.Bundle == "" && !s.busy
	}
	return img.Registry && img.Bundle == "" && !s.closed && !s.full && !s.busy
}

func (s source) Open(digest string) (io.ReadCloser, error) { return s.lib.Open(digest) }
