package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/test/simhost"
)

const (
	// osSoft makes the bootc stand-in report that its staged image needs no firmware reset
	// (soft reboot); osCommands records the commands that it received.
	osSoft     = "/etc/bootc-restarts-softly"
	osCommands = "/var/lib/bootc-commands"
)

// osHosts is a lab whose workers' OS images are prepared, drift, and are restored.
type osHosts struct {
	*osSite
	image v1alpha1.OSImagePool // what the pool has now
	seen  osHostsSeen
}

// osHostsSeen is what results/oshosts.json keeps.
type osHostsSeen struct {
	Kubernetes string
	// Staged is what was seen of every worker while its image was made ready.
	Staged map[string]osStaged
	// MostAtIt is how many workers made theirs ready at once; the pool permits one.
	MostAtIt int
	// Drift is what was reported and done about what a user changed.
	Drift []osDrift
	// Soft has the commands that bootc received on the workers for a soft reboot.
	Soft  map[string][]string
	Steps []outcome
}

type osStaged struct {
	Requested, Ready, Cordoned time.Time
	// HeldByRuntime: the node's container runtime had fetched it before. RegistryUnreachable: no
	// registry answered when it was booted.
	HeldByRuntime, RegistryUnreachable bool
}

type osDrift struct{ Policy, Node, What, Says, Gate, Then string }

// TestOSImageStagedAndDrift stages the image on one worker after the other before any
// node is cordoned; then no registry is needed. A user's change on a node closes the gate.
// As the pool's policy says, a person accepts it, the agent restores the file at once, or
// the next update overwrites it. A node that a user rolled back stays so. refit asks for
// a soft reboot where bootc can do it; where systemd cannot, it is a full one.
func TestOSImageStagedAndDrift(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := &osHosts{osSite: startDeployedSite(t, scenario.Options{Name: "oshosts", Nodes: 3})}
	w.base = w.push(t, "os/base", osImage(t, simhost.Node(t, "2", w.bootc)))
	w.seen.Staged, w.seen.Soft = map[string]osStaged{}, map[string][]string{}
	w.keep(t)
	step(t, "outside its window the pool stages its image, one node at a time, and cordons none", w.staged)
	step(t, "the window opens, the registry is unreachable: both boot the staged image", w.withoutRegistry)
	step(t, "Report: a user's change closes the gate; a person accepts it, and it is overwritten", w.reported)
	step(t, "Repair: it is restored at once, with an event", w.repaired)
	step(t, "Ignore: the next update overwrites it; refit asks for a soft reboot", w.ignored)
	step(t, "a node that a user rolled back stays so under every policy", w.takenBack)
}

func (w *osHosts) keep(t *testing.T) {
	keepResult(t, "oshosts.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = from, played[t.Name()]
		return w.seen
	})
}

// pool changes the workers' pool.
func (w *osHosts) pool(t *testing.T, spec string) {
	t.Helper()
	w.patch(t, &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}}, `{"spec":`+spec+`}`)
}

// closed is a window that opens in twelve hours.
func closed() []v1alpha1.Window {
	return []v1alpha1.Window{{Start: time.Now().UTC().Add(12 * time.Hour).Format("15:04"), DurationMinutes: 30, TimeZone: "UTC"}}
}

// built waits until the pool has another image than before.
func (w *osHosts) built(t *testing.T) {
	t.Helper()
	before := w.image.Image
	w.image = w.osSite.image(t, func(p v1alpha1.OSImagePool) bool { return p.State == "Use" && p.Image != before && p.Build == p.Wanted })
}

