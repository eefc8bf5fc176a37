package simulate

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWritesAreSortedByWhoMakesThem(t *testing.T) {
	t.Parallel()
	page := `# HELP apiserver_request_total x
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="nodes",scope="resource",subresource="",verb="PATCH",version="v1"} 60
apiserver_request_total{code="409",group="",resource="nodes",subresource="",verb="PATCH"} 5
apiserver_request_total{code="200",group="",resource="nodes",subresource="status",verb="PATCH"} 40
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST"} 7
apiserver_request_total{code="200",group="refit.dev",resource="nodeupdates",subresource="status",verb="APPLY"} 1.5e+02
apiserver_request_total{code="200",group="refit.dev",resource="nodeupdates",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 11
`
	got := writesOf(page).Minus(Counts{"PATCH nodes": 10})
	if d := cmp.Diff(Counts{"PATCH nodes": 50, "PATCH nodes/status": 40, "POST events": 7, "APPLY nodeupdates/status": 150}, got); d != "" {
		t.Error(d)
	}
	ours, kubelet, events := got.Split()
	if ours != 200 || kubelet != 40 || events != 7 {
		t.Errorf("%v of refit, %v of kubelets, %v events", ours, kubelet, events)
	}
}

// Two processes of one controller count together.
func TestDecisionsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	l := NewLooks()
	page := `refit_decision_seconds_bucket{controller="updates",le="0.01"} 98
refit_decision_seconds_bucket{controller="updates",le="0.05"} %d
refit_decision_seconds_bucket{controller="updates",le="+Inf"} 100
refit_decision_seconds_sum{controller="updates"} 1
refit_decision_seconds_count{controller="updates"} 100
controller_runtime_reconcile_time_seconds_sum{controller="updates"} 20
controller_runtime_reconcile_time_seconds_count{controller="updates"} 100
`
	l.add(fmt.Sprintf(page, 100), 1)
	if got := l.Summary()["updates"]; got.P99 != 0.05 || got.Count != 100 || got.Look != 0.2 {
		t.Errorf("one process: %+v", got)
	}
	l.add(fmt.Sprintf(page, 97), 1)
	if got := l.Summary()["updates"]; got.P99 != 3600 || got.Count != 200 || got.Mean != 0.01 {
		t.Errorf("two processes, of which one was slow: %+v", got)
	}
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	if n := ProcessMemory(os.Getpid(), "VmHWM"); n < 1<<20 {
		t.Errorf("this program had %d bytes at most", n)
	}
	if ProcessMemory(os.Getpid(), "NoSuchField") != 0 || ProcessCPU(-1) != 0 {
		t.Error("what is not there is not zero")
	}
	if m := DescribeMachine(); m.Cores < 1 || m.Memory < 1<<20 || m.Load == "" {
		t.Errorf("%+v", m)
	}
}
