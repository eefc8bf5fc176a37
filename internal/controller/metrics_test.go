package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/model"
)

var scrapedAt = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// report is the NodeUpdate of a node whose agent reported a minute ago.
func report(name string, change func(*v1alpha1.NodeUpdateStatus)) *v1alpha1.NodeUpdate {
	heard := metav1.NewTime(scrapedAt.Add(-time.Minute))
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nu.Status = v1alpha1.NodeUpdateStatus{Phase: "Ready", Agent: &v1alpha1.AgentInfo{Version: "1.0.0", Heartbeat: &heard}}
	if change != nil {
		change(&nu.Status)
	}
	return nu
}

// host is the report of a node whose OS a tool updates.
func host(driver string) *v1alpha1.NodeUpdate {
	return report("n", func(st *v1alpha1.NodeUpdateStatus) {
		st.Observed = &v1alpha1.Observed{Fields: map[string]string{model.FieldOSDriver: driver}}
	})
}

// scraped returns the samples of facts as lines "NAME LABEL=VALUE... VALUE", without zeros.
func scraped(t *testing.T, f *siteFacts) []string {
	t.Helper()
	f.now, f.release = scrapedAt, "1.0.0"
	if f.view == nil {
		f.view = &nodeindex.View{}
	}
	return gathered(t, func(context.Context) (*siteFacts, error) { return f, nil })
}

func gathered(t *testing.T, source siteSource) []string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newSiteMetrics(source, logr.Discard()))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			line := family.GetName()
			for _, l := range sample.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			if v := sample.GetGauge().GetValue(); v != 0 {
				out = append(out, fmt.Sprintf("%s %v", line, v))
			}
		}
	}
	return out
}

