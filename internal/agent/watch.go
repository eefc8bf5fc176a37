package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// watchLoop follows the node's NodeUpdate: it resolves the Contents that the NodeUpdate
// names, saves the desired state on disk and wakes the other loops. It alone writes the
// desired state.
type watchLoop struct {
	*shared
	// requestDrill hands a drill to the maintenance loop.
	requestDrill func(id string)
	// requestRehearsal hands a rehearsed restore to it.
	requestRehearsal func(id string, last *v1alpha1.RestoreDrill)
}

// Run follows the NodeUpdate until the context ends.
func (l *watchLoop) Run(ctx context.Context) {
	latest := make(chan *v1alpha1.NodeUpdate, 1)
	go func() {
		l.api.Watch(ctx, func(nu *v1alpha1.NodeUpdate) {
			select { // only the newest counts
			case <-latest:
			default:
			}
			latest <- nu
		})
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case nu := <-latest:
			l.recordAnswer(time.Now(), nil)
			l.follow(ctx, nu, latest)
		}
	}
}

// follow resolves a NodeUpdate and accepts it. It retries Contents that it cannot read until a
// newer NodeUpdate arrives. A Content never changes, so it does not read one again that this
// agent is too old for.
func (l *watchLoop) follow(ctx context.Context, nu *v1alpha1.NodeUpdate, newer chan *v1alpha1.NodeUpdate) {
	if nu == nil {
		l.update(func(s *state) { s.present = false })
		return
	}
	for {
		before := l.desiredState()
		w, err := desired.Resolve(ctx, l.api, nu, before)
		if err == nil {
			err = l.checkStore(ctx, nu)
		}
		if err == nil {
			l.accept(w, before, nu)
			return
		}
		l.log.Warn("desired state not followed", "error", err)
		unread, retry := unreadVerdict(err)
		l.update(func(s *state) { s.present, s.unreadVerdict = true, unread })
		select {
		case <-ctx.Done():
			return
		case nu = <-newer:
			if nu == nil {
				l.update(func(s *state) { s.present = false })
				return
			}
		case <-retry:
		}
	}
}

// unreadVerdict returns the blocker about a desired state that cannot be followed, and when to
// try it again; a nil channel is never.
func unreadVerdict(err error) (*model.Blocker, <-chan time.Time) {
	if errors.As(err, new(*model.UnknownMembersError)) {
		return &model.Blocker{Reason: v1alpha1.ReasonAgentOutdated, Message: err.Error() + "; update refit on this node"}, nil
	}
	return &model.Blocker{Reason: v1alpha1.ReasonLoading, Message: err.Error(), Waiting: true}, time.After(3 * time.Second)
}

// accept saves a new desired state, publishes it to the loops and wakes them.
func (l *watchLoop) accept(w, before *desired.State, nu *v1alpha1.NodeUpdate) {
	// Not the generation alone: a recreated NodeUpdate counts from 1.
	changed := before == nil || !reflect.DeepEqual(before, w)
	if changed {
		if err := w.Save(l.conf.Path("want.json")); err != nil {
			l.reportProblem(statefile.NotWritable(l.conf.Path("want.json"), err))
		}
	}
	l.mu.Lock()
	first := !l.fromAPI
	l.want, l.fromAPI = w, true
	l.mu.Unlock()
	l.limit.Set(w.Spec.Bandwidth)
	l.update(func(s *state) {
		s.present, s.unreadVerdict = true, nil
		if nu.Status.Agent == nil { // recreated: its status is empty
			s.sent = nil
		}
	})
	if before == nil || before.Spec.Trust != w.Spec.Trust || !slices.Equal(before.Spec.Bundles, w.Spec.Bundles) {
		// Spread the reads of a large cluster; its heartbeat interval grows with it.
		l.authority.RequestRead(time.Duration(w.Spec.HeartbeatSeconds) * time.Second / 8)
	}
	l.requestDrill(nu.Annotations[v1alpha1.AnnotationDrill])
	l.requestRehearsal(nu.Annotations[v1alpha1.AnnotationRestoreDrill], nu.Status.RestoreDrill)
	if changed || first {
		for _, k := range []chan struct{}{l.wakeBundles, l.wakeImages, l.wakeRuns, l.wakeStage, l.wakeMedia, l.wakeFacts, l.wakeServer} {
			wake(k)
		}
	}
}

// checkStore detects, at the first NodeUpdate after the start, that its status describes another
// store than this one: a new disk, or a new installation. The agent then fetches everything
// again. It adopts the finished run of the old store instead of running it again: the
// permission is still there, but the controller no longer watches that run.
func (l *watchLoop) checkStore(ctx context.Context, nu *v1alpha1.NodeUpdate) error {
	l.mu.Lock()
	heard := l.fromAPI
	l.mu.Unlock()
	was := nu.Status.Agent
	if heard || was == nil || was.PublicKey == "" || was.PublicKey == l.id.PublicKey() {
		return nil
	}
	if run, ended := lastRunOf(nu); ended != nil {
		if err := l.runner.Adopt(run, *ended); err != nil {
			return fmt.Errorf("record the finished run of the previous store: %w", err)
		}
	}
	held := int32(0)
	if h := nu.Status.Pins; h != nil {
		held = h.ImagesReady
	}
	l.update(func(s *state) { s.replaced = true })
	l.emitEvent(ctx, eventReplaced, fmt.Sprintf("node %s has a new store (a new disk, or a new installation); the previous one had %s. The agent fetches everything again from its peers or a medium", l.conf.Node, text.Count(int(held), "image")))
	return nil
}

// lastRunOf returns the permitted run as its last attempt, and the result of that; nil if it
// did not finish, or never started.
func lastRunOf(nu *v1alpha1.NodeUpdate) (v1alpha1.NodeRun, *v1alpha1.NodeRunStatus) {
	run, s := nu.Spec.Run, nu.Status.Run
	if run == nil || s == nil || s.UID != run.UID || s.Attempt < run.Attempt || s.State == v1alpha1.RunRunning {
		return v1alpha1.NodeRun{}, nil
	}
	last := *run
	last.Attempt = s.Attempt
	return last, s
}
