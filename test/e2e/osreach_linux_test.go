package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/test/simhost"
)

const (
	// osStepDeadline and osUndoDeadline of the pool, in seconds.
	osStepDeadline = 180
	osUndoDeadline = 60
	osFirewall     = "/etc/nftables.conf"
	checkImages    = "os-images-fit"
)

// osReach is a lab whose workers get what could cost a visit.
type osReach struct {
	*osSite
	good string // reference by digest of what the workers run
	seen osReachSeen
}

// osReachSeen is what results/osreach.json keeps.
type osReachSeen struct {
	Kubernetes string
	Lost       osLost
	Refused    []osRefused
	CutOff     osCutOff
	Steps      []outcome
}

// osLost is a node that did not come back from its boot.
type osLost struct {
	Node, Phase, Message string
	BootsOfOther         int
	SecondsUntilFailed   float64
}

// osRefused is an image or a configuration that closed the gate.
type osRefused struct {
	What, Check, Reason, Message string
	Boots                        int
	Cordoned                     bool
}

// osCutOff is a node that a file cut off, with an image in the same update.
type osCutOff struct {
	Node, State, Reason, Message string
	Booted, BootedBefore         string
	Boots, BootsOfOther          int
	APIUnavailable               bool
	SecondsUntilUndone           float64
}

// TestOSHostsNeedNoVisit gives nodes that boot OS images what could cost a visit. An image that does
// not fit is refused before any node is touched. A node that stays off counts as failed. A file that
// cuts a node off is undone by the node itself together with the image, while no API server answers,
// also after a power cut.
func TestOSHostsNeedNoVisit(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := &osReach{osSite: startDeployedSite(t, scenario.Options{Name: "osreach", Nodes: 3, From: to, To: to})}
	w.approves(t)
	w.good = w.version(t, "2")
	w.pools(t, func(p *v1alpha1.UpdatePoolSpec) {
		undo := int32(osUndoDeadline)
		p.OSReadySeconds, p.StepDeadlineSeconds, p.UndoDeadlineSeconds = osReady, osStepDeadline, &undo
	})
	keepResult(t, "osreach.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = w.s.From, played[t.Name()]
		return w.seen
	})
	step(t, "a node that stays off after its restart counts as failed, and the other worker is not started", w.staysOff)
	step(t, "a firewall and an image in one update cut a node off, without an API server and with a power cut: it undoes both", w.cutOff)
	step(t, "images and arguments that would strand nodes are refused before any node is touched", w.refuses)
	step(t, "an OS of packages is refused a whole OS before its node is touched", w.refusesPackages)
}

// version pushes an image with which nodes come up.
func (w *osReach) version(t *testing.T, v string, more ...simhost.Files) string {
	t.Helper()
	return w.push(t, "os/v"+v, osImage(t, append([]simhost.Files{simhost.Node(t, v, w.bootc)}, more...)...))
}

// firstBoot waits until a worker restarts.
func (w *osReach) firstBoot(t *testing.T, before map[string]int) (first, other string) {
	t.Helper()
	eventually(t, 6*time.Minute, "a worker restarts", func() (bool, string) {
		now := w.boots(t)
		for i, n := range osWorkers {
			if now[n] > before[n] {
				first, other = n, osWorkers[1-i]
			}
		}
		return first != "", fmt.Sprint(now)
	})
	return first, other
}

