package agent

import (
	"context"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/media"
)

// scanEvery is how often media are looked at without any event: events can be
// lost, and a file or a device written in place makes none.
const scanEvery = 10 * time.Second

func (a *Agent) watchMedia(ctx context.Context) {
	defer a.media.Close()
	a.media.Changed = func() { // a device answered late
		wake(a.wakeBundles)
		wake(a.wakeMedia)
	}
	if !a.conf.NoDevices {
		go func() {
			if err := media.Events(ctx, func() { wake(a.wakeMedia) }); err != nil && ctx.Err() == nil {
				a.log.Warn("device events unavailable; falling back to polling", "error", err)
			}
		}()
	}
	each(ctx, a.wakeMedia, scanEvery, func(ctx context.Context) {
		a.scan()
		a.describeMedia(ctx)
		// A device appears in /dev a moment after the kernel's event.
		sleep(ctx, 100*time.Millisecond)
	})
}

// scan looks at what is plugged in, and wakes the bundles loop if a bundle came
// or went.
func (a *Agent) scan() {
	places := media.Places{Allow: slices.Concat(a.conf.Devices, a.conf.Media)}
	if a.conf.NoDevices {
		places.Sys = "/nonexistent"
	}
	now, err := media.Scan(places, a.conf.Media)
	if err != nil {
		a.log.Warn("failed to list media", "error", err)
	}
	if a.media.Scan(now) {
		wake(a.wakeBundles)
	}
}

// describeMedia says in the status what is plugged in.
func (a *Agent) describeMedia(ctx context.Context) {
	w := a.wanted()
	if w == nil {
		w = &desired.State{}
	}
	hold, _ := a.inStore(ctx, w)
	out := a.media.Describe(a.policy(w), func(digest string) (here bundlestore.Here) {
		if s := a.library.Shelf(digest); s != nil {
			here.Missing, here.Total = a.missing(s, hold)
			here.All = here.Missing == 0 && full(s)
		}
		return here
	})
	a.update(func(s *state) { s.media = out })
}