func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	late := metav1.NewTime(scrapedAt.Add(-time.Hour))
	for name, tc := range map[string]struct {
		reports []*v1alpha1.NodeUpdate
		want    []string
	}{
		"no node": {nil, nil},
		"a node without an agent, and one whose agent never reported": {[]*v1alpha1.NodeUpdate{nil, {}}, []string{"refit_agents state=Missing 2", "refit_nodes phase=NoAgent 2"}},
		"a silent agent of another version": {[]*v1alpha1.NodeUpdate{report("n1", nil), report("n2", func(st *v1alpha1.NodeUpdateStatus) { st.Agent.Heartbeat, st.Agent.Version = &late, "0.9.0" })},
			[]string{"refit_agents state=Reporting 1", "refit_agents state=Silent 1", "refit_agents_outdated 1", "refit_nodes phase=Ready 2"}},
		"hosts by what updates their OS; an agent adds no label": {[]*v1alpha1.NodeUpdate{host("rpm-ostree"), host("bootc"), host("rpm-ostree"), host("mine"), host("")},
			[]string{"refit_agents state=Reporting 5", "refit_nodes phase=Ready 5", "refit_os_hosts driver=Unknown 1", "refit_os_hosts driver=bootc 1", "refit_os_hosts driver=rpm-ostree 2"}},
		"images that are copied and not pinned": {[]*v1alpha1.NodeUpdate{report("n1", func(st *v1alpha1.NodeUpdateStatus) {
			st.Pins = &v1alpha1.PinStatus{ImagesTotal: 9, ImagesReady: 9, ImagesPinned: 7, BytesTotal: 100, BytesDone: 100}
		})}, []string{"refit_agents state=Reporting 1", "refit_copy_copied_bytes 100", "refit_copy_wanted_bytes 100", "refit_images_pinned 7", "refit_images_ready 9", "refit_images_wanted 9",
			"refit_nodes phase=Ready 1", "refit_nodes_images_unpinned 1"}},
		"images that are being copied": {[]*v1alpha1.NodeUpdate{report("n1", func(st *v1alpha1.NodeUpdateStatus) {
			st.Phase, st.Pins = "Copying", &v1alpha1.PinStatus{ImagesTotal: 9, ImagesReady: 2, ImagesPinned: 2, BytesTotal: 100, BytesDone: 40}
		})}, []string{"refit_agents state=Reporting 1", "refit_copy_copied_bytes 40", "refit_copy_wanted_bytes 100", "refit_images_pinned 2", "refit_images_ready 2", "refit_images_wanted 9",
			"refit_nodes phase=Copying 1", "refit_nodes_images_missing 1"}},
		"two names of one file system share its room": {[]*v1alpha1.NodeUpdate{
			report("n1", func(st *v1alpha1.NodeUpdateStatus) {
				st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 100}, {Name: "images", ID: "1", FreeBytes: 100}}
				st.Pins = &v1alpha1.PinStatus{NeededBytes: map[string]int64{"state": 60, "images": 60}}
			}),
			report("n2", func(st *v1alpha1.NodeUpdateStatus) {
				st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 100}, {Name: "images", ID: "2", FreeBytes: 100}}
				st.Pins = &v1alpha1.PinStatus{NeededBytes: map[string]int64{"state": 100, "images": 60}}
			})}, []string{"refit_agents state=Reporting 2", "refit_nodes phase=Ready 2", "refit_nodes_low_disk 1"}},
		"problems count once for each node and reason, and not when repaired": {[]*v1alpha1.NodeUpdate{report("n1", func(st *v1alpha1.NodeUpdateStatus) {
			st.Problems = []v1alpha1.NodeProblem{{Reason: v1alpha1.ReasonStateNotWritable, Object: "a"}, {Reason: v1alpha1.ReasonStateNotWritable, Object: "b"}, {Reason: v1alpha1.ReasonStateFileDamaged, Repaired: true}}
		})}, []string{"refit_agents state=Reporting 1", "refit_nodes phase=Ready 1", "refit_nodes_with_problems reason=StateNotWritable 1"}},
		"an agent adds no label and no impossible number": {[]*v1alpha1.NodeUpdate{report("n1", func(st *v1alpha1.NodeUpdateStatus) {
			st.Phase = "evil-1"
			st.Problems = []v1alpha1.NodeProblem{{Reason: "evil-2"}, {Reason: "evil-3"}}
			st.Pins = &v1alpha1.PinStatus{ImagesTotal: 2, ImagesReady: math.MaxInt32, ImagesPinned: -5, BytesTotal: 7, BytesDone: math.MaxInt64, NeededBytes: map[string]int64{"state": math.MaxInt64, "images": math.MaxInt64}}
			st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: math.MaxInt64}, {Name: "images", ID: "1", FreeBytes: math.MaxInt64}}
		})}, []string{"refit_agents state=Reporting 1", "refit_copy_copied_bytes 7", "refit_copy_wanted_bytes 7", "refit_images_ready 2", "refit_images_wanted 2", "refit_nodes phase=Unknown 1",
			"refit_nodes_images_unpinned 1", "refit_nodes_low_disk 1", "refit_nodes_with_problems reason=Unknown 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, scraped(t, &siteFacts{view: &nodeindex.View{Reports: tc.reports}})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUpdateMetrics(t *testing.T) {
	t.Parallel()
	at := func(minutes int) *metav1.Time {
		out := metav1.NewTime(time.Unix(int64(60*minutes), 0))
		return &out
	}
	u := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-136"}}
	u.Spec.AcceptedRisks = []v1alpha1.AcceptedRisk{{Check: "clock", Until: *at(100)}}
	u.Status = v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseUpdating, Version: "1.36.3", NodesDone: 1, NodesTotal: 4, NodesFailed: 1,
		Blockers: []v1alpha1.Blocker{{Reason: "Draining", Since: at(9)}, {Reason: "Draining", Since: at(7)}, {Reason: "Draining"}, {Reason: "Soaking"}},
		Checks:   []v1alpha1.GateCheck{{Name: "clock", Result: v1alpha1.CheckAccepted}, {Name: "space", Result: v1alpha1.CheckPassed}},
		Estimate: &v1alpha1.Estimate{Latest: metav1.NewTime(scrapedAt.Add(time.Minute))}, APIUnavailable: &v1alpha1.Unavailability{Seconds: 4}}
	updating := u
	u.Status.Phase = v1alpha1.PhaseDone
	for name, tc := range map[string]struct {
		update v1alpha1.ClusterUpdate
		want   []string
	}{
		"an update that moves nodes": {updating, []string{
			"refit_gate_accepted_risk_expiry_timestamp_seconds check=clock update=to-136 6000",
			"refit_gate_checks check=clock result=Accepted update=to-136 1", "refit_gate_checks check=space result=Passed update=to-136 1",
			"refit_update_api_away_seconds update=to-136 4", "refit_update_blocked reason=Draining update=to-136 3", "refit_update_blocked reason=Soaking update=to-136 1",
			"refit_update_eta_seconds update=to-136 60", "refit_update_info phase=Updating update=to-136 version=1.36.3 1", "refit_update_nodes_failed update=to-136 1",
			"refit_update_progress_ratio update=to-136 0.25", "refit_update_wait_start_timestamp_seconds reason=Draining update=to-136 420"}},
		"a done one waits for nothing": {u, []string{
			"refit_update_api_away_seconds update=to-136 4", "refit_update_blocked reason=Draining update=to-136 3", "refit_update_blocked reason=Soaking update=to-136 1",
			"refit_update_eta_seconds update=to-136 60", "refit_update_info phase=Done update=to-136 version=1.36.3 1", "refit_update_nodes_failed update=to-136 1",
			"refit_update_progress_ratio update=to-136 1"}},
		"a new one": {v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, []string{"refit_update_info phase= update=new version= 1"}},
	} {
		if diff := cmp.Diff(tc.want, scraped(t, &siteFacts{updates: []v1alpha1.ClusterUpdate{tc.update}})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestBundleAndPoolMetrics(t *testing.T) {
	t.Parallel()
	bundle := func(digest, approved string, use v1alpha1.BundleUse) (b v1alpha1.Bundle) {
		b.Spec.Digest = digest
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionStatus(approved)}}
		if use != "" {
			b.Status.Retention = &v1alpha1.BundleRetention{Use: use}
		}
		return b
	}
	have := scraped(t, &siteFacts{
		bundles: []v1alpha1.Bundle{bundle("", "False", ""), bundle("sha256:a", "False", ""), bundle("", "True", ""), bundle("sha256:b", "True", v1alpha1.BundleRuns)},
		pools:   []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.UpdatePoolStatus{Nodes: 9, Updated: 4, Updating: 2, Unavailable: 3}}},
	})
	want := []string{"refit_bundles state=Approved 2", "refit_bundles state=Found 1", "refit_bundles state=Runs 1",
		"refit_pool_nodes pool=edge 9", "refit_pool_nodes_unavailable pool=edge 3", "refit_pool_nodes_updated pool=edge 4", "refit_pool_nodes_updating pool=edge 2"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// A standby, and a leader that cannot read, report nothing instead of zeros.
func TestNoMetricsWithoutFacts(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]siteSource{
		"a standby":      func(context.Context) (*siteFacts, error) { return nil, nil },
		"an empty cache": func(context.Context) (*siteFacts, error) { return nil, errors.New("the cache is not started") },
	} {
		if have := gathered(t, source); len(have) > 0 {
			t.Errorf("%s: %v", name, have)
		}
	}
}