func (w *osReach) staysOff(t *testing.T) {
	open := firewall("accept")
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName},
		Files: []v1alpha1.NodeFile{{Path: osFirewall, Contents: &v1alpha1.FileContents{Inline: &open}, Units: []string{"nftables.service"}}},
		Units: []v1alpha1.NodeUnit{{Name: "nftables.service", State: "enabled"}}}}))
	w.takes(t, w.good)
	w.waiting(t)
	before := w.boots(t)
	w.plan(t)
	startUpdate(t, w.s)
	node, other := w.firstBoot(t, before)
	w.run(t, node, "systemctl", "poweroff", "--no-block")
	began := time.Now()
	var u v1alpha1.ClusterUpdate
	eventually(t, 8*time.Minute, "the node counts as failed", func() (bool, string) {
		u = w.update(t)
		for _, b := range u.Status.Blockers {
			if b.Reason == v1alpha1.ReasonNodeLost && strings.Contains(b.Message, node) {
				w.seen.Lost.Message = b.Message
			}
		}
		return w.seen.Lost.Message != "" && u.Status.Phase == v1alpha1.PhaseHalted, fmt.Sprintf("%s %+v", u.Status.Phase, u.Status.Blockers)
	})
	l := &w.seen.Lost
	l.Node, l.Phase, l.SecondsUntilFailed = node, u.Status.Phase, time.Since(began).Seconds()
	time.Sleep(30 * time.Second) // the other worker is not started meanwhile
	l.BootsOfOther = w.boots(t)[other] - before[other]
	if cordoned, err := w.s.Cordoned(t.Context(), other); l.BootsOfOther != 0 || cordoned || err != nil {
		t.Errorf("%+v; the other worker is cordoned: %v, %v", *l, cordoned, err)
	}
	must(t, w.s.Lab.PowerOn(t.Context(), node))
	w.everybodyIsDone(t)
	for _, n := range osWorkers {
		if got := w.booted(t, n); got != digestOf(w.good) {
			t.Errorf("node %s has booted %s, not %s", n, got, w.good)
		}
	}
}

// update is the only one.
func (w *osReach) update(t *testing.T) v1alpha1.ClusterUpdate {
	t.Helper()
	var l v1alpha1.ClusterUpdateList
	must(t, w.s.Client.List(t.Context(), &l))
	if len(l.Items) != 1 {
		t.Fatalf("%d updates", len(l.Items))
	}
	return l.Items[0]
}

func (w *osReach) everybodyIsDone(t *testing.T) {
	t.Helper()
	eventually(t, 8*time.Minute, "the update is done", func() (bool, string) {
		u := w.update(t)
		return u.Status.Phase == v1alpha1.PhaseDone, fmt.Sprintf("%s %+v", u.Status.Phase, u.Status.Blockers)
	})
	w.giveUp(t)
}

// refuses: each image is one that nodes could not boot, or not join with.
func (w *osReach) refuses(t *testing.T) {
	file := simhost.Files{}
	image := func(change simhost.Files) v1.Image { return osImage(t, simhost.Node(t, "9", w.bootc).With(change)) }
	for _, c := range []struct {
		what   string
		image  v1.Image
		check  string
		reason string
		// on is what happens on both workers before, off takes it back.
		on, off string
		args    []v1alpha1.KernelArgument
	}{
		{what: "an image for another processor", image: forARM(t, image(file)), reason: osimage.ReasonArchitecture},
		{what: "an image that bootc refuses to boot", image: unlabelled(t, image(file)), reason: osimage.ReasonNotBootable},
		{what: "an image that binds images of a registry", image: image(simhost.Files{"usr/lib/bootc/bound-images.d/db.image": "-> /usr/share/containers/systemd/db.image"}), reason: osimage.ReasonBound},
		{what: "an image with two kernels", image: image(simhost.Files{"usr/lib/modules/6.2/vmlinuz": "kernel"}), reason: osimage.ReasonKernel},
		{what: "an image that masks the kubelet", image: image(simhost.Files{"usr/bin/kubelet": "program", "etc/systemd/system/kubelet.service": "-> /dev/null"}), reason: osimage.ReasonUnit},
		{what: "an image with a transient /etc and no agent", image: unprovided(t, image(simhost.Files{"usr/lib/ostree/prepare-root.conf": "[etc]\ntransient = true\n"})), reason: osimage.ReasonImageAgent},
		{what: "a kernel argument that stops before the agent", check: "kernel-arguments", reason: v1alpha1.ReasonDangerousArguments, args: []v1alpha1.KernelArgument{"rd.break"}},
		{what: "a signature policy of the hosts that rejects the image", reason: osimage.ReasonSignaturePolicy,
			on: `mkdir -p /etc/containers && echo '{"default":[{"type":"reject"}]}' > /etc/containers/policy.json`, off: "rm /etc/containers/policy.json"},
		{what: "a /boot without room for the kernel", image: image(simhost.Files{"usr/lib/modules/6.1-9/vmlinuz": strings.Repeat("kernel\n", 4<<20)}), reason: osimage.ReasonRoom,
			on: "mount -t tmpfs -o size=8m boot /boot", off: "umount /boot"},
	} {
		r := osRefused{What: c.what, Check: checkImages, Reason: c.reason}
		if c.check != "" {
			r.Check = c.check
		}
		before := w.boots(t)
		img := c.image
		if img == nil {
			img = image(simhost.Files{"usr/share/what": c.what})
		}
		for _, n := range osWorkers {
			if c.on != "" {
				w.run(t, n, "sh", "-c", c.on)
			}
		}
		w.takes(t, w.push(t, "os/refused", img))
		w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = c.args })
		w.waiting(t)
		_, err := w.s.Run(t.Context(), "plan")
		must(t, err)
		r.Message = w.closes(t, r.Check, r.Reason)
		now := w.boots(t)
		for _, n := range osWorkers {
			r.Boots += now[n] - before[n]
			cordoned, err := w.s.Cordoned(t.Context(), n)
			must(t, err)
			r.Cordoned = r.Cordoned || cordoned
			if c.off != "" {
				w.run(t, n, "sh", "-c", c.off)
			}
		}
		if r.Boots != 0 || r.Cordoned {
			t.Errorf("a node was touched: %+v", r)
		}
		w.seen.Refused = append(w.seen.Refused, r)
		w.giveUp(t)
	}
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = nil })
}

