package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
)

// siteMetrics are the metrics of updates, bundles, pools and nodes. A scrape counts them from
// the cache: an agent that stops reporting wakes no reconciler. Only the leader has them. Their
// labels are bounded: an agent cannot add values.
type siteMetrics struct {
	source siteSource
	log    logr.Logger

	mu sync.Mutex
	// heartbeats records when each agent's heartbeat last changed.
	heartbeats nodeindex.Heartbeats

	info, progress, failed, blocked, waiting, eta, downtime, checks, accepted *prometheus.GaugeVec
	nodes, agents, outdated, problems, lowDisk, incomplete, unpinned, hosts   *prometheus.GaugeVec
	wanted, ready, pinned, bytesWanted, bytesCopied                           *prometheus.GaugeVec
	bundles, poolNodes, poolUpdated, poolUpdating, poolUnavailable            *prometheus.GaugeVec
}

// siteSource returns the facts of a scrape, nil if this process has none to report.
type siteSource func(ctx context.Context) (*siteFacts, error)

// siteFacts are the input of the metrics.
type siteFacts struct {
	now     time.Time
	release string
	view    *nodeindex.View
	updates []v1alpha1.ClusterUpdate
	pools   []v1alpha1.UpdatePool
	bundles []v1alpha1.Bundle
}

// scrapeTimeout bounds the reads from the cache.
const scrapeTimeout = 5 * time.Second

func newSiteMetrics(source siteSource, log logr.Logger) *siteMetrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	m := &siteMetrics{source: source, log: log}
	m.info = gauge("update_info", "1 for every ClusterUpdate, with its target and phase.", "update", "version", "phase")
	m.progress = gauge("update_progress_ratio", "Share of the plan's nodes that were observed at the target.", "update")
	m.failed = gauge("update_nodes_failed", "Nodes of the plan on which the update failed.", "update")
	m.blocked = gauge("update_blocked", "Reasons that block an update.", "update", "reason")
	m.waiting = gauge("update_wait_start_timestamp_seconds", "Since when an update has waited for a reason, in Unix time.", "update", "reason")
	m.eta = gauge("update_eta_seconds", "Latest expected time until the update is done; absent while unknown.", "update")
	m.downtime = gauge("update_api_away_seconds", "Time without an answer from the API server while nodes moved.", "update")
	m.checks = gauge("gate_checks", "1 for every check of the gate of an update that is not done, with its result.", "update", "check", "result")
	m.accepted = gauge("gate_accepted_risk_expiry_timestamp_seconds", "Until when a failing check of the gate is accepted for an update that is not done, in Unix time.", "update", "check")

	m.nodes = gauge("nodes", "Nodes by the phase that their agent reports.", "phase")
	m.agents = gauge("agents", "Nodes by the state of their agent: Reporting, Silent (its heartbeat is overdue) or Missing (it never reported).", "state")
	m.outdated = gauge("agents_outdated", "Nodes whose agent has another version than the controller.")
	m.problems = gauge("nodes_with_problems", "Nodes whose agent reports a problem that is not repaired, by reason.", "reason")
	m.hosts = gauge("os_hosts", "Nodes with a desired OS by the tool that updates it: bootc, rpm-ostree, ostree, sysext or package (refit does not update that OS).", "driver")
	m.lowDisk = gauge("nodes_low_disk", "Nodes on which a file system has less free space than the wanted images and node binaries need.")
	m.incomplete = gauge("nodes_images_missing", "Nodes that do not have all wanted images in their container runtime.")
	m.unpinned = gauge("nodes_images_unpinned", "Nodes that have copied everything and have not pinned all wanted images.")
	m.wanted = gauge("images_wanted", "Images that nodes must pin, summed over the nodes.")
	m.ready = gauge("images_ready", "Wanted images that are in the container runtimes of nodes, summed over the nodes.")
	m.pinned = gauge("images_pinned", "Wanted images that the container runtimes of nodes report as pinned, summed over the nodes.")
	m.bytesWanted = gauge("copy_wanted_bytes", "Bytes of bundles that nodes want, summed over the nodes.")
	m.bytesCopied = gauge("copy_copied_bytes", "Bytes of bundles that nodes want and have, summed over the nodes.")

	m.bundles = gauge("bundles", "Bundles by state: Found (not approved), Approved, or why nodes hold an approved one.", "state")
	m.poolNodes = gauge("pool_nodes", "Nodes of an UpdatePool.", "pool")
	m.poolUpdated = gauge("pool_nodes_updated", "Nodes of an UpdatePool that have reached the target of the active update.", "pool")
	m.poolUpdating = gauge("pool_nodes_updating", "Nodes of an UpdatePool that have started their update and are not done.", "pool")
	m.poolUnavailable = gauge("pool_nodes_unavailable", "Nodes of an UpdatePool that are cordoned or not Ready.", "pool")
	return m
}

