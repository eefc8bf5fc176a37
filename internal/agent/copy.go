package agent

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// inStore is the part of the hold list whose blobs belong into this node's store:
// all but images that need no copy and that the runtime holds. If that one does not
// answer, nothing is fetched for such images, and known is false: nothing is let
// go either.
func (a *Agent) inStore(ctx context.Context, w *desired.State) (list model.HoldList, known bool) {
	list = w.Hold
	if !slices.ContainsFunc(list.Images, func(i model.HeldImage) bool { return i.NoCopy }) {
		return list, true
	}
	have, err := a.runtime.Present(ctx)
	lacks := map[string]bool{}
	if err == nil {
		for _, i := range pin.Decide(list.Images, have, nil).Load {
			lacks[pin.Key(i)] = true
		}
	}
	list.Images = slices.DeleteFunc(slices.Clone(list.Images), func(i model.HeldImage) bool { return i.NoCopy && !lacks[pin.Key(i)] })
	return list, err == nil
}

// withoutMost is how many images without a copy are named.
const withoutMost = 16

// coldStart is what this node would start from now.
func (a *Agent) coldStart(w *desired.State) *v1alpha1.ColdStart {
	c := &v1alpha1.ColdStart{}
	blobs := map[string]bool{}
	for _, img := range w.Hold.Images {
		if img.Registry {
			continue
		}
		shelf := a.library.Shelf(img.Bundle)
		if shelf == nil {
			c.Without = append(c.Without, img.Name)
			continue
		}
		if _, ok := shelf.Target(img, platform()); !ok {
			c.Without = append(c.Without, img.Name)
			continue
		}
		c.Copies++
		one := model.HoldList{Images: []model.HeldImage{img}}
		for _, b := range shelf.Wanted(one, platform()).Blobs {
			if blob := shelf.Bundle().Metadata.Blobs[b]; !blobs[blob.Digest] {
				blobs[blob.Digest] = true
				c.CopyBytes += blob.Size
			}
		}
	}
	c.Without = c.Without[:min(len(c.Without), withoutMost)]
	if r, err := coldstart.ReadReport(a.conf); err == nil {
		at := metav1.NewTime(r.At.Truncate(time.Second))
		c.CheckedBoot, c.CheckedAt, c.CheckSeconds, c.Unclean, c.Drill = r.BootID, &at, int32(r.Seconds+0.5), r.Unclean, r.Drill
		c.Compared, c.Restored, c.Missing = int32(r.Files), int32(len(r.Restored)), int32(len(r.Missing))
	}
	return c
}

// drillAgain is when a drill is looked at again that was asked before anything was
// known of the images.
const drillAgain = 5 * time.Second

// drillAsked hands on a drill that somebody asked for.
func (a *Agent) drillAsked(id string) {
	if id == "" || a.drill == nil {
		return
	}
	select {
	case a.drills <- id:
	default: // one is looked at; the next word of the API server names this one again
	}
}

// drillFacts: whether something was looked at since the start, whether all that this
// node holds would come back, and whether this drill was played before.
func (a *Agent) drillFacts(id string) (looked, ready, again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, c := a.state.holding, a.state.cold
	if c == nil {
		return false, false, false
	}
	ready = a.want != nil && h.Content == a.want.Spec.Pins && h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal && c.Copies == h.ImagesTotal
	return true, ready, c.Drill == id
}

// playDrill restarts the machine for a drill, if all that it holds would come back.
func (a *Agent) playDrill(ctx context.Context, id string) {
	looked, ready, again := a.drillFacts(id)
	switch {
	case again:
		return
	case !looked: // nothing was looked at since the start
		time.AfterFunc(drillAgain, func() { wake(a.wakeHold); a.drillAsked(id) })
		return
	case !ready || a.runner.Busy():
		a.tell(ctx, eventDrill, "drill "+id+" is not played: not everything that this node is to hold is held, pinned and copied, or an update runs")
		return
	}
	if err := a.drill(ctx, id); err != nil {
		a.tell(ctx, eventDrill, "drill "+id+" is not played: "+err.Error())
	}
}
