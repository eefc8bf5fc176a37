package agent

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
)

// API is what the agent needs of the API server; nodeapi.Client is it.
type API interface {
	// Watch calls got now and at every change until the context ends.
	Watch(ctx context.Context, got func(*v1alpha1.NodeUpdate))
	Content(ctx context.Context, name string) (*v1alpha1.Content, error)
	ApplyStatus(ctx context.Context, status *v1alpha1.NodeUpdateStatus) error
	// What administrators decided is read from their own objects.
	authority.Reader
	authority.ConfigReader
}

// Runtime is what the agent needs of the container runtime.
type Runtime interface {
	imagekeeper.Runtime
	// Root is the directory whose file system takes the images.
	Root(ctx context.Context) (string, error)
	// Version is the runtime's name and version.
	Version(ctx context.Context) (name, version string, err error)
	// Watch calls changed when images went or the runtime came back.
	Watch(ctx context.Context, changed func())
}

// Runner runs the steps of a run.
type Runner interface {
	// Run goes on with the run in the journal, or starts the one that is
	// permitted (nil: none). It reports through report and returns when nothing
	// is left to do.
	Run(ctx context.Context, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus))
	// Busy: a run has begun and not finished.
	Busy() bool
	// Names of the updaters that it has.
	Names() []string
	// Adopt notes a run that has ended under another store of this node, so that it is
	// not begun again.
	Adopt(run v1alpha1.NodeRun, ended v1alpha1.NodeRunStatus) error
}

// FindPayload finds a file of a bundle in this node's store.
type FindPayload func(bundle, name string) (updaters.Payload, error)

// Store is what this node holds for its updaters.
type Store struct {
	Payload FindPayload
	// Config is a rendered configuration by its name; ok is false while it has
	// not arrived.
	Config func(name string) (data string, ok bool)
	// Held is a file of any bundle that this node holds, by name and digest.
	Held func(name, digest string) (updaters.Payload, error)
	// Note takes a problem for the node's status.
	Note statefile.Note
}

// Facts are what the agent sees of its node.
type Facts interface {
	// Observe looks at the node, and at the fields that are asked for.
	Observe(ctx context.Context, asked Asked) v1alpha1.Observed
	// ReleaseImages are the images that a kubeadm program wants on this node for
	// a release of Kubernetes; none on a node without a control plane. dir is for
	// a file of its own.
	ReleaseImages(ctx context.Context, kubeadm, version, dir string) ([]string, error)
}

// Stager makes ready what this node boots next, while its pods run.
type Stager interface {
	// Prepare for a configuration, by its name; what was ready for another is dropped.
	Prepare(ctx context.Context, name string, c *model.NodeConfig) error
	// Drop what is ready, if anything is.
	Drop(ctx context.Context) error
}

// Asked says which fields somebody wants to know.
type Asked struct {
	// Configs are the rendered configurations: the one that is wanted first, then
	// those of the run, whose fields are judged when it is over.
	Configs []*model.NodeConfig
	// Payloads that the node is to hold: programs are compared. Find finds one of
	// those that are here.
	Payloads []model.HeldPayload
	Find     FindPayload
}

// Parts are what an agent is put together from.
type Parts struct {
	API     API
	Runtime Runtime
	// Runner is made with the agent's store.
	Runner func(Store) Runner
	Facts  Facts
	// Label reads the label of a bundle on a medium, without the agent's rights; nil reads
	// it in the agent's own process, as tests do.
	Label bundlestore.LabelReader
	// Health looks at the node's health; nil: it is not reported.
	Health func(ctx context.Context) *v1alpha1.NodeHealth
	// Running lists the digests of what a container of a static pod runs.
	Running authority.RunningDigests
	// MendPulls removes records of the kubelet by which it would pull images again
	// that are here: by their IDs in the runtime and their names. It restarts the
	// kubelet if there are any, and is called again with the same note, a file,
	// after a crash. nil: nobody does.
	MendPulls func(ctx context.Context, note string, ids, names []string) (mended int, err error)
	// Settled is called when everything of bundles is held: what costs time and
	// holds up nobody. nil: nothing is done then.
	Settled func(ctx context.Context, images []model.HeldImage, lib *bundlestore.Library)
	// Drill notes a drill of that name and restarts the machine; one that was noted
	// before is passed over. nil: this agent plays none.
	Drill func(ctx context.Context, id string) error
	// Stager makes ready what the node boots next; nil: nobody does.
	Stager Stager
	// Mend puts back what somebody changed on the node, where the configuration asks
	// for it, unless a run has begun, and says what it put back; nil: nobody does.
	Mend func(ctx context.Context, c *model.NodeConfig, busy func() bool) (did []string, err error)
	// Place is where the program of a payload is, or is to be put; "" for what is
	// no program of the node. nil knows no place.
	Place func(ctx context.Context, payload string) string
	Log   *slog.Logger
}

