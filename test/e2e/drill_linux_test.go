package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/render"
)

// coldStarts is what results/drill.json keeps next to the steps.
type coldStarts struct {
	// Before is what the drill said beforehand, with and without the local copy.
	Before map[string]render.DrillView `json:"beforehand"`
	// Nodes are the reports of the checks after all nodes had been killed.
	Nodes map[string]coldstart.Report `json:"nodes"`
	// ReadySeconds from the kill of the last node to all nodes Ready again.
	ReadySeconds float64 `json:"readySeconds"`
	// Run is a drill that was asked of one node.
	Run   render.DrillView `json:"run"`
	Steps []outcome        `json:"steps"`
}

// TestDrill kills a whole cluster of two runtimes. One node has no network and its
// containerd store is wiped. Images of the control plane are damaged on disk, and
// `crio wipe` runs on the third node after the unclean shutdown. The cluster recovers by
// itself, as `refit drill` predicted. Without the local copy, `refit drill` predicts that
// it would not.
func TestDrill(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("three nodes are killed and come back: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "drill", From: from, To: to, Nodes: 3, Runtime: lab.RuntimeMixed, MediumNode: "n2"})
	ctx := t.Context()
	result := coldStarts{Before: map[string]render.DrillView{}, Nodes: map[string]coldstart.Report{}}
	keepResult(t, "drill.json", func() any {
		result.Steps = played[t.Name()]
		return result
	})
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(from, "v"), Release: s.FromRelease()})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	step(t, "every node holds, pins and copies what runs", func(t *testing.T) {
		must(t, s.Install(ctx, b, device))
		must(t, s.Approve(ctx, b))
		copied(t, s)
		must(t, s.Eject(ctx, s.MediumNode, device))
		noRequestForARegistry(t, s)
	})
	step(t, "with the local copy the drill says that each node would come back", func(t *testing.T) {
		for _, n := range s.Lab.Nodes() {
			v, code := drillSays(t, s, n)
			if code != 0 || !v.ComesBack {
				t.Errorf("node %s: exit code %d, %+v", n, code, v.Blockers)
			}
			result.Before["with a copy, "+n] = v
		}
	})
	step(t, "without it the drill says that the node would not, and who has a copy", func(t *testing.T) {
		withoutCopy(t, s, "n3", func() {
			v, code := drillSays(t, s, "n3")
			result.Before["without a copy, n3"] = v
			if code != 3 || v.ComesBack || len(v.Blockers) == 0 || v.Blockers[0].Reason != v1alpha1.ReasonNoLocalCopy {
				t.Errorf("exit code %d, %+v", code, v)
			}
			for _, i := range v.Images {
				if i.Copy || len(i.Peers) != 2 {
					t.Errorf("%+v: want no copy here, and both peers", i)
				}
			}
		})
		copied(t, s)
	})
	step(t, "an orderly restart finds everything whole, by sizes alone", func(t *testing.T) {
		for _, n := range s.Lab.Workers() {
			boot := bootOf(t, s, n)
			must(t, s.Lab.Reboot(ctx, n))
			out, err := s.Output(ctx, n, "cat", "/run/refit/preflight.json")
			must(t, err)
			var r coldstart.Report
			must(t, json.Unmarshal([]byte(out), &r))
			if !r.OK || r.Unclean || len(r.Damage)+len(r.Restored)+len(r.Missing) > 0 || r.Layers == 0 || r.BootID == boot {
				t.Errorf("node %s: %s", n, out)
			}
		}
	})
	step(t, "the whole site loses power; it comes back by itself", func(t *testing.T) {
		result.Nodes, result.ReadySeconds = powerGoes(t, s, b)
	})
	step(t, "a drill that is run proves it on one node", func(t *testing.T) {
		r, err := s.Run(ctx, "drill", "--node", "n2", "--run", "--yes", "-o", "json")
		must(t, err)
		must(t, json.Unmarshal([]byte(r.Stdout), &result.Run))
		p := result.Run.LastStart
		if r.Code != 0 || result.Run.Proof == nil || p == nil || int(p.Restored) != len(s.Needed(b, "n2")) || p.Compared == 0 || p.Missing > 0 {
			t.Errorf("exit code %d: %s", r.Code, r.Stdout)
		}
		holdsAll(t, s, "n2", b)
	})
	noRequestForARegistry(t, s)
}

// noRequestForARegistry fails if a process tried to resolve or reach a registry.
func noRequestForARegistry(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	out, err := s.Outside(t.Context())
	must(t, err)
	if out.Requests > 0 {
		t.Errorf("a process asked for a registry: %+v", out)
	}
}

