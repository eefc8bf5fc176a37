package boot

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/test/results"
)

// bootLimit bounds every wait: an emulated boot takes half a minute on two free cores, and many times that next to other work.
const bootLimit = time.Hour

// move is one order to the machine, as results/*.json have it.
type move struct {
	Image string `json:"image"`
	What  string `json:"what"`
	// State, Reason and Message of the step; Booted is the image that runs afterwards.
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Booted  string `json:"booted"`
	// Grub are the lines of the boot loader: one for each start.
	Grub []string `json:"grub"`
	// Seconds from the order to its end, SecondsBack from the first start of the image on.
	Seconds     float64 `json:"seconds"`
	SecondsBack float64 `json:"secondsFromFirstStart"`
	CPUSeconds  float64 `json:"cpuSeconds"`
}

func needs(t testing.TB) {
	t.Helper()
	if os.Getenv("REFIT_BOOT") == "" {
		t.Skip("machines that boot take twenty minutes: make test-boot")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the tree of an OS is made in a chroot")
	}
	for _, p := range []string{"qemu-system-x86_64", "qemu-img", "mmdebstrap", "grub-mkimage", "grub-editenv", "sfdisk", "ostree", "mke2fs"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("needs %s: make test-boot-deps installs it", p)
		}
	}
}

// node is the machine with the API server that it reaches.
type node struct {
	*machine
	site *site
	port int
}

// apiServer is a port that answers.
func apiServer(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// give orders an image, waits for the end, and returns what was seen.
func (n *node) give(name, what string, attempt int32, kargs ...string) move {
	n.t.Helper()
	b, err := json.Marshal(order{Attempt: attempt, Image: n.site.images[name], Name: name, Kargs: kargs, ReadySeconds: 60, Port: n.port})
	must(n.t, err)
	n.run("mkdir -p " + imagesDir + " " + filepath.Dir(orderFile) + " && mount -o ro /dev/vdb " + imagesDir)
	n.run("ostree pull-local --repo=/ostree/repo " + imagesDir + "/repo " + refOf(n.site.images[name]))
	mark, start, cpu := n.mark(), time.Since(n.start), n.cpu()
	n.run("echo " + base64.StdEncoding.EncodeToString(b) + " | base64 -d > " + orderFile + ".new && mv " + orderFile + ".new " + orderFile)
	end := n.waitLine("machine: the step ended", mark, bootLimit)
	n.ready(5 * time.Minute)
	out := parse(n.run("cat "+resultFile), attempt)
	if out == nil {
		n.t.Fatalf("the machine has no result of attempt %d\n%s", attempt, n.tail(40))
	}
	m := move{Image: name, What: what, State: out.State, Reason: out.Reason, Message: out.Message, Seconds: round(end.at - start), CPUSeconds: float64(int(n.cpu() - cpu))}
	m.Booted = n.run(". /usr/lib/os-release; echo $VERSION_ID")
	for _, l := range n.since(mark) {
		if text, ok := strings.CutPrefix(l.text, "grub: "); ok {
			if m.Grub = append(m.Grub, text); len(m.Grub) == 1 {
				m.SecondsBack = round(end.at - l.at)
			}
		}
	}
	n.t.Logf("%+v", m)
	return m
}

func round(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)) / float64(time.Second)
}

// isOn fails unless the machine runs an image, boots it next, and GRUB counts no more.
func (n *node) isOn(name string) {
	n.t.Helper()
	first, _, _ := strings.Cut(n.run("ostree admin status"), "\n")
	env := strings.Split(n.run("grub-editenv /boot/grub/grubenv list 2>/dev/null || cat /boot/grub/grubenv"), "\n")
	if got := n.run(". /usr/lib/os-release; echo $VERSION_ID"); got != name || !strings.HasPrefix(first, "*") {
		n.t.Errorf("the machine runs %s, wanted %s; the next boot: %s", got, name, first)
	}
	if strings.Contains(strings.Join(env, "\n"), "boot_counter=") || n.run("ls /var/lib/refit/boot-attempt 2>/dev/null; true") != "" {
		n.t.Errorf("boots are still counted: %v", env)
	}
}

// logs is where the consoles of the last run are.
func logs(t testing.TB, name string) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/boot")
	must(t, err)
	return filepath.Join(dir, name)
}

// proof is the kernel argument of the updates. GRUB 2.14 does not load an entry whose options have a
// length that its allocator does not round up (288 bytes here): it misses the initrd, so that the
// kernel panics.
const proof = "refit.proof=boot"

