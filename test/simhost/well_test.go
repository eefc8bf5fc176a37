package simhost

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
	"github.com/refit-dev/refit/internal/failpoint"
)

// On real deployments: the kubelet of an image does not answer. The node rolls back to
// the deployment before by itself, with its arguments, although the image is gone from
// everywhere by then; it says why, and stays.
func TestTheKubeletIsDead(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		n.sick, n.ready = map[string]bool{"2": true}, 60
		task := n.step(n.put(version(t, "2", nil, "second=2")), "second=2")
		boots, seen := n.Boots, ""
		r := n.drive(task, (*osdeploy.Updater).Update, func() {
			n.Reboot()
			seen += n.Must("cat", "/usr/share/version")
		})
		failed(t, r, v1alpha1.ReasonOSUnhealthy)
		for _, words := range []string{"rolled back to ", "1m0s", "connection refused", "kubelet.service is failed"} {
			if !strings.Contains(r.Message, words) {
				t.Errorf("%q is not in: %s", words, r.Message)
			}
		}
		n.isOn("1", "first=1")
		n.without("second=2")
		if s := n.status(); !s.NextIsBooted() || seen != "21" || n.Boots != boots+2 {
			t.Fatalf("next %+v, booted %s after %d restarts", s.Next, seen, n.Boots-boots)
		}
		failed(t, n.there(task), v1alpha1.ReasonOSUnhealthy) // asked again it does nothing
		done(t, n.back(task))
		if n.Boots != boots+2 {
			t.Fatalf("%d restarts", n.Boots-boots)
		}
		n.sick = nil // repaired: a person tries it again
		task.Attempt = 2
		done(t, n.there(task))
		n.isOn("2", "second=2")
		done(t, n.back(task))
		n.isOn("1", "first=1")
	})
}

// The power goes while the node rolls back: it gets there all the same. (Not in
// parallel: failpoints are the process's.)
func TestTheKubeletIsDeadAndThePowerGoes(t *testing.T) {
	Needs(t)
	for kind, at := range map[string]struct {
		point string
		nth   int
	}{
		osdriver.OSTree: {failpoint.OSGivenUp, 1},
		osdriver.Bootc:  {failpoint.OSNoted, 2}, // noted for the way there, and for the way back
	} {
		t.Run(kind+" "+at.point, func(t *testing.T) {
			n := newNode(t, kind)
			n.sick, n.ready = map[string]bool{"2": true}, 60
			task := n.step(n.put(version(t, "2", nil, "v=2")), "v=2")
			n.cutAtNth(at.point, at.nth, task, (*osdeploy.Updater).Update)
			r := n.drive(task, (*osdeploy.Updater).Update, n.Reboot)
			failed(t, r, v1alpha1.ReasonOSUnhealthy)
			n.isOn("1", "first=1")
			n.without("v=2")
			if s := n.status(); !s.NextIsBooted() {
				t.Fatalf("next %+v", s.Next)
			}
		})
	}
}

// The power goes at the very shutdown that is to bring the node back: what was staged
// for it is lost, and it is tried again.
func TestTheKubeletIsDeadAndTheWayBackIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		n.sick, n.ready = map[string]bool{"2": true}, 60
		task := n.step(n.put(version(t, "2", nil, "v=2")), "v=2")
		restarts := 0
		r := n.drive(task, (*osdeploy.Updater).Update, func() {
			if restarts++; restarts == 2 {
				n.PowerCut()
				n.Boot()
				return
			}
			n.Reboot()
		})
		failed(t, r, v1alpha1.ReasonOSUnhealthy)
		if !strings.Contains(r.Message, "rolled back to ") {
			t.Error(r.Message)
		}
		n.isOn("1", "first=1")
	})
}