func (w *osHosts) staged(t *testing.T) {
	ctx := t.Context()
	w.pools(t, func(p *v1alpha1.UpdatePoolSpec) {
		p.MaxStaging, p.Windows = 1, closed()
		p.Disruption = append(p.Disruption, v1alpha1.DisruptionRule{Files: []string{osProbeFile}, Actions: []v1alpha1.DisruptionAction{{Type: "Reload", Unit: osProbe}}})
	})
	note, conf := "of the pool\n", "one\n"
	// The image brings the unit that a file reloads: before it is booted there is none.
	must(t, w.s.Client.Create(ctx, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName}, Units: []v1alpha1.NodeUnit{probe()},
		KernelArguments: []v1alpha1.KernelArgument{"edge.first=1"},
		Files:           []v1alpha1.NodeFile{{Path: osNote, Contents: &v1alpha1.FileContents{Inline: &note}}, {Path: osProbeFile, Contents: &v1alpha1.FileContents{Inline: &conf}}}}}))
	must(t, w.s.Client.Create(ctx, &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: w.base}, Repository: w.address + "/os/edge"}}))
	w.built(t)
	w.waiting(t)
	w.held(t)
	before := w.boots(t)
	w.plan(t)
	ended := w.follow(t)
	r, err := w.s.Run(ctx, "apply", "--yes", "--no-wait")
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("refit apply: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	eventually(t, 5*time.Minute, "both are staged", func() (bool, string) {
		said := ""
		ready := 0
		for _, n := range osWorkers {
			nu, err := nodeUpdate(t, w.s, n)
			if err != nil || nu.Status.Observed == nil {
				return false, fmt.Sprint(err)
			}
			f := nu.Status.Observed.Fields
			said += fmt.Sprintf("%s: wanted %q, ready %q, staged %q, %s; ", n, nu.Spec.Stage, f[model.FieldOSPrepared], f["os/staged"], f[model.FieldOSProblem])
			if nu.Spec.Stage != "" && f[model.FieldOSPrepared] == nu.Spec.Stage && f["os/staged"] == digestOf(w.image.Image) {
				ready++
			}
		}
		return ready == len(osWorkers), said
	})
	time.Sleep(10 * time.Second) // no node is cordoned meanwhile
	w.seen.MostAtIt = ended()
	for _, n := range osWorkers {
		s := w.seen.Staged[n]
		if !s.Cordoned.IsZero() || s.Ready.IsZero() || w.boots(t)[n] != before[n] {
			t.Errorf("%s: %+v", n, s)
		}
	}
	if w.seen.MostAtIt != 1 {
		t.Errorf("%d nodes were at it at once", w.seen.MostAtIt)
	}
	v, _ := status(t, w.s)
	if said, err := json.Marshal(v); err != nil || !strings.Contains(string(said), v1alpha1.ReasonOutsideWindow) {
		t.Errorf("refit status does not say what is waited for: %s", said)
	}
}

// held waits until the nodes' own container runtimes have fetched the image, from a
// registry without TLS, as the site's hosts.toml says.
func (w *osHosts) held(t *testing.T) {
	t.Helper()
	for _, n := range osWorkers {
		c, err := w.s.CRI(n)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		eventually(t, 3*time.Minute, "the container runtime of "+n+" has the image", func() (bool, string) {
			id, err := c.ImageID(t.Context(), w.image.Image)
			return err == nil && id != "", fmt.Sprint(id, err)
		})
		s := w.seen.Staged[n]
		s.HeldByRuntime = true
		w.seen.Staged[n] = s
	}
}

// follow watches which nodes stage and which are cordoned, until ended is called. ended
// returns how many staged at once.
func (w *osHosts) follow(t *testing.T) (ended func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var done sync.WaitGroup
	most := 0
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			most = max(most, w.lookOnce(ctx))
		}
	})
	return func() int { cancel(); done.Wait(); return most }
}

// lookOnce records changes, and counts the nodes that are asked to stage and not ready.
func (w *osHosts) lookOnce(ctx context.Context) (atIt int) {
	var l corev1.NodeList
	if w.s.Client.List(ctx, &l) != nil {
		return 0
	}
	cordoned := map[string]bool{}
	for i := range l.Items {
		cordoned[l.Items[i].Name] = l.Items[i].Spec.Unschedulable
	}
	for _, n := range osWorkers {
		nu, err := nodeUpdateOf(ctx, w.s, n)
		if err != nil || nu.Status.Observed == nil {
			continue
		}
		s, now := w.seen.Staged[n], time.Now().UTC()
		ready := nu.Spec.Stage != "" && nu.Status.Observed.Fields[model.FieldOSPrepared] == nu.Spec.Stage
		first(&s.Requested, now, nu.Spec.Stage != "")
		first(&s.Ready, now, ready)
		first(&s.Cordoned, now, cordoned[n])
		w.seen.Staged[n] = s
		if nu.Spec.Stage != "" && !ready && !cordoned[n] {
			atIt++
		}
	}
	return atIt
}

// first notes when something was so first.
func first(at *time.Time, now time.Time, is bool) {
	if is && at.IsZero() {
		*at = now
	}
}

