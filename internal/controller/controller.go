package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/controller/bootimages"

	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"

	"github.com/refit-dev/refit/internal/controller/clusterapi"
	"github.com/refit-dev/refit/internal/controller/clusterresources"
	"github.com/refit-dev/refit/internal/controller/clusterupdates"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/controller/imagetracks"
	"github.com/refit-dev/refit/internal/controller/interlocks"
	"github.com/refit-dev/refit/internal/controller/joinserver"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/controller/nodedistribution"
	"github.com/refit-dev/refit/internal/controller/nodedrain"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/notifications"

	"github.com/refit-dev/refit/internal/controller/osimages"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/statuspage"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
	"github.com/refit-dev/refit/internal/registry"
)

// A lease outlives the half minute in which a single control-plane node replaces its API
// server. A leader that cannot renew for longer exits, and its successor waits until that
// is certain. A standby replaces a dead leader within leaseDuration and retryPeriod.
const (
	leaseDuration = 2 * time.Minute
	renewDeadline = 90 * time.Second
	retryPeriod   = 5 * time.Second
)

// reconcileTimeout bounds one reconcile. A reconcile that still runs after stuckAfter,
// although its context has ended, is stuck.
const (
	reconcileTimeout = 2 * time.Minute
	stuckAfter       = 3 * reconcileTimeout
)

// Options of a controller.
type Options struct {
	// Config to reach the API server.
	Config *rest.Config
	// Identity in the leader election, unique per pod and the same after a
	// restart of its container. Empty means no leader election.
	Identity string
	// HealthAddress, MetricsAddress and ProfileAddress (Go's profiler) as
	// host:port; empty or "0" means none.
	HealthAddress, MetricsAddress, ProfileAddress string
	// MetricsCertificate is a directory with tls.crt and tls.key for a MetricsAddress that is
	// not loopback; without it the controller makes a certificate at each start.
	MetricsCertificate string
	Log                logr.Logger
	// Registry for refit's metrics; nil is the one that MetricsAddress serves.
	Registry prometheus.Registerer
	// ClusterAPI says where Cluster API's hooks are answered; without an address
	// they are not.
	ClusterAPI clusterapi.Options
	// Joins says where machines fetch their first-boot configuration; without an
	// address they do not.
	Joins joinserver.Options
	// StatusPage says where browsers see the state; without an address they do not.
	StatusPage statuspage.Options
	// Notifications is the file with the receivers of messages about updates; empty for none.
	Notifications string
	// Bandwidth is what nodes may use of their networks to pass chunks on.
	Bandwidth transfer.Bandwidth
	// Registries is how image registries are reached; nil is the usual way, which leads
	// to nothing local but LocalRegistries, as HOST or HOST:PORT.
	Registries      http.RoundTripper
	LocalRegistries []string
	// LocalServers are those of boot streams, external updaters, workload clusters and
	// receivers of notifications that may be local, as HOST or HOST:PORT.
	LocalServers []string
	// Without are the areas that are left out: their kinds are not installed, and their
	// controllers do not start.
	Without areas.Set
	// Now is the clock; nil is the machine's.
	Now func() time.Time
}

// Scheme knows refit's kinds and those of Kubernetes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, v1alpha1.AddToScheme(s)
}

// withDefaults fills in what is real outside tests.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Registry == nil {
		o.Registry = metrics.Registry
	}
	return o
}

// validate refuses what contradicts itself.
func (o Options) validate() error {
	if o.ClusterAPI.Address != "" && o.Without.Has(areas.ClusterAPI) {
		return fmt.Errorf("-cluster-api-address is set to %s, and -without leaves %s out: take away one of them", o.ClusterAPI.Address, areas.ClusterAPI)
	}
	if err := validateMetrics(o); err != nil {
		return err
	}
	return o.StatusPage.Validate()
}