// Agent is one node's agent.
type Agent struct {
	conf    agentconfig.Config
	log     *slog.Logger
	api     API
	runtime Runtime
	runner  Runner
	facts   Facts
	stager  Stager
	repair  func(ctx context.Context, c *model.NodeConfig, busy func() bool) ([]string, error)
	health  func(ctx context.Context) *v1alpha1.NodeHealth
	running authority.RunningDigests
	mend    func(ctx context.Context, note string, ids, names []string) (int, error)
	place   func(ctx context.Context, payload string) string
	drill   func(ctx context.Context, id string) error
	settled func(ctx context.Context, images []model.HeldImage, lib *bundlestore.Library)
	digests nodefiles.Digests
	// eviction is what the kubelet wants left free; tests want nothing left free of
	// the disk that they happen to run on.
	eviction func() kube.Eviction
	// roomAt is the room of the file system of a path in tests; nil: the machine's.
	roomAt func(path string) (fsutil.Room, error)

	// problems of this node's agent, on this boot.
	problems statefile.Problems
	// off says why the check before the kubelet starts is switched off, empty if it is not.
	off func() string

	id      *peerapi.Identity
	address string
	library *bundlestore.Library
	keeper  *imagekeeper.Keeper
	peers   peertransfer.Peers
	limit   peerapi.Limit // of what goes to and comes from peers
	media   bundlestore.MediaSet

	authority *authority.Keeper

	mu       sync.Mutex
	want     *desired.State
	heard    bool // want comes from the API server, not from disk
	state    state
	compared map[string]bool // payloads, by digest
	badPeers map[string]time.Time
	// approvedRun is the key of the run that administrators stand behind.
	approvedRun string
	// configChecks are by what a configuration is followed for.
	configChecks map[string]configCheck

	served    []string        // bundles loop only
	rechecked map[string]bool // hold loop only
	release   release         // hold loop only
	mended    time.Time       // hold loop only: when the kubelet's records were mended last
	firstHold chan struct{}
	unwanted  graceTimer
	sources   *transferStats
	arrivals  arrivalStats
	unlock    func()

	// A notification wakes a loop; one that is not awaited yet is not doubled.
	wakeProblems, wakeBundles, wakeHold, wakeRun, wakeStage, wakeMedia, wakeFacts, wakePublish, wakeSettled, wakeDoor chan struct{}
	// drills has the one that was asked for last.
	drills chan string
}

// New opens the agent's state. Run does the work.
func New(conf agentconfig.Config, p Parts) (*Agent, error) {
	a := &Agent{conf: conf, log: p.Log, api: p.API, runtime: p.Runtime, facts: p.Facts, stager: p.Stager, repair: p.Mend, place: p.Place, eviction: kubeletEviction, health: p.Health, running: p.Running, mend: p.MendPulls, settled: p.Settled, drill: p.Drill, firstHold: make(chan struct{}), rechecked: map[string]bool{}, compared: map[string]bool{}, configChecks: map[string]configCheck{}, unwanted: graceTimer{Grace: unwantedGrace}}
	a.peers.Limit = &a.limit
	a.media.Label = p.Label
	a.drills = make(chan string, 1)
	a.problems, a.off = statefile.At(conf.RunPath()), func() string { return coldstart.Off(coldstart.KernelCommandLine, coldstart.OffFile) }
	a.knownProblems()
	for _, k := range []*chan struct{}{&a.wakeProblems, &a.wakeBundles, &a.wakeHold, &a.wakeRun, &a.wakeStage, &a.wakeMedia, &a.wakeFacts, &a.wakePublish, &a.wakeSettled, &a.wakeDoor} {
		*k = make(chan struct{}, 1)
	}
	var err error
	if a.unlock, err = lockAgent(conf); err != nil {
		return nil, err
	}
	if a.id, err = peerapi.LoadIdentity(conf.Path("key.pem"), a.note); err != nil {
		return nil, err
	}
	if a.address, err = conf.PeerAddress(0); err != nil {
		return nil, err
	}
	a.library = bundlestore.OpenLibrary(conf.StateDir, p.Log, a.note)
	a.keeper = imagekeeper.NewKeeper(p.Runtime, conf.StateDir, a.note)
	if a.want = desired.Read(conf.Path("want.json"), a.note); a.want != nil {
		a.limit.Set(a.want.Spec.Bandwidth)
	}
	a.sources = openTransferStats(conf.Path("sources.json"), a.note)
	a.authority = authority.Open(conf.Path(authority.File), p.API, p.Log, a.note, a.authorityChanged)
	a.runner = p.Runner(Store{Payload: a.payload, Config: a.config, Held: a.held, Note: a.note})
	return a, nil
}