// copied waits until every node holds and pins all of its list, and has a whole
// copy of it.
func copied(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	for _, n := range s.Lab.Nodes() {
		eventually(t, 5*time.Minute, n+" holds, pins and copies everything", func() (bool, string) {
			nu, err := nodeUpdate(t, s, n)
			if err != nil {
				return false, err.Error()
			}
			h, c := nu.Status.Pins, nu.Status.ColdStart
			if h == nil || c == nil {
				return false, nu.Status.Message
			}
			return h.Content == nu.Spec.Pins && h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal && c.Copies == h.ImagesTotal,
				fmt.Sprintf("%d of %d pinned, %d copies, %s", h.ImagesPinned, h.ImagesTotal, c.Copies, nu.Status.Message)
		})
	}
}

// drillSays is what `refit drill` says of a node.
func drillSays(t *testing.T, s *scenario.Scenario, node string) (render.DrillView, int) {
	t.Helper()
	r, err := s.Run(t.Context(), "drill", "--node", node, "-o", "json")
	must(t, err)
	var v render.DrillView
	must(t, json.Unmarshal([]byte(r.Stdout), &v))
	return v, r.Code
}

// withoutCopy has a node throw its copy away while f runs. What is wanted no more
// stays for ten minutes; to wait for that shows nothing, so the files are removed.
func withoutCopy(t *testing.T, s *scenario.Scenario, node string, f func()) {
	t.Helper()
	ctx := t.Context()
	old, err := nodeUpdate(t, s, node)
	must(t, err)
	lean := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "lean"}, Spec: v1alpha1.UpdatePoolSpec{LocalCopy: v1alpha1.LocalCopyDiscard,
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}}}}
	must(t, s.Client.Create(ctx, lean))
	eventually(t, time.Minute, node+" has the new hold list", func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		return err == nil && nu.Spec.Pins != old.Spec.Pins && nu.Status.Pins != nil && nu.Status.Pins.Content == nu.Spec.Pins,
			fmt.Sprintf("hold list %s before, %s now in generation %d; the status is of generation %d and %+v: %s", old.Spec.Pins, nu.Spec.Pins, nu.Generation, nu.Status.ObservedGeneration, nu.Status.Pins, nu.Status.Message)
	})
	must(t, s.Exec(ctx, node, "sh", "-c", "rm -f /var/lib/refit/blobs/sha256/*"))
	eventually(t, 2*time.Minute, node+" says that it has no copy", func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		if err != nil || nu.Status.ColdStart == nil {
			return false, fmt.Sprint(err)
		}
		return nu.Status.ColdStart.Copies == 0, fmt.Sprintf("%+v", nu.Status.ColdStart)
	})
	f()
	must(t, s.Client.Delete(ctx, lean))
	// With the old hold list again, the node fetches what it lost from its peers.
	eventually(t, time.Minute, node+" has the old hold list again", func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		return err == nil && nu.Spec.Pins == old.Spec.Pins, ""
	})
}

// Units of the test, which play the power cut at the next start of a node, once.
const onceUnit = `[Unit]
ConditionPathExists=/var/lib/lab-once
DefaultDependencies=no
After=local-fs.target
Before=containerd.service crio.service refit-agent.service refit-preflight.service kubelet.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'rm /var/lib/lab-once; /bin/sh -x /root/once.sh > /var/log/once.log 2>&1'
[Install]
WantedBy=multi-user.target
`

const (
	// The whole of containerd's store, and the network: it comes back by hand.
	wipeAll = "rm -rf /var/lib/containerd/* && ip link set eth0 down"
	// Files of no bytes in every other layer, a manifest of no bytes.
	tearSome = `cd /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots
find */fs -type f -size +3k | awk 'NR%3==0' | while read f; do truncate -s 0 "$f"; done
cd /var/lib/containerd/io.containerd.content.v1.content/blobs/sha256
for f in $(grep -l mediaType $(find . -type f -size -8k) | awk 'NR%2==0'); do truncate -s 0 $f; done
true`
	// What the packages' crio-wipe.service runs.
	crioWipe = "/usr/local/bin/crio wipe"
)

