package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
)

// API is what the agent needs of the API server; apiclient.Client implements it.
type API interface {
	// Watch calls got with the NodeUpdate at the start and after every change, until the
	// context ends. nil means that there is none.
	Watch(ctx context.Context, got func(*v1alpha1.NodeUpdate))
	Content(ctx context.Context, name string) (*v1alpha1.Content, error)
	ApplyStatus(ctx context.Context, status *v1alpha1.NodeUpdateStatus) error
	// Reader and ConfigReader read approvals in the objects of administrators.
	authority.Reader
	authority.ConfigReader
}

// Runtime is what the agent needs of the container runtime.
type Runtime interface {
	imagekeeper.Runtime
	// Root is the directory on the file system that stores the images.
	Root(ctx context.Context) (string, error)
	// Version is the runtime's name and version.
	Version(ctx context.Context) (name, version string, err error)
	// Watch calls changed when images were removed and when the runtime is back.
	Watch(ctx context.Context, changed func())
}

// Runner runs the steps of a run.
type Runner interface {
	// Run continues the run in the journal, or starts the permitted one (nil: none).
	// It reports through report and returns when nothing is left to do.
	Run(ctx context.Context, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus))
	// Busy reports whether a run has started and not finished.
	Busy() bool
	// Names of the updaters that it has.
	Names() []string
	// Adopt records a run that finished while this node had another store, so that it
	// does not start again.
	Adopt(run v1alpha1.NodeRun, ended v1alpha1.NodeRunStatus) error
}

// FindPayload finds a file of a bundle in this node's store.
type FindPayload func(bundle, name string) (updaters.Payload, error)

// Store gives the updaters what this node has stored for them.
type Store struct {
	FindPayload FindPayload
	// FindConfig returns a rendered configuration by name; ok is false until the agent has
	// received it.
	FindConfig func(name string) (data string, ok bool)
	// FindPinned finds a payload of the pin set by name and digest, in any bundle.
	FindPinned func(name, digest string) (updaters.Payload, error)
	// ReportProblem reports a problem in the node's status.
	ReportProblem statefile.Note
	// PeersReached returns how many of the node's peers answer.
	PeersReached func(ctx context.Context) int
}

// Facts observes the node.
type Facts interface {
	// Observe returns the state of the node and the fields that are asked for.
	Observe(ctx context.Context, asked Asked) v1alpha1.Observed
	// ReleaseImages returns the images that a kubeadm program needs on this node for a
	// release of Kubernetes; none on a worker. It may write a file into dir.
	ReleaseImages(ctx context.Context, kubeadm, version, dir string) ([]string, error)
}

// Stager prepares what this node boots next, while its pods run.
type Stager interface {
	// Prepare stages the boot of a configuration and drops one that was staged for another.
	Prepare(ctx context.Context, name string, c *model.NodeConfig) error
	// Drop removes a staged boot, if there is one.
	Drop(ctx context.Context) error
}

// Asked names the fields and programs that an observation includes.
type Asked struct {
	// Configs are the rendered configurations: the desired one first, then those of the
	// run, whose fields are compared when it has finished.
	Configs []*model.NodeConfig
	// Payloads are those of the pin set, to compare with the node's programs. Find
	// returns a payload that is stored here.
	Payloads []model.PinSetPayload
	Find     FindPayload
}

// Parts are what New builds an agent from.
type Parts struct {
	API     API
	Runtime Runtime
	// Runner makes the runner, given the agent's store.
	Runner func(Store) Runner
	Facts  Facts
	// Contents finds the bundles on a medium and reads their labels in a process without
	// privileges; nil does it in the agent's own process, as tests do.
	Contents bundlestore.ContentsReader
	// Deltas reads delta bundles and applies their patches in a process without privileges;
	// nil does it in the agent's own process, as tests do.
	Deltas bundlestore.DeltaReader
	// Health observes the node's health; nil: the status has none.
	Health func(ctx context.Context) *v1alpha1.NodeHealth
	// Running lists the image digests of a running container of a static pod.
	Running authority.RunningDigests
	// RepairPulls removes records of the kubelet that make it pull images again although
	// they are here, given their IDs in the runtime and their names. It restarts the
	// kubelet if it removed any. note is a file that lets it continue after a crash.
	// nil: the records stay.
	RepairPulls func(ctx context.Context, note string, ids, names []string) (removed int, err error)
	// Settled is called when all images are pinned, for slow work that blocks no loop.
	// nil: there is none.
	Settled func(ctx context.Context, images []model.PinSetImage, lib *bundlestore.Library)
	// Drill records a cold-start drill by its ID and restarts the machine; a drill that
	// is on record does nothing. nil: this agent runs no drills.
	Drill func(ctx context.Context, id string) error
	// Rehearse restores the newest snapshot of the datastore into a scratch directory and reads
	// it. nil: this agent rehearses nothing.
	Rehearse func(ctx context.Context, id string) v1alpha1.RestoreDrill
	// Stager prepares what the node boots next; nil: a run does that in its own step.
	Stager Stager
	// Repair undoes changes that a person or a program made to configured files and
	// settings, and returns what it undid. It does nothing while busy. nil: drift stays.
	Repair func(ctx context.Context, c *model.NodeConfig, busy func() bool) (did []string, err error)
	// Place returns the path of the program that a payload replaces, "" if it replaces
	// none. nil: no payload does.
	Place func(ctx context.Context, payload string) string
	// Journal reads this agent's log for the controller. nil: the log is not served.
	Journal peerapi.Journal
	Log     *slog.Logger
}