func (w *osHosts) withoutRegistry(t *testing.T) {
	ended := w.follow(t)
	before := w.boots(t)
	w.registry.Stop()
	w.pool(t, `{"windows":null}`)
	eventually(t, 10*time.Minute, "both have booted it", func() (bool, string) {
		said, there := "", 0
		for _, n := range osWorkers {
			nu, err := nodeUpdate(t, w.s, n)
			if err != nil {
				return false, err.Error()
			}
			if nu.Status.Run != nil {
				said += fmt.Sprintf("%s %s %s %s; ", n, nu.Status.Run.State, nu.Status.Run.Step, nu.Status.Run.Message)
			}
			if nu.Status.Run != nil && nu.Status.Run.State == v1alpha1.RunSucceeded {
				there++
			}
		}
		return there == len(osWorkers), said
	})
	ended()
	w.registry.Resume()
	w.over(t)
	for _, n := range osWorkers {
		s := w.seen.Staged[n]
		s.RegistryUnreachable = true
		w.seen.Staged[n] = s
		if got := w.booted(t, n); got != digestOf(w.image.Image) || s.Cordoned.Before(s.Ready) || w.boots(t)[n] != before[n]+1 {
			t.Errorf("%s has booted %s, %d times: %+v", n, got, w.boots(t)[n]-before[n], s)
		}
		if got := w.run(t, n, "systemctl", "is-active", osProbe); got != "active" {
			t.Errorf("%s on %s is %s", osProbe, n, got)
		}
	}
}

// over waits until the update that runs is complete.
func (w *osHosts) over(t *testing.T) {
	t.Helper()
	eventually(t, 4*time.Minute, "the update is complete", func() (bool, string) {
		var us v1alpha1.ClusterUpdateList
		if err := w.s.Client.List(t.Context(), &us); err != nil {
			return false, err.Error()
		}
		said := ""
		for i := range us.Items {
			if u := &us.Items[i]; u.Status.Phase != v1alpha1.PhaseDone {
				said += fmt.Sprintf("%s %s; ", u.Name, u.Status.Phase)
			}
		}
		return said == "", said
	})
}

// says waits until a field of a node has these words in it.
func (w *osHosts) says(t *testing.T, node, field, words string) (text string) {
	t.Helper()
	eventually(t, 3*time.Minute, node+" says "+field, func() (bool, string) {
		nu, err := nodeUpdate(t, w.s, node)
		if err != nil || nu.Status.Observed == nil {
			return false, fmt.Sprint(err)
		}
		text = nu.Status.Observed.Fields[field]
		return text != "" && strings.Contains(text, words), text
	})
	return text
}

// another has the pool want one more image.
func (w *osHosts) another(t *testing.T, arg v1alpha1.KernelArgument) {
	t.Helper()
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"edge.first=1", arg} })
	w.built(t)
	w.waiting(t)
}

// gate waits until the answers of the gate have all of these words.
func (w *osHosts) gate(t *testing.T, code int, words ...string) (text string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the gate answers", func() (bool, string) {
		r, err := w.s.Run(t.Context(), "gate", "-o", "json")
		text = r.Stdout
		for _, x := range words {
			if err != nil || !strings.Contains(text, x) {
				return false, text
			}
		}
		return r.Code == code, text
	})
	return text
}

// applied runs the planned update to its end.
func (w *osHosts) applied(t *testing.T) {
	t.Helper()
	must(t, w.s.Apply(t.Context()))
	for _, n := range osWorkers {
		if got := w.booted(t, n); got != digestOf(w.image.Image) {
			t.Errorf("%s has booted %s, not %s", n, got, w.image.Image)
		}
	}
}

func (w *osHosts) change(t *testing.T, node string) {
	t.Helper()
	w.run(t, node, "sh", "-c", "echo a user was here > "+osNote)
}

func (w *osHosts) isBack(t *testing.T, node string) bool {
	t.Helper()
	return w.run(t, node, "cat", osNote) == "of the pool"
}