// powerGoes kills every node at one time and waits until the cluster is back.
func powerGoes(t *testing.T, s *scenario.Scenario, b scenario.Bundle) (map[string]coldstart.Report, float64) {
	ctx := t.Context()
	boots := map[string]string{}
	for node, script := range map[string]string{"n1": tearSome, "n2": wipeAll, "n3": crioWipe} {
		must(t, s.Lab.WriteFile(ctx, node, "/etc/systemd/system/lab-once.service", []byte(onceUnit), 0o644))
		must(t, s.Lab.WriteFile(ctx, node, "/root/once.sh", []byte(script+"\n"), 0o644))
		must(t, s.Exec(ctx, node, "sh", "-c", "systemctl daemon-reload && systemctl enable lab-once && touch /var/lib/lab-once && sync"))
		boots[node] = bootOf(t, s, node)
	}
	killed := time.Now()
	ended := make(chan error, 3)
	for _, n := range s.Lab.Nodes() {
		go func() { ended <- s.Lab.Crash(ctx, n) }()
	}
	for range 3 {
		must(t, <-ended)
	}
	reports := map[string]coldstart.Report{}
	for _, n := range s.Lab.Nodes() {
		eventually(t, 8*time.Minute, "the images of "+n+" are whole and its kubelet runs", func() (bool, string) {
			out, err := s.Output(ctx, n, "cat", "/run/refit/preflight.json")
			if err != nil {
				said, _ := s.Output(ctx, n, "journalctl", "-b", "-u", "refit-preflight", "-n", "3", "--no-pager", "-o", "cat")
				return false, said
			}
			var r coldstart.Report
			must(t, json.Unmarshal([]byte(out), &r))
			reports[n] = r
			active, _ := s.Output(ctx, n, "systemctl", "is-active", "kubelet")
			return r.OK && strings.TrimSpace(active) == "active", out
		})
	}
	if out, err := s.Output(ctx, "n2", "ip", "-o", "link", "show", "eth0"); err != nil || !strings.Contains(out, "state DOWN") {
		t.Errorf("n2 had a network, so this shows nothing: %s %v", out, err)
	}
	networkBack(t, s, "n2")
	allReady(t, s, boots)
	ready := time.Since(killed).Seconds()
	for node, r := range reports {
		if !r.Unclean || len(r.Missing) > 0 || len(r.Restored) == 0 {
			t.Errorf("node %s: %+v", node, r)
		}
		holdsAll(t, s, node, b)
	}
	needed := len(s.Needed(b, "n2"))
	if len(reports["n2"].Restored) != needed || len(reports["n3"].Restored) != needed || len(reports["n1"].Damage) == 0 {
		t.Errorf("restored %d and %d of %d images, %d damages", len(reports["n2"].Restored), len(reports["n3"].Restored), needed, len(reports["n1"].Damage))
	}
	return reports, ready
}

// bootOf is the boot that the API server has of a node.
func bootOf(t *testing.T, s *scenario.Scenario, node string) string {
	t.Helper()
	var n corev1.Node
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &n))
	return n.Status.NodeInfo.BootID
}

// networkBack plugs the cable in again.
func networkBack(t *testing.T, s *scenario.Scenario, node string) {
	t.Helper()
	must(t, s.Exec(t.Context(), node, "ip", "link", "set", "eth0", "up"))
	var routes []string
	m, err := os.ReadFile(filepath.Join(s.Lab.Dir, "nodes", node, "machine.json"))
	must(t, err)
	var machine struct {
		Gateway string
		Peers   []struct{ Address, PodCIDR string }
	}
	must(t, json.Unmarshal(m, &machine))
	routes = append(routes, "ip route replace default via "+machine.Gateway)
	for _, p := range machine.Peers {
		routes = append(routes, "ip route replace "+p.PodCIDR+" via "+p.Address)
	}
	must(t, s.Exec(t.Context(), node, "sh", "-ec", strings.Join(routes, "\n")))
}

// allReady waits until every node is Ready in another boot, and every pod runs.
func allReady(t *testing.T, s *scenario.Scenario, boots map[string]string) {
	t.Helper()
	eventually(t, 8*time.Minute, "every node is Ready in a new boot, every pod too", func() (bool, string) {
		var nodes corev1.NodeList
		var pods corev1.PodList
		if err := s.Client.List(t.Context(), &nodes); err != nil {
			return false, err.Error()
		}
		if err := s.Client.List(t.Context(), &pods); err != nil {
			return false, err.Error()
		}
		var not []string
		for _, n := range nodes.Items {
			if n.Status.NodeInfo.BootID == boots[n.Name] || !condition(n.Status.Conditions) {
				not = append(not, n.Name)
			}
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				if !c.Ready {
					not = append(not, p.Name)
				}
			}
		}
		return len(nodes.Items) == len(boots) && len(not) == 0, fmt.Sprint(not)
	})
}

func condition(all []corev1.NodeCondition) bool {
	for _, c := range all {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
