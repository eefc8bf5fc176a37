package clusterapi

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Property: events come in every order, writes and reads fail now and then, and another
// replica gives each answer. A machine is done only while its node is observed at
// the version. When everything works again it gets there, and nothing is left on it.
func TestAnyOrderEndsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newTestClusters(t)
		w.machine("m1", newVersion, true)
		kubelet, agent := oldVersion, oldVersion
		w.node("node-m1", kubelet, agent)
		w.bundle("approved", newVersion, digestA)
		fails := []string{"status InPlacePlan", "get InPlacePlan", "patch Machine", "get Machine", "get Secret", "get MachineDeployment"}
		ask := func() bool {
			w.s = w.server()
			a := w.update("m1", newVersion)
			if !done(a) {
				return false
			}
			if kubelet != newVersion || agent != newVersion || w.failSite != nil {
				rt.Fatalf("called done: kubelet %s, agent %s, cluster away %v", kubelet, agent, w.failSite)
			}
			if w.skips("m1") {
				rt.Fatalf("done, and the health checker is held back")
			}
			return true
		}
		finish := func() {
			kubelet, agent = newVersion, newVersion
			w.node("node-m1", kubelet, agent)
			w.phase(v1alpha1.PhaseDone)
		}
		for range rapid.IntRange(1, 15).Draw(rt, "events") {
			switch rapid.SampledFrom([]string{"ask", "ask", "ask", "sweep", "phase", "kubelet", "agent", "fail", "heal", "away", "later"}).Draw(rt, "event") {
			case "ask":
				ask()
			case "sweep":
				_ = w.server().Sweep(t.Context()) // it may fail, and does it again
			case "phase":
				w.phase(rapid.SampledFrom([]string{v1alpha1.PhasePreparing, v1alpha1.PhaseBlocked, v1alpha1.PhaseUpdating, v1alpha1.PhaseHalted, v1alpha1.PhaseDone}).Draw(rt, "phase"))
			case "kubelet":
				kubelet = rapid.SampledFrom([]string{oldVersion, newVersion}).Draw(rt, "kubelet")
				w.node("node-m1", kubelet, agent)
			case "agent":
				agent = rapid.SampledFrom([]string{"", oldVersion, newVersion}).Draw(rt, "agent")
				w.node("node-m1", kubelet, agent)
			case "fail":
				w.fail[rapid.SampledFrom(fails).Draw(rt, "what fails")] = errors.New("away")
			case "heal":
				clear(w.fail)
				w.failSite = nil
			case "away":
				w.failSite = errors.New("connection refused")
			case "later":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(rt, "minutes")) * time.Minute)
			}
			if n := len(w.updates()); n > 1 {
				rt.Fatalf("%d updates for one machine", n)
			}
		}
		clear(w.fail)
		w.failSite = nil
		ask()
		finish()
		for range 2 { // and it stays done
			if !ask() {
				rt.Fatalf("everything works, and it is not done: %+v", w.update("m1", newVersion))
			}
		}
		if err := w.server().Sweep(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if left := w.plan("machinedeployment.pool").Status.Machines; w.skips("m1") || len(left) > 0 {
			rt.Fatalf("left behind: %v %v", left, w.annotations("m1"))
		}
	})
}