// cases are the images with which the machine does not stay: what the result says, and what GRUB did.
var cases = []struct {
	image, what string
	says        []string
	grub        []string
}{
	{"C", "a kernel that panics", []string{"did not start: GRUB started it 2 times", "its kernel, its initramfs or its systemd"},
		[]string{"boot_counter=1 default=0", "boot_counter=0 default=0", "boot_counter=-1 default=1"}},
	{"D", "a systemd that hangs", []string{"did not start: GRUB started it 2 times", "its kernel, its initramfs or its systemd"},
		[]string{"boot_counter=1 default=0", "boot_counter=0 default=0", "boot_counter=-1 default=1"}},
	{"E", "no agent", []string{"did not start: GRUB started it 2 times", "the image has no /usr/local/bin/refit-agent"},
		[]string{"boot_counter=1 default=0", "boot_counter=0 default=0", "boot_counter=-1 default=1"}},
	{"F", "a network file that cuts it off", []string{"was not Ready within 1m0s", "network is unreachable"},
		[]string{"boot_counter=1 default=0", "boot_counter= default=0"}},
}

// TestMachinesComeBack boots a good image and four bad ones. After each bad one the machine is back
// on the good one by itself, and the result of the step says why.
func TestMachinesComeBack(t *testing.T) {
	needs(t)
	s, port := makeSite(t), apiServer(t)
	disk := filepath.Join(s.work, "b.qcow2")
	if !s.onB() && !t.Run("B", func(t *testing.T) { bootGood(t, s, port, disk) }) {
		return // nothing to come back to
	}
	for i, c := range cases {
		if only := os.Getenv("REFIT_BOOT_ONLY"); only != "" && !strings.Contains(only, c.image) {
			continue
		}
		t.Run(c.image, func(t *testing.T) {
			own := copyFile(t, disk, filepath.Join(t.TempDir(), "own.qcow2"))
			n := &node{boot(t, logs(t, c.image), own, s.data, "-loadvm", "b"), s, port}
			n.comesBack(int32(i+2), c.image, c.what, c.says, c.grub)
		})
	}
}

// keep writes what was seen of an image.
func keep(t testing.TB, image string, seen *move) {
	t.Helper()
	results.Keep(t, "results/"+strings.ToLower(image)+".json", func() any {
		return struct {
			Machine string `json:"machine"`
			*move
		}{"QEMU without KVM, 1 CPU, 1 GB, next to other work; GRUB 2.14, Debian 13", seen}
	})
}

// bootGood moves the machine from A to B, and keeps a snapshot of it there.
func bootGood(t *testing.T, s *site, port int, disk string) {
	var there move
	keep(t, "B", &there)
	overlay(t, s.disk, "raw", disk)
	n := &node{boot(t, logs(t, "B"), disk, s.data), s, port}
	n.ready(bootLimit)
	there = n.give("B", "a good image", 1, proof)
	if there.State != "Done" || there.Booted != "B" || !slices.Equal(there.Grub, []string{"boot_counter=1 default=0"}) {
		t.Errorf("B: %+v", there)
	}
	n.isOn("B")
	if line := n.run("cat /proc/cmdline"); !strings.Contains(line, " "+proof) || !strings.Contains(line, "ostree=") {
		t.Errorf("the kernel of B has the arguments %s", line)
	}
	if out := parse(n.run("cat "+resultFile), 1); out.Fields[model.FieldOSBootFallback] != model.ValueComplete {
		t.Errorf("the preflight says %q", out.Fields[model.FieldOSBootFallback])
	}
	n.snapshot("b")
	n.stop()
	if !t.Failed() {
		must(t, os.WriteFile(s.goodFile(), nil, 0o600))
	}
}

// comesBack gives the machine an image with which it cannot stay.
func (n *node) comesBack(attempt int32, image, what string, says, grub []string) {
	var seen move
	keep(n.t, image, &seen)
	n.ready(5 * time.Minute)
	seen = n.give(image, what, attempt, proof)
	if seen.State != "Failed" || seen.Reason != v1alpha1.ReasonOSUnhealthy || seen.Booted != "B" || !slices.Equal(seen.Grub, grub) {
		n.t.Errorf("%s: %+v", what, seen)
	}
	for _, words := range append([]string{"the node rolled back to sha256:"}, says...) {
		if !strings.Contains(seen.Message, words) {
			n.t.Errorf("%q is not in: %s", words, seen.Message)
		}
	}
	n.isOn("B")
	if line := n.run("cat /proc/cmdline"); !strings.Contains(line, " "+proof) {
		n.t.Errorf("the kernel of B has the arguments %s", line)
	}
}
