package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/peerapi"
)

// shared is what several loops of one agent use; doc.go lists who writes what. Every loop embeds
// a pointer to it. The fields above mu do not change after New; their types lock for themselves.
type shared struct {
	conf    agentconfig.Config
	log     *slog.Logger
	api     API
	runtime Runtime
	runner  Runner

	id        *peerapi.Identity
	authority *authority.Keeper
	library   *bundlestore.Library
	keeper    *imagekeeper.Keeper
	media     bundlestore.MediaSet
	// signatures of images, as TrustPolicies want them.
	signatures signatureCheck
	// registries are those from which this node fetches bundles for all.
	registries registrySources
	// limit is the bandwidth to and from peers, and from registries.
	limit peerapi.Limit
	// problems of this node's agent, on this boot.
	problems statefile.Problems
	// unwanted delays the removal of images and blobs that are no longer desired.
	unwanted graceTimer
	// full: a file system of the node has too little room for what it is to hold.
	full atomic.Bool
	// sources and arrivals count received bytes, by bundle and by blob.
	sources  *transferStats
	arrivals arrivalStats

	wakes

	// local is the last local status, nil before the first one.
	local atomic.Pointer[statusreport.Local]

	mu sync.Mutex
	// want is the desired state: the watch writes it. It never changes in place.
	want *desired.State
	// fromAPI: want comes from the API server, not from disk.
	fromAPI bool
	state   state
}

// wakes has a channel per loop, which stores one wake-up: more of them before the loop's next
// pass are one.
type wakes struct {
	wakeProblems, wakeBundles, wakeImages, wakeRuns, wakeStage, wakeMedia, wakeFacts, wakeStatus, wakeMaintenance, wakeServer, wakeHook chan struct{}
}

func newWakes() (w wakes) {
	for _, c := range []*chan struct{}{&w.wakeProblems, &w.wakeBundles, &w.wakeImages, &w.wakeRuns, &w.wakeStage, &w.wakeMedia, &w.wakeFacts, &w.wakeStatus, &w.wakeMaintenance, &w.wakeServer, &w.wakeHook} {
		*c = make(chan struct{}, 1)
	}
	return w
}

// openShared locks the agent's state and opens it. New adds the runner, which needs the payload
// finder.
func openShared(conf agentconfig.Config, p Parts) (s *shared, unlock func(), err error) {
	s = &shared{conf: conf, log: p.Log, api: p.API, runtime: p.Runtime, unwanted: graceTimer{Grace: unwantedGrace}, wakes: newWakes()}
	s.media.Contents, s.media.Deltas = p.Contents, p.Deltas
	s.problems = statefile.At(conf.RunPath())
	s.loadProblems()
	if unlock, err = lockAgent(conf); err != nil {
		return nil, nil, err
	}
	if s.id, err = peerapi.LoadIdentity(conf.Path("key.pem"), s.reportProblem); err != nil {
		return nil, nil, err
	}
	if s.state.address, err = conf.PeerAddress(0); err != nil {
		return nil, nil, err
	}
	s.library = bundlestore.OpenLibrary(conf.StateDir, p.Log, s.reportProblem)
	s.media.Edges, s.media.Known = s.library.Edges, s.library.Header
	s.keeper = imagekeeper.NewKeeper(p.Runtime, conf.StateDir, s.reportProblem)
	if s.want = desired.ReadFile(conf.Path("want.json"), s.reportProblem); s.want != nil {
		s.limit.Set(s.want.Spec.Bandwidth)
	}
	s.sources = openTransferStats(conf.Path("sources.json"), s.reportProblem)
	s.authority = authority.Open(conf.Path(authority.File), p.API, p.Log, s.reportProblem, s.authorityChanged)
	return s, unlock, nil
}

// desiredState returns the desired state; nil before the first one.
func (sh *shared) desiredState() *desired.State {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.want
}

// config returns a rendered configuration of the desired state by name.
func (sh *shared) config(name string) (data string, ok bool) {
	w := sh.desiredState()
	if w == nil {
		return "", false
	}
	data, ok = w.Configs[name]
	return data, ok
}

func (sh *shared) lastObserved() *v1alpha1.Observed {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.state.observed
}

// policy returns which bundles this node may load: those that the controller named and
// administrators approved.
func (sh *shared) policy(w *desired.State) bundlestore.Policy {
	// A pre-release build counts as its release.
	release, _, _ := strings.Cut(agentVersion(), "-")
	return sh.authority.Policy(w.Approved(), w.Trust, release)
}

// authorityChanged wakes the loops whose work depends on approvals.
func (sh *shared) authorityChanged() {
	for _, k := range []chan struct{}{sh.wakeBundles, sh.wakeImages, sh.wakeMedia} {
		wake(k)
	}
}

// update changes the state and wakes the status loop.
func (sh *shared) update(f func(*state)) {
	sh.mu.Lock()
	f(&sh.state)
	sh.mu.Unlock()
	wake(sh.wakeStatus)
}

// reportProblem records a problem for the node's status and for an event.
func (sh *shared) reportProblem(p statefile.Problem) {
	sh.log.Error("state of the agent damaged", "file", p.Object, "error", p.Message)
	sh.problems.Add(p)
	wake(sh.wakeProblems)
}

// loadProblems records the problems of the configuration file, and clears those of an earlier
// version of the file.
func (sh *shared) loadProblems() {
	for _, p := range sh.problems.List(time.Now()) {
		if p.Reason == agentconfig.ReasonInvalid {
			sh.problems.Clear(p.Reason, p.Object)
		}
	}
	for _, p := range sh.conf.Problems {
		sh.reportProblem(p)
	}
}

// eventRecorder is an API that can emit events about this node.
type eventRecorder interface {
	EmitEvent(ctx context.Context, reason, message string) error
}

// emitEvent logs a message and emits it as an event. An event that fails is not retried.
func (sh *shared) emitEvent(ctx context.Context, reason, message string) {
	sh.log.Info(message, "event", reason)
	t, ok := sh.api.(eventRecorder)
	if !ok {
		return
	}
	if err := t.EmitEvent(ctx, reason, message); err != nil {
		sh.log.Info("failed to record event", "error", err)
	}
}

// wake sends a wake-up unless one is pending.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// each calls f at once, at every wake and every period, until the context ends.
func each(ctx context.Context, woken <-chan struct{}, period time.Duration, f func(context.Context)) {
	for {
		f(ctx)
		t := time.NewTimer(period)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-woken:
		case <-t.C:
		}
		t.Stop()
	}
}

// sleep pauses until the time is over or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
