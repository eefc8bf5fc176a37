package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// lookAlikeStart is what results/lookalike-coldstart-*.json keeps next to the steps. Times count
// from when the node had started again.
type lookAlikeStart struct {
	Nodes map[string]*startedNode `json:"nodes"`
	// ReadySeconds until all nodes are Ready and all containers run, from when all nodes had
	// started, and NetworkBackSeconds after which the agents had their network.
	ReadySeconds float64 `json:"allReadySeconds"`
	// AgentsWithoutNetwork: agents of k3s and RKE2 start no container runtime before their server
	// has answered, so they have their network.
	AgentsWithoutNetwork bool    `json:"agentsWithoutNetwork"`
	NetworkBackSeconds   float64 `json:"networkBackSeconds"`
	// Waits are the containers that waited for an image, watched since before the cut.
	Waits []scenario.ImageWait `json:"containersWithoutImage"`
	// Requests for a registry since the cut.
	Requests int64 `json:"requestsForRegistry"`
}

type startedNode struct {
	// Store of the runtime in files before and after the wipe.
	FilesBefore int `json:"storeFilesBeforeWipe"`
	FilesAfter  int `json:"storeFilesAfterWipe"`
	// Archives that the distribution found in its directory, written from the node's own copy.
	Archives int `json:"archivesWritten"`
	// ImagesSeconds until all images were restored, Images how many.
	ImagesSeconds float64 `json:"imagesSeconds,omitempty"`
	Images        int     `json:"imagesRestored"`
	// Containers that run, by the node's own runtime; all are new.
	Containers int `json:"containers"`

	boot    string
	started time.Time
	ran     map[string]bool
}

// lookAlikeOnce plays the power cut at the next start, before the distribution starts.
const lookAlikeOnce = `[Unit]
ConditionPathExists=/var/lib/lab-once
DefaultDependencies=no
After=local-fs.target
Before=refit-agent.service refit-import.service %[1]s
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'rm /var/lib/lab-once; /bin/sh -x /root/once.sh > /var/log/once.log 2>&1'
[Install]
WantedBy=multi-user.target
`

// TestLookAlikeColdStart cuts the power of all nodes of a look-alike at one time. The stores of
// containerd are wiped, the distribution's own archives of images are gone, and on k0s the agents'
// network is down. One unit starts both containerd and kubelet. Before it starts, each node writes
// its own copy of all images into the directory from which the distribution imports. No container
// waits for an image, and no node asks for a registry.
func TestLookAlikeColdStart(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: "cold-" + d.name, Distribution: d.name, From: d.to, To: d.to, Nodes: 3, MediumNode: "n2"})
			result := &lookAlikeStart{Nodes: map[string]*startedNode{}}
			keepResult(t, "lookalike-coldstart-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "version": d.to, "start": result, "steps": played[t.Name()]}
			})
			ctx := t.Context()
			must(t, s.Components(ctx))
			must(t, s.Up(ctx))
			b := distributionBundle(t, s, d.to)
			device, err := s.Insert(ctx, s.MediumNode, b)
			must(t, err)
			step(t, "every node holds, pins and copies what runs", func(t *testing.T) {
				must(t, s.Install(ctx, b, device))
				must(t, s.Approve(ctx, b))
				copied(t, s)
				must(t, s.Eject(ctx, s.MediumNode, device))
			})
			step(t, "the whole site loses power and images; it comes back by itself", func(t *testing.T) { lookAlikeStarts(t, s, b, result) })
		})
	}
}

func lookAlikeStarts(t *testing.T, s *scenario.Scenario, b scenario.Bundle, r *lookAlikeStart) {
	t.Helper()
	ctx := t.Context()
	r.AgentsWithoutNetwork = s.Distribution == distribution.K0s
	for i, n := range s.Lab.Nodes() {
		r.Nodes[n] = armWipe(t, s, n, i > 0 && r.AgentsWithoutNetwork)
	}
	before, err := s.Outside(ctx)
	must(t, err)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	images := scenario.WatchImages(watch, s.Client)
	began := cutAll(t, s, r)
	eventually(t, 15*time.Minute, "the server has all images in a new boot", func() (bool, string) { return startedAgain(t, s, b, "n1", r.Nodes["n1"].boot) })
	r.Nodes["n1"].ImagesSeconds = time.Since(r.Nodes["n1"].started).Seconds()
	for _, n := range s.Lab.Workers() {
		if !r.AgentsWithoutNetwork {
			break
		}
		if out, err := s.Output(ctx, n, "ip", "-o", "link", "show", "eth0"); err != nil || !strings.Contains(out, "state DOWN") {
			t.Errorf("%s had a network, so this shows nothing: %s %v", n, out, err)
		}
		networkBack(t, s, n)
	}
	r.NetworkBackSeconds = time.Since(began).Seconds()
	eventually(t, 8*time.Minute, "every container of every node runs, by its runtime", func() (bool, string) { return allRun(t, s, r) })
	r.ReadySeconds = time.Since(began).Seconds()
	for _, n := range s.Lab.Nodes() {
		eventually(t, 5*time.Minute, n+" has all images again", func() (bool, string) { return startedAgain(t, s, b, n, r.Nodes[n].boot) })
		r.Nodes[n].Images = len(s.Needed(b, n))
		wiped(t, s, n, r.Nodes[n]) // the archives go when all images are pinned
		holdsAll(t, s, n, b)
	}
	r.Waits = images.Waits()
	after, err := s.Outside(ctx)
	must(t, err)
	r.Requests = after.Requests - before.Requests
	if len(r.Waits) > 0 || r.Requests > 0 {
		t.Errorf("%d requests for a registry, and containers waited for images: %+v", r.Requests, r.Waits)
	}
}