// refusesPackages gives an image to the control-plane node, whose OS is the machine's: one of packages,
// on which systemd-sysext answers.
func (w *osReach) refusesPackages(t *testing.T) {
	w.takes(t, w.good)
	before := w.boots(t)["n1"]
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}}
	w.patch(t, pool, fmt.Sprintf(`{"spec":{"osImage":%q}}`, osName))
	eventually(t, 2*time.Minute, "there is a plan", func() (bool, string) {
		_, err := w.s.Run(t.Context(), "plan")
		var l v1alpha1.ClusterUpdateList
		return err == nil && w.s.Client.List(t.Context(), &l) == nil && len(l.Items) == 1, fmt.Sprint(len(l.Items), err)
	})
	r := osRefused{What: "a whole OS for a node with an OS of packages", Check: checkImages, Reason: osimage.ReasonNotExtension}
	r.Message = w.closes(t, r.Check, r.Reason)
	r.Boots = w.boots(t)["n1"] - before
	var err error
	r.Cordoned, err = w.s.Cordoned(t.Context(), "n1")
	must(t, err)
	if r.Boots != 0 || r.Cordoned {
		t.Errorf("the node was touched: %+v", r)
	}
	w.seen.Refused = append(w.seen.Refused, r)
	w.giveUp(t)
	w.patch(t, pool, `{"spec":{"osImage":null}}`)
}

// closes waits until a check closes the gate for a reason, and returns its message.
func (w *osReach) closes(t *testing.T, check, reason string) (message string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the check "+check+" closes the gate: "+reason, func() (bool, string) {
		r, err := w.s.Run(t.Context(), "gate", "-o", "json")
		var v render.GateView
		if err != nil || json.Unmarshal([]byte(r.Stdout), &v) != nil {
			return false, fmt.Sprint(r.Stdout, r.Stderr, err)
		}
		closed := slices.ContainsFunc(v.Checks, func(c render.GateCheck) bool { return c.Name == check && c.Verdicts > 0 })
		for _, b := range v.Waiting {
			if b.Reason == reason {
				message = b.Message
			}
		}
		return r.Code == 3 && closed && message != "", r.Stdout
	})
	return message
}

// forARM is an image of the same files for another processor.
func forARM(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	return configured(t, img, func(c *v1.ConfigFile) { c.Architecture = "arm64" })
}