// Run works until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	defer a.unlock()
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){
		a.door().Run,
		a.watchAPI, a.watchMedia, a.bundlesLoop, a.holdLoop, a.runLoop, a.stageLoop, a.factsLoop, a.healthLoop, a.publishLoop, a.settledLoop, a.problemsLoop, a.authority.Run,
		func(ctx context.Context) { a.runtime.Watch(ctx, func() { wake(a.wakeHold) }) },
	} {
		wg.Go(func() { loop(ctx) })
	}
	// The kubelet starts after us (see the unit): images are looked at, and put
	// back if they were lost, before it asks for them. It does not wait for long.
	select {
	case <-a.firstHold:
	case <-ctx.Done():
	case <-time.After(readyTime):
	}
	a.log.Info("agent started", "node", a.conf.Node, "key", a.id.PublicKey())
	// Ignored: not every start is by systemd.
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	<-ctx.Done()
	wg.Wait()
	return nil
}

// readyTime is the longest that the kubelet's start waits for a look at the images.
const readyTime = 20 * time.Second

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

// wanted is what the node was told last; nil if nothing yet.
func (a *Agent) wanted() *desired.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.want
}

func (a *Agent) watchAPI(ctx context.Context) {
	latest := make(chan *v1alpha1.NodeUpdate, 1)
	go func() {
		a.api.Watch(ctx, func(nu *v1alpha1.NodeUpdate) {
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
			a.told(ctx, nu, latest)
		}
	}
}

// told takes over what the node is told; Contents that cannot be read are asked
// for again until something newer comes. A Content never changes, so one that this agent
// is too old for is not read again.
func (a *Agent) told(ctx context.Context, nu *v1alpha1.NodeUpdate, newer chan *v1alpha1.NodeUpdate) {
	if nu == nil {
		a.update(func(s *state) { s.present = false })
		return
	}
	for {
		before := a.wanted()
		w, err := desired.Resolve(ctx, a.api, nu, before)
		if err == nil {
			err = a.newStore(ctx, nu)
		}
		if err == nil {
			a.take(w, before, nu)
			return
		}
		a.log.Warn("desired state not followed", "error", err)
		unread, retry := whyUnread(err)
		a.update(func(s *state) { s.present, s.unread = true, unread })
		select {
		case <-ctx.Done():
			return
		case nu = <-newer:
			if nu == nil {
				a.update(func(s *state) { s.present = false })
				return
			}
		case <-retry:
		}
	}
}

// whyUnread returns the verdict about a desired state that cannot be followed, and when to
// try it again; a nil channel is never.
func whyUnread(err error) (*model.Verdict, <-chan time.Time) {
	if errors.As(err, new(*model.UnknownMembersError)) {
		return &model.Verdict{Reason: v1alpha1.ReasonAgentOutdated, Message: err.Error() + "; update refit on this node"}, nil
	}
	return &model.Verdict{Reason: v1alpha1.ReasonLoading, Message: err.Error(), Waiting: true}, time.After(3 * time.Second)
}

func (a *Agent) take(w, before *desired.State, nu *v1alpha1.NodeUpdate) {
	// Not the generation alone: a NodeUpdate that was made anew counts from 1.
	changed := before == nil || !reflect.DeepEqual(before, w)
	if changed {
		if err := w.Save(a.conf.Path("want.json")); err != nil {
			a.note(statefile.NotWritable(a.conf.Path("want.json"), err))
		}
	}
	a.mu.Lock()
	first := !a.heard
	a.want, a.heard = w, true
	a.mu.Unlock()
	a.limit.Set(w.Spec.Bandwidth)
	a.update(func(s *state) {
		s.present, s.unread = true, nil
		if nu.Status.Agent == nil { // made anew: it does not know us
			s.sent = nil
		}
	})
	if before == nil || before.Spec.Trust != w.Spec.Trust || !slices.Equal(before.Spec.Bundles, w.Spec.Bundles) {
		// A large cluster does not ask all at once; the heartbeat grows with it.
		a.authority.Ask(time.Duration(w.Spec.HeartbeatSeconds) * time.Second / 8)
	}
	a.drillAsked(nu.Annotations[v1alpha1.AnnotationDrill])
	if changed || first {
		for _, k := range []chan struct{}{a.wakeBundles, a.wakeHold, a.wakeRun, a.wakeStage, a.wakeMedia, a.wakeFacts, a.wakeDoor} {
			wake(k)
		}
	}
}