// What is gone from the cluster is gone from the metrics.
func TestMetricsForget(t *testing.T) {
	t.Parallel()
	facts := &siteFacts{now: scrapedAt, view: &nodeindex.View{}, updates: []v1alpha1.ClusterUpdate{{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}}}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newSiteMetrics(func(context.Context) (*siteFacts, error) { return facts, nil }, logr.Discard()))
	for _, want := range []int{1, 0} {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, f := range families {
			if f.GetName() == "refit_update_info" {
				found = len(f.GetMetric())
			}
		}
		if found != want {
			t.Errorf("%d updates, want %d", found, want)
		}
		facts.updates = nil
	}
}

// A scrape of 30,000 nodes is short: it may not hold up the reconcilers, which share the processor.
func TestScrapeOfManyNodes(t *testing.T) {
	var reports []*v1alpha1.NodeUpdate
	for i := range 30000 {
		reports = append(reports, report(fmt.Sprintf("n%05d", i), func(st *v1alpha1.NodeUpdateStatus) {
			st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 100}, {Name: "images", ID: "1", FreeBytes: 100}}
			st.Pins = &v1alpha1.PinStatus{ImagesTotal: 9, NeededBytes: map[string]int64{"state": 60, "images": 60}}
		}))
	}
	var heartbeats nodeindex.Heartbeats
	f := &siteFacts{now: scrapedAt, release: "1.0.0", view: &nodeindex.View{Reports: reports}}
	countNodes(f, heartbeats.Silent)
	start := time.Now()
	c := countNodes(f, heartbeats.Silent)
	if took := time.Since(start); took > time.Second || c.lowDisk != 30000 {
		t.Errorf("%d nodes without room, counted in %s", c.lowDisk, took)
	} else {
		t.Log(took)
	}
}

func TestMetricsServerOptions(t *testing.T) {
	t.Parallel()
	complete := t.TempDir()
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(complete, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		address, certificate string
		secure               bool
		refused              string
	}{
		"none":                         {address: "0"},
		"nothing is set":               {},
		"loopback":                     {address: "127.0.0.1:18742"},
		"loopback by name":             {address: "localhost:18742"},
		"all addresses":                {address: ":18742", secure: true},
		"an address":                   {address: "192.0.2.1:18742", secure: true},
		"a certificate":                {address: ":18742", certificate: complete, secure: true},
		"a certificate for loopback":   {address: "127.0.0.1:18742", certificate: complete, refused: "not loopback"},
		"a certificate that is absent": {address: ":18742", certificate: t.TempDir(), refused: "put tls.crt and tls.key"},
	} {
		o := Options{MetricsAddress: tc.address, MetricsCertificate: tc.certificate}
		if err := validateMetrics(o); (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: %v, want %q", name, err, tc.refused)
		}
		if tc.refused != "" {
			continue
		}
		s := metricsServer(nil, nil, o)
		if s.SecureServing != tc.secure || (s.FilterProvider != nil) != tc.secure {
			t.Errorf("%s: HTTPS %v, checks tokens %v", name, s.SecureServing, s.FilterProvider != nil)
		}
		if tc.secure && tc.certificate == "" && s.CertDir != noCertificate {
			t.Errorf("%s: a certificate from %s", name, s.CertDir)
		}
	}
}

// Every phase of the label is a phase that the API documents.
func TestPhasesOfTheLabel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../api/v1alpha1/nodeupdate_status.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "// Phase for people: ")
	list, _, _ = strings.Cut(list, ".\n")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(nodePhases)), slices.Sorted(slices.Values(strings.Split(list, ", ")))); diff != "" {
		t.Error(diff)
	}
}
