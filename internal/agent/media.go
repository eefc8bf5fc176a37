package agent

import (
	"context"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/media"
)

// scanEvery is how often the loop lists media without an event: events can be lost, and a file
// or a device that is written in place causes none.
const scanEvery = 10 * time.Second

// mediaLoop scans the media of this node and reports them. The bundle loop reports them
// again when it copied or refused something.
type mediaLoop struct{ *shared }

// Run scans at every device event and now and then.
func (l *mediaLoop) Run(ctx context.Context) {
	defer l.media.Close()
	l.media.Changed = func() { // a slow device answered
		wake(l.wakeBundles)
		wake(l.wakeMedia)
	}
	if !l.conf.NoDevices {
		go func() {
			if err := media.Events(ctx, func() { wake(l.wakeMedia) }); err != nil && ctx.Err() == nil {
				l.log.Warn("device events unavailable; falling back to polling", "error", err)
			}
		}()
	}
	each(ctx, l.wakeMedia, scanEvery, func(ctx context.Context) {
		l.scan()
		l.describe(ctx)
		// A device appears in /dev a moment after the kernel's event.
		sleep(ctx, 100*time.Millisecond)
	})
}

// scan lists the media in this node, and wakes the bundle loop if a bundle appeared or
// disappeared.
func (l *mediaLoop) scan() {
	places := media.Places{Allow: slices.Concat(l.conf.Devices, l.conf.Media)}
	if l.conf.NoDevices {
		places.Sys = "/nonexistent"
	}
	now, err := media.Scan(places, l.conf.Media)
	if err != nil {
		l.log.Warn("failed to list media", "error", err)
	}
	if l.media.Scan(now) {
		wake(l.wakeBundles)
	}
}

// describe reports the media in the status.
func (l *mediaLoop) describe(ctx context.Context) {
	w := l.desiredState()
	if w == nil {
		w = &desired.State{}
	}
	hold, _ := l.pinsToStore(ctx, w)
	var stored []string
	out := l.media.Describe(l.policy(w), func(digest string) (here bundlestore.Availability) {
		if s := l.library.Shelf(digest); s != nil {
			here.Missing, here.Total = l.missing(s, hold)
			here.Header, here.Wanted = s.Bundle(), missingChunks(s, s.Wanted(hold, platform()))
			if here.All = here.Missing == 0 && full(s); here.All {
				stored = append(stored, digest)
			}
		}
		return here
	})
	l.update(func(s *state) { s.media, s.stored = out, stored })
}
