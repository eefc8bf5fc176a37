package render

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

func TestStatusTableHasTheWaitAndTheFix(t *testing.T) {
	t.Parallel()
	v := explain.View{
		Headline: "Updating to 1.36.3: 1 of 3 nodes done, now n2", NodesDone: 1, NodesTotal: 3, Elapsed: 245, Left: "about 8m to 12m left", Away: 115, Longest: 72,
		Waiting:   []explain.Blocker{{Reason: "DisruptionBudget", Message: "pod shop/app-1: budget shop/app allows 0", Fix: "add a replica", Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}},
		MoreWaits: 2,
		Warnings:  []explain.Blocker{{Reason: "DisruptionBudget", Message: "budget shop/db never allows an eviction"}, {Reason: "StepFailed", Message: "node n4 failed:\nerror: x\nerror: y"}},
		Nodes: []explain.Node{{Name: "n1", Role: "control-plane", Ready: true, Kubelet: "v1.36.3", Phase: "Ready", ImagesPinned: 9, ImagesTotal: 9},
			{Name: "n3", Ready: true, OnHold: true, OnHoldReason: "a tape robot"}},
	}
	var b strings.Builder
	if err := Status(&b, Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 3 nodes done", "1/3 nodes, 4m05s, about 8m to 12m left", "unavailable for 1m55s during the update, at most 1m12s in a row", "yes,on hold", "DisruptionBudget: pod shop/app-1", "fix: add a replica", "since 12:00:00Z", "and 2 more", "Warnings", "shop/db never allows", "StepFailed: node n4 failed:\n    | error: x\n    | error: y\n", "n1", "9/9"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, b.String())
		}
	}
}

func TestPlanTextShowsStepsDisruptionBytesAndThePointOfNoReturn(t *testing.T) {
	t.Parallel()
	p := model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: "sha256:" + strings.Repeat("a", 64), Name: "demo", Version: "1.36.3", Kubernetes: "v1.36.3"},
		Nodes: []model.NodePlan{{Node: "n1", Pool: "default", Role: model.RoleControlPlane, From: "v1.35.4", To: "v1.36.3", PointOfNoReturn: "kubeadm",
			Steps: []model.Step{{ID: "drain", Disruption: model.DisruptionDrain}, {ID: "kubeadm", Disruption: model.DisruptionRestart, NotReversible: "etcd is not moved back"}}}}}
	v := PlanView{Update: "u", State: "ready", Rollout: []string{"pool edge: 2 workers"}, Digest: p.Digest(), Plan: &p, Estimates: []Estimate{{Node: "n1", BytesToFetch: 2048, DiskNeeded: map[string]int64{"images": 1 << 20}, DiskFree: map[string]int64{"images": 5 << 30}}}}
	var b strings.Builder
	if err := Plan(&b, Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{p.Digest(), "drain>kubeadm", "2.0 KiB", "1.0 MiB/5.0 GiB", "Point of no return on n1: step kubeadm. etcd is not moved back", "State: ready", "How it is rolled out:\n  pool edge: 2 workers"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, b.String())
		}
	}
}

// A plan has every field with owner, disruption and undo; equal nodes once.
func TestPlanTextShowsEveryFieldWithItsOwner(t *testing.T) {
	t.Parallel()
	kubelet := model.Step{ID: "kubelet", Updater: "kubelet", By: model.ByAgent, Disruption: model.DisruptionDrain, Changes: []model.Change{{Path: "kubernetes/kubelet", From: "v1.35.4", To: "v1.36.3"}}}
	files := model.Step{ID: "files", Updater: "files", By: model.ByAgent, Disruption: model.DisruptionReload, Changes: []model.Change{
		{Path: "file//etc/a", To: "sha256:" + strings.Repeat("c", 64) + " 0644"}, {Path: "unit/x.service", From: "disabled", To: "enabled"}}}
	kubeadm := model.Step{ID: "kubeadm", Updater: "kubeadm", By: model.ByAgent, Disruption: model.DisruptionRestart, NotReversible: "etcd", Changes: []model.Change{{Path: "kubernetes/control-plane", From: "v1.35.4", To: "v1.36.3"}}}
	p := model.Plan{Version: model.PlanVersion, Nodes: []model.NodePlan{
		{Node: "n1", Role: model.RoleControlPlane, Steps: []model.Step{kubeadm, kubelet}, PointOfNoReturn: "kubeadm", Notes: []string{"the API server is unavailable"}}}}
	for i := 2; i < 12; i++ {
		p.Nodes = append(p.Nodes, model.NodePlan{Node: "n" + strconv.Itoa(i), Role: model.RoleWorker, Steps: []model.Step{kubelet, files}})
	}
	v := PlanView{Plan: &p, APIAway: &APIAway{Update: "to-old", TotalSeconds: 112, LongestSeconds: 42}}
	for format, want := range map[string]string{Table: `
n1 (control-plane):
  STEP     OWNER    FIELD                     FROM     TO       DISRUPTION  UNDO
  kubeadm  kubeadm  kubernetes/control-plane  v1.35.4  v1.36.3  restart     no
  kubelet  kubelet  kubernetes/kubelet        v1.35.4  v1.36.3  drain       yes
  note: the API server is unavailable

n2, n3, n4, n5, n6, n7 and 4 more (worker):
  STEP     OWNER    FIELD               FROM      TO                        DISRUPTION  UNDO
  kubelet  kubelet  kubernetes/kubelet  v1.35.4   v1.36.3                   drain       yes
  files    files    file//etc/a         (absent)  sha256:cccccccccccc 0644  reload      yes
           files    unit/x.service      disabled  enabled                   reload      yes
`, Wide: "n8, n9, n10, n11 (worker)"} {
		var b strings.Builder
		if err := Plan(&b, format, v); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{want, "The API server was unavailable for 112s, 42s at a stretch, during ClusterUpdate to-old.", "Point of no return on n1: step kubeadm."} {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s does not say\n%s\nbut\n%s", format, part, b.String())
			}
		}
	}
}

func TestAPlanWithoutNodes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Plan(&b, Table, PlanView{Plan: &model.Plan{}, State: "nothing-to-do"}); err != nil || !strings.Contains(b.String(), "No node changes.") || strings.Contains(b.String(), "WAVE") {
		t.Fatalf("%v\n%s", err, b.String())
	}
}

func TestJSONIsAnObjectWithKind(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Status(&b, JSON, explain.Make(explain.Facts{})); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(b.String()), &m); err != nil {
		t.Fatal(err)
	}
	if m["apiVersion"] != "refit.dev/status/v1" || m["kind"] != "Status" {
		t.Errorf("not a Status: %v", m)
	}
}