// Run runs the controller until the context ends. It waits for an unavailable API server.
// An error means that the caller must start it again.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	times := queue.NewTimes(o.Registry)
	health := newProbeServer(times.Oldest, stuckAfter)
	if err := health.Listen(ctx, o.HealthAddress); err != nil {
		return err
	}
	cfg := clientConfig(o.Config)
	if err := waitForAPI(ctx, cfg, o, health); err != nil {
		return err
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	id, err := identity(ctx, direct)
	if err != nil {
		return err
	}
	mgr, err := manager(cfg, scheme, direct, id, o)
	if err != nil {
		return err
	}
	if err := register(ctx, mgr, id, times, o); err != nil {
		return err
	}
	if err := prepareStart(ctx, mgr, health, watchedKinds(scheme, o.Without)); err != nil {
		return err
	}
	if err := addServers(mgr, direct, o); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// clientConfig is how the controller reaches the API server.
func clientConfig(of *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(of)
	if cfg.QPS == 0 {
		cfg.QPS, cfg.Burst = 500, 1000 // thirty thousand nodes in a quarter of an hour; the API server shares itself out fairly
	}
	// The API server is near: sending 30,000 objects takes less time than compressing them.
	cfg.DisableCompression = true
	cfg.Wrap(queue.Transport)
	cfg.UserAgent = "refit-controller/" + componentversion.Refit()
	return cfg
}

// servers guards connections to what objects name, except registries.
func (o *Options) servers() *outbound.Guard {
	return outbound.New(outbound.ServerFlag, o.LocalServers...)
}

// addServers adds the servers that were asked for. Every replica has them.
func addServers(mgr ctrl.Manager, direct client.Client, o Options) error {
	if o.ClusterAPI.Address != "" {
		o.ClusterAPI.Registry, o.ClusterAPI.Now, o.ClusterAPI.Servers = o.Registry, o.Now, o.servers()
		if err := clusterapi.Setup(mgr, direct, o.ClusterAPI); err != nil {
			return err
		}
	}
	if o.StatusPage.Address != "" {
		o.StatusPage.Without, o.StatusPage.Now = o.Without, o.Now
		if err := statuspage.Setup(mgr, o.StatusPage); err != nil {
			return err
		}
	}
	if o.Joins.Address == "" {
		return nil
	}
	o.Joins.Now = o.Now
	return joinserver.Setup(mgr, direct, o.Joins)
}

// register adds the reconcilers.
func register(ctx context.Context, mgr ctrl.Manager, id *peerapi.Identity, times *queue.Times, o Options) error {
	live := reader{mgr.GetAPIReader(), mgr.GetScheme(), o.Without}
	hs := bundlefiles.NewHeaders(id)
	hs.Node = func(ctx context.Context, name string) (*corev1.Node, error) {
		n := &corev1.Node{}
		return n, mgr.GetClient().Get(ctx, client.ObjectKey{Name: name}, n)
	}
	index := nodeindex.New()
	messages := notifications.Options{File: o.Notifications, Servers: o.servers(), Registry: o.Registry, Now: o.Now}
	if err := errors.Join(mgr.Add(leaderOnly{hs}), registerSiteMetrics(mgr, index, o), notifications.Setup(mgr, messages)); err != nil {
		return err
	}
	granter := &NodeRightsGranter{Client: mgr.GetClient(), Live: live, Nodes: index.Reader(nodeindex.Changes{})}
	standby := &standbyStarter{Client: mgr.GetClient(), Live: live, Nodes: index.Reader(nodeindex.Changes{}), Pod: o.Identity}
	if err := errors.Join(mgr.Add(granter), mgr.Add(standby)); err != nil {
		return err
	}
	release, _, _ := strings.Cut(componentversion.Refit(), "-") // a build before a release counts as that release
	f := &nodedistribution.Reconciler{Client: mgr.GetClient(), Live: live, Headers: hs, PublicKey: id.PublicKey(), Refit: release, Bandwidth: o.Bandwidth, Now: o.Now, Events: mgr.GetEventRecorder("refit-controller")}
	if err := f.Setup(mgr, index, times, nodedistribution.HeaderSource(hs.Changed())); err != nil {
		return err
	}
	c := &nodeconfigs.Reconciler{Client: mgr.GetClient(), Live: live, WithoutOSImages: o.Without.Has(areas.OSImages), Now: o.Now}
	if err := c.Setup(mgr, index, times); err != nil {
		return err
	}
	apiMetrics, err := clusterfacts.MetricsOf(mgr.GetConfig())
	if err != nil {
		return err
	}
	away, err := clusterfacts.NewDowntimeMeter(mgr.GetConfig(), o.Now)
	if err != nil {
		return err
	}
	if err := mgr.Add(away); err != nil {
		return err
	}
	u := &clusterupdates.Reconciler{Client: mgr.GetClient(), Live: live, Headers: hs, Now: o.Now,
		Evictor: &nodedrain.Evictor{Client: mgr.GetClient(), Live: live},
		Gate:    &gatefacts.Gatherer{Live: live, APIMetrics: apiMetrics, APIAt: clusterfacts.MetricsAt(mgr.GetConfig())},
		Events:  mgr.GetEventRecorder("refit-controller"), Servers: o.servers(), Downtime: away}
	if err := u.Setup(mgr, index, times); err != nil {
		return err
	}
	if err := registerAreas(mgr, live, hs, id, o); err != nil {
		return err
	}
	n := &interlocks.Reconciler{Client: mgr.GetClient(), Live: live, WithoutMachines: o.Without.Has(areas.ClusterAPI), Now: o.Now}
	if err := n.Setup(mgr, index, times); err != nil {
		return err
	}
	return index.Watch(ctx, mgr.GetCache()) // all readers exist now
}

// registerAreas adds what moves no node: cluster resources, and the areas that are not left out.
func registerAreas(mgr ctrl.Manager, live client.Reader, hs *bundlefiles.Headers, id *peerapi.Identity, o Options) error {
	objects, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	if o.Registries == nil {
		o.Registries = outbound.New(outbound.RegistryFlag, o.LocalRegistries...).Transport()
	}
	poller := registry.NewPoller(o.Registries, o.Now)
	files := &bundlefiles.Reader{Client: mgr.GetClient(), Headers: hs, Identity: id}
	rs := &clusterresources.Reconciler{Client: mgr.GetClient(), Objects: objects, Payload: clusterresources.PayloadFrom(files)}
	if err := rs.Setup(mgr); err != nil {
		return err
	}
	setups := map[string]func() error{
		areas.BootImages: func() error { return registerBootImages(mgr, objects, files, poller, o) },
		areas.OSImages: func() error {
			oi := &osimages.Reconciler{Client: mgr.GetClient(), Live: live, Poller: poller, Over: o.Registries, Now: o.Now,
				Bases: &osbuild.Finder{Client: mgr.GetClient(), Bundles: files}, Tell: osbuild.NewEventRecorder(mgr.GetEventRecorder("refit-os-images"), o.Registry)}
			return oi.Setup(mgr)
		},
		areas.ImageTags: func() error {
			tr := &imagetracks.Reconciler{Client: mgr.GetClient(), Live: live, Headers: hs, Poller: poller, Now: o.Now}
			return tr.Setup(mgr)
		},
	}
	for _, a := range areas.All { // Cluster API's hooks are a server: serve
		if setup := setups[a.Name]; setup != nil && !o.Without.Has(a.Name) {
			if err := setup(); err != nil {
				return fmt.Errorf("start %s: %w", a.Name, err)
			}
		}
	}
	return nil
}

// registerBootImages adds what keeps boot images fresh; objects reads machine kinds
// past the cache, files those of bundles.
func registerBootImages(mgr ctrl.Manager, objects client.Client, files *bundlefiles.Reader, poller *registry.Poller, o Options) error {
	b := &bootimages.Reconciler{Client: mgr.GetClient(), Objects: objects, Now: o.Now, Metrics: bootimages.NewMetrics(o.Registry), Events: mgr.GetEventRecorder("refit-boot-images"),
		Streams: &bootstreams.Loader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: o.Now, BundleFile: files.File, Registry: poller, Servers: o.servers()}}
	return b.Setup(mgr)
}