func (m *siteMetrics) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{
		m.info, m.progress, m.failed, m.blocked, m.waiting, m.eta, m.downtime, m.checks, m.accepted,
		m.nodes, m.agents, m.outdated, m.problems, m.hosts, m.lowDisk, m.incomplete, m.unpinned,
		m.wanted, m.ready, m.pinned, m.bytesWanted, m.bytesCopied,
		m.bundles, m.poolNodes, m.poolUpdated, m.poolUpdating, m.poolUnavailable,
	}
}

// Describe sends the descriptions of all metrics.
func (m *siteMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, g := range m.all() {
		g.Describe(to)
	}
}

// Collect counts and sends the metrics.
func (m *siteMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	facts, err := m.source(ctx)
	if err != nil {
		m.log.Error(err, "failed to count for a scrape")
		return
	}
	if facts == nil {
		return
	}
	for _, g := range m.all() {
		g.Reset()
	}
	m.observeNodes(facts)
	for i := range facts.updates {
		m.observeUpdate(&facts.updates[i], facts.now)
	}
	for i := range facts.bundles {
		m.bundles.WithLabelValues(bundleState(&facts.bundles[i])).Inc()
	}
	for i := range facts.pools {
		p := &facts.pools[i]
		m.poolNodes.WithLabelValues(p.Name).Set(float64(p.Status.Nodes))
		m.poolUpdated.WithLabelValues(p.Name).Set(float64(p.Status.Updated))
		m.poolUpdating.WithLabelValues(p.Name).Set(float64(p.Status.Updating))
		m.poolUnavailable.WithLabelValues(p.Name).Set(float64(p.Status.Unavailable))
	}
	for _, g := range m.all() {
		g.Collect(to)
	}
}

func (m *siteMetrics) observeNodes(f *siteFacts) {
	c := countNodes(f, m.heartbeats.Silent)
	for vec, counts := range map[*prometheus.GaugeVec]map[string]int{m.nodes: c.phases, m.agents: c.agents, m.problems: c.problems, m.hosts: c.hosts} {
		for label, n := range counts {
			vec.WithLabelValues(label).Set(float64(n))
		}
	}
	for vec, value := range map[*prometheus.GaugeVec]float64{
		m.outdated: float64(c.outdated), m.lowDisk: float64(c.lowDisk), m.incomplete: float64(c.incomplete), m.unpinned: float64(c.unpinned),
		m.wanted: c.wanted, m.ready: c.ready, m.pinned: c.pinned, m.bytesWanted: c.bytesWanted, m.bytesCopied: c.bytesCopied,
	} {
		vec.WithLabelValues().Set(value)
	}
}

func (m *siteMetrics) observeUpdate(u *v1alpha1.ClusterUpdate, now time.Time) {
	m.info.WithLabelValues(u.Name, u.Status.Version, u.Status.Phase).Set(1)
	m.progress.WithLabelValues(u.Name).Set(updateProgress(u))
	m.failed.WithLabelValues(u.Name).Set(float64(u.Status.NodesFailed))
	if e := u.Status.Estimate; e != nil {
		m.eta.WithLabelValues(u.Name).Set(max(0, e.Latest.Sub(now).Seconds()))
	}
	if a := u.Status.APIUnavailable; a != nil {
		m.downtime.WithLabelValues(u.Name).Set(float64(a.Seconds))
	}
	for _, b := range u.Status.Blockers {
		m.blocked.WithLabelValues(u.Name, b.Reason).Inc()
	}
	if u.Status.Phase == v1alpha1.PhaseDone {
		return
	}
	for reason, since := range waitStarts(u) {
		m.waiting.WithLabelValues(u.Name, reason).Set(float64(since.Unix()))
	}
	for _, c := range u.Status.Checks {
		m.checks.WithLabelValues(u.Name, c.Name, string(c.Result)).Set(1)
	}
	for _, r := range u.Spec.AcceptedRisks {
		m.accepted.WithLabelValues(u.Name, r.Check).Set(float64(r.Until.Unix()))
	}
}

// registerSiteMetrics registers the metrics of updates, bundles, pools and nodes.
func registerSiteMetrics(mgr ctrl.Manager, index *nodeindex.Index, o Options) error {
	// A scrape reads the index; no change wakes it.
	nodes := index.Reader(nodeindex.Changes{Node: func(_, _ *corev1.Node) bool { return false }, Update: func(_, _ *v1alpha1.NodeUpdate) bool { return false }})
	source := func(ctx context.Context) (*siteFacts, error) {
		select {
		case <-mgr.Elected():
		default:
			return nil, nil
		}
		if !nodes.Synced() {
			return nil, nil
		}
		var updates v1alpha1.ClusterUpdateList
		var pools v1alpha1.UpdatePoolList
		var bundles v1alpha1.BundleList
		for _, l := range []client.ObjectList{&updates, &pools, &bundles} {
			if err := mgr.GetClient().List(ctx, l); err != nil {
				return nil, err
			}
		}
		return &siteFacts{now: o.Now(), release: componentversion.Refit(), view: nodes.Refresh(), updates: updates.Items, pools: pools.Items, bundles: bundles.Items}, nil
	}
	if err := o.Registry.Register(newSiteMetrics(source, mgr.GetLogger().WithName("metrics"))); err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	return nil
}