func unlabelled(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	return configured(t, img, func(c *v1.ConfigFile) { delete(c.Config.Labels, osimage.LabelBootc) })
}

// unprovided is an image that does not say that the host has an agent.
func unprovided(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	return configured(t, img, func(c *v1.ConfigFile) {
		c.Config.Labels[osimage.LabelHostProvides] = "kubelet,runtime,systemd,initramfs"
	})
}

func configured(t *testing.T, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	c, err := img.ConfigFile()
	must(t, err)
	c = c.DeepCopy()
	change(c)
	img, err = mutate.ConfigFile(img, c)
	must(t, err)
	return img
}

// cutOff: the firewall is written before the image is booted, so that the deployment before has it too,
// and returning to that deployment alone does not suffice.
func (w *osReach) cutOff(t *testing.T) {
	image := w.version(t, "4")
	w.takes(t, image)
	w.firewall(t, "drop")
	w.waiting(t)
	before := w.boots(t)
	w.plan(t)
	startUpdate(t, w.s)
	node, other := w.firstBoot(t, before)
	c := &w.seen.CutOff
	c.Node, c.BootedBefore = node, digestOf(w.good)
	eventually(t, 2*time.Minute, "the firewall of "+node+" lets nothing in", func() (bool, string) {
		got := w.rules(t, node) // a node counts its boot before it loads them
		return strings.Contains(got, "policy drop"), got
	})
	w.run(t, "n1", "mv", apiManifest, apiAside)
	must(t, w.s.Lab.Crash(t.Context(), node))
	began := time.Now()
	eventually(t, 12*time.Minute, "the node has its image and its firewall back", func() (bool, string) {
		got, err := w.s.Output(t.Context(), node, "nft", "list", "table", "inet", "site")
		return err == nil && strings.Contains(got, "policy accept") && w.booted(t, node) == c.BootedBefore, fmt.Sprint(got, err)
	})
	c.SecondsUntilUndone = time.Since(began).Seconds()
	c.APIUnavailable = w.s.Client.List(t.Context(), &v1alpha1.ClusterUpdateList{}) != nil
	w.run(t, "n1", "mv", apiAside, apiManifest)
	eventually(t, 6*time.Minute, "the node reports why", func() (bool, string) {
		nu, err := nodeUpdateOf(t.Context(), w.s, node)
		if err != nil || nu.Status.Run == nil {
			return false, fmt.Sprint(err)
		}
		c.State, c.Reason, c.Message = string(nu.Status.Run.State), nu.Status.Run.Reason, nu.Status.Run.Message
		return nu.Status.Run.State == v1alpha1.RunFailed, c.State + ": " + c.Message
	})
	ready(t, w.s, node)
	now := w.boots(t)
	c.Boots, c.BootsOfOther, c.Booted = now[node]-before[node], now[other]-before[other], w.booted(t, node)
	if c.Reason != v1alpha1.ReasonUndoneByDeadline || c.Booted != c.BootedBefore || c.BootsOfOther != 0 || !c.APIUnavailable || !strings.Contains(w.rules(t, node), "policy accept") {
		t.Errorf("%+v", *c)
	}
	nu, err := nodeUpdateOf(t.Context(), w.s, node)
	must(t, err)
	if got := nu.Status.Observed.Fields[model.FieldOSImage]; got != c.Booted {
		t.Errorf("the agent reports %s", got)
	}
	w.giveUp(t)
	w.firewall(t, "accept")
}

// firewall changes the file of the NodeConfig.
func (w *osReach) firewall(t *testing.T, policy string) {
	t.Helper()
	text := firewall(policy)
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.Files[0].Contents = &v1alpha1.FileContents{Inline: &text} })
}

// rules are those of the node's firewall.
func (w *osReach) rules(t *testing.T, node string) string {
	t.Helper()
	out, err := w.s.Output(t.Context(), node, "nft", "list", "table", "inet", "site")
	return fmt.Sprint(out, err)
}