func (w *osHosts) reported(t *testing.T) {
	const n = "n3"
	w.change(t, n)
	d := osDrift{Policy: "Report", Node: n, What: osNote}
	d.Says = w.says(t, n, model.FieldFilesDrift, osNote+" is not as refit wrote it")
	w.another(t, "edge.second=2")
	_, err := w.s.Run(t.Context(), "plan")
	must(t, err)
	w.gate(t, 3, "node "+n+": "+osNote)
	d.Gate = "Closed"
	before := w.boots(t)
	if w.isBack(t, n) {
		t.Error("it was restored although the policy does not ask for it")
	}
	r, err := w.s.Run(t.Context(), "accept", "drift", "--reason", "it was a test", "--until", "1h")
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("refit accept: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	w.plan(t)
	w.applied(t)
	if now := w.boots(t); now["n2"] != before["n2"]+1 || now["n3"] != before["n3"]+1 || !w.isBack(t, n) {
		t.Errorf("booted %v, before %v; written over: %v", now, before, w.isBack(t, n))
	}
	d.Then = "accepted; the update wrote over it"
	w.seen.Drift = append(w.seen.Drift, d)
}

func (w *osHosts) repaired(t *testing.T) {
	const n = "n2"
	w.pool(t, `{"drift":"Repair"}`)
	w.says(t, n, model.FieldDriftPolicy, model.DriftRepair)
	before := w.boots(t)
	w.change(t, n)
	w.run(t, n, "systemctl", "stop", osProbe)
	eventually(t, 2*time.Minute, "it is restored", func() (bool, string) {
		active, _ := w.s.Output(t.Context(), n, "systemctl", "is-active", osProbe)
		return w.isBack(t, n) && strings.TrimSpace(active) == "active", active
	})
	d := osDrift{Policy: "Repair", Node: n, What: osNote + ", " + osProbe, Then: "restored at once"}
	eventually(t, time.Minute, "an event reports it", func() (bool, string) {
		var l corev1.EventList
		if err := w.s.Client.List(t.Context(), &l); err != nil {
			return false, err.Error()
		}
		for i := range l.Items {
			if e := &l.Items[i]; e.Reason == v1alpha1.ReasonDriftRepaired && e.InvolvedObject.Name == n && strings.Contains(e.Message, osNote) {
				d.Says = e.Message
			}
		}
		return d.Says != "", fmt.Sprint(len(l.Items), " events")
	})
	if now := w.boots(t); now[n] != before[n] {
		t.Errorf("%s was restarted for it", n)
	}
	w.seen.Drift = append(w.seen.Drift, d)
}

// ignored: another base, so the kernel arguments stay and bootc could do without the
// firmware. The systemd of the lab's nodes cannot.
func (w *osHosts) ignored(t *testing.T) {
	const n = "n3"
	w.pool(t, `{"drift":"Ignore","softReboot":true}`)
	w.says(t, n, model.FieldDriftPolicy, model.DriftIgnore)
	w.change(t, n)
	for _, n := range osWorkers {
		w.run(t, n, "touch", osSoft)
		w.run(t, n, "rm", "-f", osCommands)
	}
	base := w.push(t, "os/base", osImage(t, simhost.Node(t, "3", w.bootc)))
	w.patch(t, &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: osName}}, fmt.Sprintf(`{"spec":{"base":{"image":%q}}}`, base))
	w.built(t)
	w.waiting(t)
	before := w.boots(t)
	w.plan(t) // it would not become ready with a gate that is closed
	w.applied(t)
	if !w.isBack(t, n) {
		t.Error("the update did not write over it")
	}
	w.seen.Drift = append(w.seen.Drift, osDrift{Policy: "Ignore", Node: n, What: osNote, Gate: "Open", Then: "the update wrote over it"})
	for _, n := range osWorkers {
		commands := strings.Split(w.run(t, n, "cat", osCommands), "\n")
		w.seen.Soft[n] = commands
		all := strings.Join(commands, "\n")
		if !strings.Contains(all, "bootc upgrade --from-downloaded --soft-reboot=auto") || strings.Contains(all, "switch --soft-reboot") {
			t.Errorf("bootc on %s received %q", n, commands)
		}
		if now := w.boots(t)[n]; now != before[n]+1 || w.kubeletOS(t, n) != "Simulated OS 3" {
			t.Errorf("%s booted %d times, into %q", n, now-before[n], w.kubeletOS(t, n))
		}
	}
}

func (w *osHosts) takenBack(t *testing.T) {
	const n = "n2"
	wanted := digestOf(w.image.Image)
	w.run(t, n, "env", "-u", "container", "bootc", "rollback")
	must(t, w.s.Lab.Reboot(t.Context(), n))
	d := osDrift{Policy: "Ignore", Node: n, What: "bootc rollback"}
	d.Says = w.says(t, n, model.FieldOSLeft, wanted)
	w.waiting(t)
	_, err := w.s.Run(t.Context(), "plan")
	must(t, err)
	w.gate(t, 3, "node "+n+": an administrator rolled it back from "+wanted)
	d.Gate, d.Then = "Closed", "left so"
	w.giveUp(t)
	if got := w.booted(t, n); got == wanted {
		t.Error("it was booted forward again")
	}
	w.seen.Drift = append(w.seen.Drift, d)
}