// Agent is one node's agent: what its loops share, and the loops.
type Agent struct {
	*shared
	// unlock lets another agent start on this node.
	unlock func()

	payloads      *payloadFinder
	space         *spaceChecker
	configs       *configApproval
	watch         *watchLoop
	mediaScan     *mediaLoop
	bundles       *bundleLoop
	images        *imageLoop
	runs          *runLoop
	staging       *stageLoop
	facts         *factsLoop
	health        *healthLoop
	maintenance   *maintenanceLoop
	problemReport *problemLoop
	server        *peerServer
	page          *pageServer
	hook          *statusHook
	status        *statusLoop
}

// New opens the agent's state and wires its loops. Run starts them.
func New(conf agentconfig.Config, p Parts) (*Agent, error) {
	s, unlock, err := openShared(conf, p)
	if err != nil {
		return nil, err
	}
	configs := &configApproval{shared: s, checks: map[string]configCheck{}}
	payloads := &payloadFinder{shared: s, compared: map[string]bool{}}
	space := &spaceChecker{shared: s, place: p.Place, eviction: kube.NodeEviction("/"), booted: "/run/ostree-booted"}
	maintenance := &maintenanceLoop{shared: s, settled: p.Settled, drill: p.Drill, drills: make(chan string, 1), rehearse: p.Rehearse, rehearsals: make(chan string, 1)}
	mediaScan := &mediaLoop{s}
	a := &Agent{
		shared:    s,
		unlock:    unlock,
		payloads:  payloads,
		space:     space,
		configs:   configs,
		watch:     &watchLoop{shared: s, requestDrill: maintenance.requestDrill, requestRehearsal: maintenance.requestRehearsal},
		mediaScan: mediaScan,
		bundles:   &bundleLoop{shared: s, space: space, mediaScan: mediaScan, peers: peertransfer.Peers{Limit: &s.limit}},
		images: &imageLoop{shared: s, space: space, rechecked: map[string]bool{}, firstPass: make(chan struct{}),
			release: &releaseCheck{shared: s, payloads: payloads, facts: p.Facts},
			pulls:   &pullRepair{shared: s, repair: p.RepairPulls}},
		runs:    &runLoop{shared: s, running: p.Running},
		staging: &stageLoop{shared: s, configs: configs, stager: p.Stager},
		facts: &factsLoop{shared: s, payloads: payloads, configs: configs, facts: p.Facts,
			drift: &driftRepair{shared: s, configs: configs, repair: p.Repair}},
		health:        &healthLoop{shared: s, health: p.Health},
		maintenance:   maintenance,
		problemReport: &problemLoop{shared: s, off: func() string { return coldstart.DisabledBy(coldstart.KernelCommandLine, coldstart.OffFile) }},
		server:        &peerServer{s, p.Journal},
		page:          &pageServer{s},
		hook:          &statusHook{shared: s, hook: statusreport.Hook{Path: conf.StatusHook}, retry: hookRetry},
		status:        &statusLoop{shared: s, reboot: statusreport.NewReboot()},
	}
	if conf.Console {
		a.status.issue = statusreport.NewIssue()
	}
	s.runner = p.Runner(Store{FindPayload: payloads.findPayload, FindConfig: s.config, FindPinned: payloads.findPinned, ReportProblem: s.reportProblem, PeersReached: s.peersReached})
	return a, nil
}

// Run starts the loops and waits until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	defer a.unlock()
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){
		a.server.Run, a.page.Run, a.hook.Run, a.authority.Run,
		a.watch.Run, a.mediaScan.Run, a.bundles.Run, a.images.Run, a.runs.Run, a.staging.Run, a.facts.Run, a.health.Run, a.maintenance.Run, a.problemReport.Run, a.status.Run,
		func(ctx context.Context) { a.runtime.Watch(ctx, func() { wake(a.wakeImages) }) },
	} {
		wg.Go(func() { loop(ctx) })
	}
	// The kubelet starts after this unit: the first pass restores lost images before the
	// kubelet asks for them. The kubelet does not wait for long.
	select {
	case <-a.images.firstPass:
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

// readyTime is the longest that the kubelet's start waits for the first pass over the images.
const readyTime = 20 * time.Second
