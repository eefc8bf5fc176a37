package render

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

func TestStatusTableSaysWhoWaitsForWhatAndTheCure(t *testing.T) {
	t.Parallel()
	v := explain.View{
		Headline: "Updating to 1.36.3: 1 of 3 nodes done, now n2", NodesDone: 1, NodesTotal: 3, Elapsed: 245,
		Waiting:   []explain.Blocker{{Reason: "DisruptionBudget", Message: "pod shop/app-1: budget shop/app allows 0", Fix: "add a replica", Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}},
		MoreWaits: 2,
		Warnings:  []explain.Blocker{{Reason: "DisruptionBudget", Message: "budget shop/db never allows an eviction"}},
		Nodes:     []explain.Node{{Name: "n1", Role: "control-plane", Ready: true, Kubelet: "v1.36.3", Phase: "Held", ImagesPinned: 9, ImagesTotal: 9}},
	}
	var b strings.Builder
	if err := Status(&b, Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 3 nodes done", "1/3 nodes, 4m05s", "DisruptionBudget: pod shop/app-1", "cure: add a replica", "since 12:00:00Z", "and 2 more", "Warnings", "shop/db never allows", "n1", "9/9"} {
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
	v := PlanView{Update: "u", State: "ready", Digest: p.Digest(), Plan: &p, Estimates: []Estimate{{Node: "n1", BytesToFetch: 2048, DiskNeeded: map[string]int64{"images": 1 << 20}, DiskFree: map[string]int64{"images": 5 << 30}}}}
	var b strings.Builder
	if err := Plan(&b, Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{p.Digest(), "drain>kubeadm", "2.0 KiB", "1.0 MiB/5.0 GiB", "Point of no return on n1: step kubeadm. etcd is not moved back", "State: ready"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, b.String())
		}
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