// leaderOnly fetches headers while this process leads.
type leaderOnly struct{ *bundlefiles.Headers }

func (leaderOnly) NeedLeaderElection() bool { return true }

// everyReplica runs once in each process, leader or not.
type everyReplica func(context.Context) error

func (everyReplica) NeedLeaderElection() bool { return false }

func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

func manager(cfg *rest.Config, scheme *runtime.Scheme, direct client.Client, id *peerapi.Identity, o Options) (ctrl.Manager, error) {
	again := true
	informers, err := nodeUpdates.Informers(cfg, o.Log)
	if err != nil {
		return nil, err
	}
	here := cache.ByObject{Namespaces: map[string]cache.Config{v1alpha1.NodesNamespace: {}}}
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	opts := ctrl.Options{
		Scheme: scheme, Logger: o.Log, NewClient: clientWithout(o.Without),
		Cache: cache.Options{
			NewInformer:      informers,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.NodeUpdate{}: {Namespaces: here.Namespaces, Transform: slimUpdate},
				&v1alpha1.Content{}:    here,
				&corev1.Node{}:         {Transform: slimNode},
			},
		},
		Metrics:                       metricsServer(direct, id, o),
		HealthProbeBindAddress:        orNone(""), // probes answer before there is a manager
		PprofBindAddress:              orNone(o.ProfileAddress),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		// Tests run several in one process; a look that hangs on a dead connection ends.
		Controller: config.Controller{SkipNameValidation: &again, ReconciliationTimeout: reconcileTimeout, Logger: o.Log},
	}
	if o.Identity != "" {
		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, v1alpha1.SystemNamespace, "refit-controller",
			resourcelock.ResourceLockConfig{Identity: o.Identity}, cfg, renewDeadline)
		if err != nil {
			return nil, fmt.Errorf("leader election: %w", err)
		}
		opts.LeaderElection, opts.LeaderElectionResourceLockInterface = true, lock
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("set up the controller: %w", err)
	}
	return mgr, nil
}

func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}
