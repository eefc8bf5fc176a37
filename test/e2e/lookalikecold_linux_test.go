package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// lookAlikeStart is what results/lookalike-coldstart-*.json keeps next to the steps.
type lookAlikeStart struct {
	// ServerSeconds until the server is Ready, from its own copy: the other nodes have no network.
	ServerSeconds float64 `json:"serverReadySeconds"`
	// ReadySeconds until all nodes are, and every container, and NetworkBackSeconds after which
	// the other nodes had their network.
	ReadySeconds       float64 `json:"allReadySeconds"`
	NetworkBackSeconds float64 `json:"networkBackSeconds"`
	// Images that each node has loaded again from its own copy.
	Images map[string]int `json:"imagesRestored"`
	// Waits are the containers that waited for an image, until the agent had loaded it.
	Waits []scenario.ImageWait `json:"containersWithoutImage"`
	// Requests for a registry that kubelets made meanwhile.
	Requests int64 `json:"requestsForRegistry"`
}

// lookAlikeOnce plays the power cut at the next start, before the distribution starts.
const lookAlikeOnce = `[Unit]
ConditionPathExists=/var/lib/lab-once
DefaultDependencies=no
After=local-fs.target
Before=refit-agent.service %[1]s
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'rm /var/lib/lab-once; /bin/sh -x /root/once.sh > /var/log/once.log 2>&1'
[Install]
WantedBy=multi-user.target
`

// TestLookAlikeColdStart cuts the power of all nodes of a look-alike at one time. The stores of
// containerd are wiped, the distribution's own archives of images are gone, and the agents'
// network is down. One unit starts both containerd and kubelet, so no check runs before:
// each node loads all images from its own copy after the start.
func TestLookAlikeColdStart(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: "cold-" + d.name, Distribution: d.name, From: d.from, To: d.from, Nodes: 3, MediumNode: "n2"})
			result := &lookAlikeStart{Images: map[string]int{}}
			keepResult(t, "lookalike-coldstart-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "version": d.from, "start": result, "steps": played[t.Name()]}
			})
			ctx := t.Context()
			must(t, s.Components(ctx))
			must(t, s.Up(ctx))
			b := distributionBundle(t, s, d.from)
			device, err := s.Insert(ctx, s.MediumNode, b)
			must(t, err)
			step(t, "every node holds, pins and copies what runs", func(t *testing.T) {
				must(t, s.Install(ctx, b, device))
				must(t, s.Approve(ctx, b))
				copied(t, s)
				must(t, s.Eject(ctx, s.MediumNode, device))
				noRequestForARegistry(t, s)
			})
			step(t, "the whole site loses power and images; it comes back by itself", func(t *testing.T) { lookAlikeStarts(t, s, b, result) })
		})
	}
}

func lookAlikeStarts(t *testing.T, s *scenario.Scenario, b scenario.Bundle, r *lookAlikeStart) {
	t.Helper()
	ctx := t.Context()
	row, _ := distribution.ByName(s.Distribution)
	wipe := "rm -rf " + row.Places.RuntimeRoot + "/* " + row.Places.Images + "/*\n"
	boots := map[string]string{}
	for i, n := range s.Lab.Nodes() {
		script := wipe
		if i > 0 {
			script += "ip link set eth0 down\n"
		}
		unit := fmt.Sprintf(lookAlikeOnce, strings.Join(append(row.Servers, row.Agents...), " "))
		must(t, s.Lab.WriteFile(ctx, n, "/etc/systemd/system/lab-once.service", []byte(unit), 0o644))
		must(t, s.Lab.WriteFile(ctx, n, "/root/once.sh", []byte(script), 0o644))
		must(t, s.Exec(ctx, n, "sh", "-c", "systemctl daemon-reload && systemctl enable lab-once && touch /var/lib/lab-once && sync"))
		boots[n] = bootOf(t, s, n)
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	began, ended := time.Now(), make(chan error, len(boots))
	for n := range boots {
		go func() { ended <- s.Lab.CutPower(ctx, n) }()
	}
	for range boots {
		must(t, <-ended)
	}
	images := scenario.WatchImages(watch, s.Client)
	eventually(t, 15*time.Minute, "the server is Ready in a new boot, with all images", func() (bool, string) { return startedAgain(t, s, b, "n1", boots["n1"]) })
	r.ServerSeconds = time.Since(began).Seconds()
	for _, n := range s.Lab.Workers() {
		if out, err := s.Output(ctx, n, "ip", "-o", "link", "show", "eth0"); err != nil || !strings.Contains(out, "state DOWN") {
			t.Errorf("%s had a network, so this shows nothing: %s %v", n, out, err)
		}
		networkBack(t, s, n)
	}
	r.NetworkBackSeconds = time.Since(began).Seconds()
	allReady(t, s, boots)
	r.ReadySeconds = time.Since(began).Seconds()
	for _, n := range s.Lab.Nodes() {
		eventually(t, 5*time.Minute, n+" holds and pins all again", func() (bool, string) { return startedAgain(t, s, b, n, boots[n]) })
		holdsAll(t, s, n, b)
		r.Images[n] = len(s.Needed(b, n))
		if out, err := s.Output(ctx, n, "sh", "-c", "test ! -e /var/lib/lab-once && ls "+filepath.Clean(row.Places.Images)); err != nil || strings.Contains(out, ".tar") {
			t.Errorf("node %s kept archives of images, so this shows nothing: %s %v", n, out, err)
		}
	}
	r.Waits = images.Waits()
	out, err := s.Outside(ctx)
	must(t, err)
	r.Requests = out.Requests
}

// startedAgain asks that a node is Ready in another boot, and that its runtime has all images.
func startedAgain(t *testing.T, s *scenario.Scenario, b scenario.Bundle, node, boot string) (bool, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var n corev1.Node
	if err := s.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return false, err.Error()
	}
	if n.Status.NodeInfo.BootID == boot || !condition(n.Status.Conditions) {
		return false, "not Ready in a new boot"
	}
	for name := range s.Needed(b, node) {
		if held, err := s.Held(ctx, node, b, name); err != nil || !held {
			return false, fmt.Sprint(name, " is missing ", err)
		}
	}
	return true, ""
}