// armWipe has a node lose its images at the next start, with a count of files before and after.
func armWipe(t *testing.T, s *scenario.Scenario, node string, withoutNetwork bool) *startedNode {
	t.Helper()
	ctx := t.Context()
	row, _ := distribution.ByName(s.Distribution)
	root := row.Places.RuntimeRoot
	count := "find " + root + " -type f | wc -l > /var/log/store."
	script := count + "before\nrm -rf " + root + "/* " + row.Places.Images + "/*\n" + count + "after\n"
	if withoutNetwork {
		script += "ip link set eth0 down\n"
	}
	unit := fmt.Sprintf(lookAlikeOnce, strings.Join(append(row.Servers, row.Agents...), " "))
	must(t, s.Lab.WriteFile(ctx, node, "/etc/systemd/system/lab-once.service", []byte(unit), 0o644))
	must(t, s.Lab.WriteFile(ctx, node, "/root/once.sh", []byte(script), 0o644))
	must(t, s.Exec(ctx, node, "sh", "-c", "systemctl daemon-reload && systemctl enable lab-once && touch /var/lib/lab-once && sync"))
	x := &startedNode{boot: bootOf(t, s, node), ran: map[string]bool{}}
	running, err := runningIDs(ctx, s, node)
	must(t, err)
	for _, id := range running {
		x.ran[id] = true
	}
	if len(x.ran) == 0 {
		t.Fatalf("no container runs on %s, so this shows nothing", node)
	}
	return x
}

// cutAll cuts the power of all nodes at once, and returns when the last had started again.
func cutAll(t *testing.T, s *scenario.Scenario, r *lookAlikeStart) time.Time {
	t.Helper()
	ended := make(chan error, len(r.Nodes))
	for n, x := range r.Nodes {
		go func() {
			err := s.Lab.CutPower(t.Context(), n)
			x.started = time.Now()
			ended <- err
		}()
	}
	for range r.Nodes {
		must(t, <-ended)
	}
	return time.Now()
}

// wiped verifies that the store was full before the wipe, and empty after it. Nothing is left of
// the archives that were written after the wipe.
func wiped(t *testing.T, s *scenario.Scenario, node string, x *startedNode) {
	t.Helper()
	row, _ := distribution.ByName(s.Distribution)
	out, err := s.Output(t.Context(), node, "sh", "-c", "test ! -e /var/lib/lab-once && cat /var/log/store.before /var/log/store.after")
	must(t, err)
	if _, err := fmt.Sscan(out, &x.FilesBefore, &x.FilesAfter); err != nil || x.FilesBefore < 100 || x.FilesAfter != 0 {
		t.Errorf("node %s kept images, so this shows nothing: %s %v", node, out, err)
	}
	wrote, err := s.Output(t.Context(), node, "journalctl", "-b", "-u", "refit-import", "-o", "cat", "--no-pager")
	must(t, err)
	var said struct{ Images []string }
	if i := strings.IndexByte(wrote, '{'); i < 0 || json.NewDecoder(strings.NewReader(wrote[i:])).Decode(&said) != nil || len(said.Images) < x.Images {
		t.Errorf("node %s restored %d images before the start: %s", node, len(said.Images), wrote)
	}
	x.Archives = len(said.Images)
	eventually(t, 2*time.Minute, node+" has no archives any more", func() (bool, string) {
		left, err := s.Output(t.Context(), node, "ls", row.Places.Images)
		return err == nil && !strings.Contains(left, ".tar"), fmt.Sprint(left, err)
	})
}

// runningIDs are the running containers of a node by namespace, pod and name.
func runningIDs(ctx context.Context, s *scenario.Scenario, node string) (map[string]string, error) {
	c, err := s.CRI(node)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all, err := c.Containers(ctx)
	ids := map[string]string{}
	for _, x := range all {
		if x.Running {
			ids[x.Namespace+"/"+x.Pod+"/"+x.Name] = x.ID
		}
	}
	return ids, err
}

// allRun asks the runtime of each node for the containers of all pods that are bound to it. None
// of them ran before the cut.
func allRun(t *testing.T, s *scenario.Scenario, r *lookAlikeStart) (bool, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods); err != nil {
		return false, err.Error()
	}
	var missing []string
	for n, x := range r.Nodes {
		running, err := runningIDs(ctx, s, n)
		if err != nil {
			return false, err.Error()
		}
		x.Containers = 0
		for _, p := range pods.Items {
			if p.Spec.NodeName != n || p.DeletionTimestamp != nil {
				continue
			}
			for _, c := range p.Spec.Containers {
				id := running[p.Namespace+"/"+p.Name+"/"+c.Name]
				if id == "" || x.ran[id] {
					missing = append(missing, n+" "+p.Name)
				}
				x.Containers++
			}
		}
	}
	return len(missing) == 0 && len(pods.Items) > 0, strings.Join(missing, ", ")
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
