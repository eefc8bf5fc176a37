package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// howToRow is a row of testdata/howtos.yaml: how a page of docs/how-to is run.
type howToRow struct {
	// Test that runs what the page describes.
	Test string `json:"test"`
	// Blocks of commands that the test types word by word, from 1. Without them it runs
	// commands of its own.
	Blocks []int `json:"blocks"`
	// Also has blocks that other tests type, by their names.
	Also map[string][]int `json:"also"`
	// Why the commands of the page are not typed.
	Why string `json:"why"`
}

// typed is how many blocks tests type.
func (r howToRow) typed() int {
	n := len(r.Blocks)
	for _, blocks := range r.Also {
		n += len(blocks)
	}
	return n
}

// shellBlock is a block of commands of a page.
type shellBlock struct {
	lines []string
	// untyped is the reason in the page why no test types the block.
	untyped string
}

// howTos types pages of docs/how-to on the computer of an administrator and on the nodes.
type howTos struct {
	s     *scenario.Scenario
	dir   string
	env   []string
	typed map[string][]int
	log   io.Writer
}

// types runs one block of a page in the administrator's directory and returns what the
// commands printed. names are pairs: a name on the page, and the reader's own.
func (h *howTos) types(t *testing.T, page string, n int, names ...string) string {
	t.Helper()
	return h.eachLine(t, page, n, names, func(line string) ([]byte, error) {
		c := exec.CommandContext(t.Context(), "bash", "-c", typedLine(line))
		c.Dir, c.Env = h.dir, h.env
		return c.CombinedOutput()
	})
}

// typesOn runs one block of a page on a node, as root.
func (h *howTos) typesOn(t *testing.T, node, page string, n int, names ...string) string {
	t.Helper()
	return h.eachLine(t, page, n, names, func(line string) ([]byte, error) {
		out, err := h.s.Output(t.Context(), node, "bash", "-c", typedLine(line))
		return []byte(out), err
	})
}

func (h *howTos) eachLine(t *testing.T, page string, n int, names []string, run func(line string) ([]byte, error)) string {
	t.Helper()
	blocks := shellBlocks(t, page)
	if n > len(blocks) || blocks[n-1].untyped != "" {
		t.Fatalf("%s has no block %d to type", page, n)
	}
	h.typed[page] = append(h.typed[page], n)
	var all bytes.Buffer
	for _, line := range blocks[n-1].lines {
		line = strings.NewReplacer(names...).Replace(line)
		out, err := run(line)
		all.Write(out)
		_, _ = h.log.Write([]byte(page + " $ " + line + "\n" + string(out)))
		if err != nil {
			t.Fatalf("%s, block %d: $ %s\n%v\n%s", page, n, line, err, out)
		}
	}
	return all.String()
}

// typedLine is a line of a page for a shell without a person. Both computers have one root user.
// A question is answered with yes. A command that follows is ended after some seconds.
// Exit code 3 of a question about the state is an answer, and 6 of a list of damaged chunks
// (docs/reference/cli.md).
func typedLine(line string) string {
	line = strings.TrimPrefix(line, "sudo ")
	switch {
	case line == "refit apply", strings.Contains(line, " --run"), strings.Contains(line, "bundle write"):
		return "script -qec '" + strings.ReplaceAll(line, "'", `"`) + "' /dev/null <<< y"
	case strings.HasSuffix(line, " -f"):
		return "timeout 5 " + line + " || test $? = 124"
	case strings.HasPrefix(line, "refit status"), strings.HasPrefix(line, "refit gate"), strings.HasPrefix(line, "refit explain"):
		return line + " || test $? = 3"
	case strings.HasPrefix(line, "refit bundle repair") && !strings.Contains(line, "--repair-from"):
		return line + " || test $? = 6" // it lists damaged chunks
	}
	return line
}

// shellBlocks are the blocks of commands of a page, without their comments.
func shellBlocks(t *testing.T, page string) []shellBlock {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/how-to", page))
	must(t, err)
	var blocks []shellBlock
	lang, before := "", ""
	inside := false
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimSpace(line)
		name, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			inside, lang = true, name
			if lang == "sh" {
				reason, _ := strings.CutPrefix(before, "<!-- not typed: ")
				if reason == before {
					reason = ""
				}
				blocks = append(blocks, shellBlock{untyped: strings.TrimSuffix(reason, " -->")})
			}
		case fence:
			inside = false
		case inside && lang == "sh":
			line, _, _ = strings.Cut(line, "  #")
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, strings.TrimSpace(line))
		}
		before = line
	}
	return blocks
}

// TestHowTos types the commands of pages of docs/how-to, as they stand there, on one cluster of
// three nodes, from an empty directory to a cluster that was updated. testdata/howtos.yaml has
// the pages and the blocks; TestHowToTable of test/docs compares it with the pages.
//
// Replaced are only names that each reader replaces too: devices, nodes, digests, directories.
// Nodes of the lab have no ssh, so `refit install` gets the lab's remote shell.
func TestHowTos(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a whole update by hand takes long: make e2e")
	}
	s := start(t, "howto", 3)
	h := administrator(t, s)
	keepResult(t, "howtos.json", func() any {
		return map[string]any{"pages": h.counts(t), "steps": played[t.Name()]}
	})
	var digest, device string
	step(t, "a bundle is made, and written to a USB stick", func(t *testing.T) { digest, device = h.makeMedium(t) })
	step(t, "another person signs the bundle", func(t *testing.T) {
		if r, err := s.Run(t.Context(), "keys", "generate", "--out", filepath.Join(h.dir, "deputy")); err != nil || r.Code != 0 {
			t.Fatalf("keys generate: %v %s", err, r.Stderr)
		}
		h.types(t, "trust-and-approve.md", 3, "deputy.key", "deputy/refit.key")
	})
	step(t, "refit is installed from it, and the bundle is approved", func(t *testing.T) { h.installs(t, device, digest) })
	step(t, "the plan is ready, and people ask why nothing moves", func(t *testing.T) { h.plans(t) })
	step(t, "the update is applied, and every node has the release", func(t *testing.T) { h.applies(t) })
	step(t, "logs, a support archive and receipts show it", func(t *testing.T) { h.shows(t) })
	step(t, "a node is asked on its own console", func(t *testing.T) { h.onNode(t) })
	step(t, "a node gets files, units and settings of its pool", func(t *testing.T) { h.configures(t) })
	step(t, "images are pinned, and a node proves that it would recover", func(t *testing.T) { h.pins(t, digest) })
	step(t, "messages, metrics and the status page are switched on", func(t *testing.T) { h.watches(t) })
	step(t, "an OS image is built without a cluster", func(t *testing.T) { h.builds(t) })
	step(t, "the table has exactly the blocks that were typed", func(t *testing.T) { h.compareTable(t) })
}

// administrator makes the directory in which the commands are typed.
func administrator(t *testing.T, s *scenario.Scenario) *howTos {
	t.Helper()
	dir := t.TempDir()
	bin, err := filepath.Abs("../../bin")
	must(t, err)
	root, err := filepath.Abs("../..")
	must(t, err)
	release, err := components.Release(t.Context(), to, func(line string) { t.Log(line) })
	must(t, err)
	for _, name := range []string{"kubelet", "kubeadm", "kubectl"} {
		must(t, os.Symlink(filepath.Join(release.BinDir, name), filepath.Join(dir, name)))
	}
	must(t, os.Symlink(filepath.Join(bin, "refit-agent"), filepath.Join(dir, "refit-agent")))
	must(t, os.Symlink(filepath.Join(root, "config"), filepath.Join(dir, "config")))
	if r, err := s.Run(t.Context(), "self-image", "--output", filepath.Join(dir, "refit-image")); err != nil || r.Code != 0 {
		t.Fatalf("self-image: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	env := append(os.Environ(), "PATH="+bin+":"+release.BinDir+":"+os.Getenv("PATH"), "KUBECONFIG="+s.Lab.Kubeconfig())
	return &howTos{s: s, dir: dir, env: env, typed: map[string][]int{}, log: newLog(t)}
}

// makeMedium types the connected side of update-from-a-stick.md. The images come from archives:
// the lab has no line to registry.k8s.io.
func (h *howTos) makeMedium(t *testing.T) (digest, device string) {
	t.Helper()
	const page = "update-from-a-stick.md"
	release, err := components.Release(t.Context(), to, func(string) {})
	must(t, err)
	var images []string
	for _, image := range release.Images {
		images = append(images, "oci-archive:"+image.Archive)
	}
	printed := h.types(t, page, 1, "list:images.txt", strings.Join(images, " "))
	if !strings.Contains(printed, "registry.k8s.io/kube-apiserver:"+to) {
		t.Errorf("refit bundle inspect did not name the API server of %s", to)
	}
	b, err := h.s.Inspect(t.Context(), filepath.Join(h.dir, "release.bundle"))
	must(t, err)
	file := h.s.Path("stick.img")
	f, err := os.Create(file)
	must(t, err)
	must(t, f.Truncate(b.Size+b.Size/8+64<<20))
	must(t, f.Close())
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	must(t, err)
	loop := strings.TrimSpace(string(out))
	detach := func() error { return exec.Command("losetup", "--detach", loop).Run() }
	h.types(t, page, 2, "/dev/sdX", loop) // raw
	damage(t, loop)
	if said := h.types(t, page, 5, "/dev/sdX", loop); !strings.Contains(said, "damaged: ") || !strings.Contains(said, "1 range, ") {
		t.Errorf("the damaged chunk was not listed and repaired: %s", said)
	}
	h.types(t, page, 3, "/dev/sdX", loop) // an ordinary stick
	must(t, detach())
	device, err = h.s.InsertFile(t.Context(), "n2", file)
	must(t, err)
	return b.Digest, device
}

// damage changes some bytes of a bundle on a device.
func damage(t *testing.T, device string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("damaged on its way"), 200<<20)
	must(t, err)
	must(t, f.Close())
}

// installs types install.md and the approval by a digest.
func (h *howTos) installs(t *testing.T, device, digest string) {
	t.Helper()
	hosts := []string{"cp1:/dev/sdb,worker1,worker2", `n1,n2:` + device + `,n3 --rsh "` + h.s.Rsh() + `"`}
	h.types(t, "install.md", 1, hosts...)
	if said := h.types(t, "install.md", 3); !strings.Contains(said, "of areas that are left out") {
		t.Errorf("no area was left out: %s", said)
	}
	h.types(t, "update-from-a-stick.md", 13, "n1,n2:/dev/sdX,n3", hosts[1])
	eventually(t, time.Minute, "status asks for an approval", func() (bool, string) {
		v, _ := status(t, h.s)
		return strings.Contains(v.Headline, "waits for approval"), v.Headline
	})
	h.types(t, "trust-and-approve.md", 1, shownDigest, digest)
}

// shownDigest is the digest of a bundle on the pages.
const shownDigest = "sha256:baf19b14238d6f8e7f3c9f1f7f0c8d3d5a1e2b4c6d8f9a0b1c2d3e4f5a6b7c8d"

// plans types the plan, and the questions of a person who sees no node move.
func (h *howTos) plans(t *testing.T) {
	t.Helper()
	h.types(t, "update-from-a-stick.md", 14)
	h.types(t, "pace-an-update.md", 1)
	h.types(t, "steer-an-update.md", 1, "n7", "n3", "n5", "n2")
	if r, err := h.s.Run(t.Context(), "release", "n3"); err != nil || r.Code != 0 { // of the page's table
		t.Fatalf("refit release: %v %s", err, r.Stderr)
	}
	said := h.types(t, "stuck.md", 1)
	for _, word := range []string{"AwaitingStart", "refit apply"} {
		if !strings.Contains(said, word) {
			t.Errorf("the questions of stuck.md were never answered with %q", word)
		}
	}
}

// applies types the start and the end of the update.
func (h *howTos) applies(t *testing.T) {
	t.Helper()
	said := h.types(t, "update-from-a-stick.md", 15)
	for _, word := range []string{"Start this update? [y/N]", "3 of 3 nodes are at 1.36.3"} {
		if !strings.Contains(said, word) {
			t.Errorf("the commands never printed %q", word)
		}
	}
	for _, n := range h.s.Lab.Nodes() {
		if v, ready, err := h.s.Kubelet(t.Context(), n); err != nil || v != to || !ready {
			t.Errorf("node %s: kubelet %s, ready %v, %v", n, v, ready, err)
		}
	}
}

// shows types logs.md, support.md and receipts.md: what the office sees of the site.
func (h *howTos) shows(t *testing.T) {
	t.Helper()
	if said := h.types(t, "logs.md", 1); !strings.Contains(said, "kubelet") {
		t.Error("the log of n2 has no line of the step kubelet")
	}
	h.types(t, "logs.md", 2)
	h.types(t, "support.md", 1)
	h.types(t, "update-from-a-stick.md", 10, "refit-support.tar.gz", "site.tar.gz")
	if said := h.types(t, "support.md", 2); !strings.Contains(said, "3 of 3 nodes are at 1.36.3") {
		t.Error("the archive does not show the update as done")
	}
	receipts := filepath.Join(h.dir, "receipts")
	must(t, os.Mkdir(receipts, 0o755))
	places := []string{"/media/stick", receipts, "/srv/receipts", receipts, "--out keys", "--out north", "--key keys/", "--key north/", "north.pub", "north/refit.pub", "south.pub", "keys/refit.pub"}
	for n := 1; n <= 3; n++ {
		h.types(t, "receipts.md", n, places...)
	}
	if said := h.types(t, "receipts.md", 4, places...); !strings.Contains(said, "north") || !strings.Contains(said, "1.36.3") {
		t.Error("the table of the office does not show the site north at 1.36.3")
	}
}

// onNode types technician.md and the part of stuck.md for a node without an API server.
func (h *howTos) onNode(t *testing.T) {
	t.Helper()
	said := h.typesOn(t, "n2", "technician.md", 1)
	if !strings.HasPrefix(said, "green") {
		t.Errorf("the node does not call itself green: %s", said)
	}
	compareLabels(t, "status-page.md", said, "Steps", "Step") // it is done
	h.typesOn(t, "n2", "stuck.md", 2)
}

// compareLabels wants each label that the sample output of a page shows in what a command printed.
// Values and times are the node's own; except are labels of another moment.
func compareLabels(t *testing.T, page, said string, except ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/how-to", page))
	must(t, err)
	_, sample, ok := strings.Cut(string(text), "```console\n")
	sample, _, _ = strings.Cut(sample, "```")
	if !ok {
		t.Fatalf("%s has no sample output", page)
	}
	shown := 0
	for line := range strings.Lines(sample) {
		label, _, isLabel := strings.Cut(line, ":")
		if !isLabel || label == strings.ToLower(label) || slices.Contains(except, label) { // the first line is a colour
			continue
		}
		shown++
		if !strings.Contains("\n"+said, "\n"+label+":") {
			t.Errorf("%s shows %q, the command does not print it: %s", page, label, said)
		}
	}
	if shown == 0 {
		t.Errorf("the sample of %s has no label", page)
	}
}

// pins types pin-images.md and prepare-for-power-cuts.md. The images of the sample are those of
// the bundle.
func (h *howTos) pins(t *testing.T, digest string) {
	t.Helper()
	b, err := h.s.Inspect(t.Context(), filepath.Join(h.dir, "release.bundle"))
	must(t, err)
	sample, err := os.ReadFile("../../config/samples/pinnedimageset.yaml")
	must(t, err)
	own := [][2]string{{"registry.example/shop/app:2.6.2", "registry.k8s.io/kube-proxy:" + to}, {"registry.example/shop/db:16.4", "registry.k8s.io/pause:3.10.2"}}
	names := []string{shownDigest, digest}
	for i, shown := range []string{"sha256:5b0bcabd1ed22e9fb1310cf6c2dec7cdef19f0ad69efa1f392e94a4333501270", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"} {
		names = append(names, own[i][0], own[i][1], shown, b.Images[own[i][1]])
	}
	must(t, os.WriteFile(filepath.Join(h.dir, "edge-apps.yaml"), []byte(strings.NewReplacer(names...).Replace(string(sample))), 0o644))
	if said := h.types(t, "pin-images.md", 1, "config/samples/pinnedimageset.yaml", "edge-apps.yaml"); !strings.Contains(said, "edge-apps") {
		t.Errorf("the set is not shown: %s", said)
	}
	if said := h.types(t, "pin-images.md", 2); !strings.Contains(said, "reboot, registry down: ") {
		t.Errorf("refit tags check predicts nothing: %s", said)
	}
	said := h.types(t, "prepare-for-power-cuts.md", 1)
	for _, word := range []string{"would recover by itself", "recovered by itself", "0 missing"} {
		if !strings.Contains(said, word) {
			t.Errorf("the drill never printed %q", word)
		}
	}
	for name := range h.s.Needed(b, "n2") {
		if ok, err := h.s.Held(t.Context(), "n2", b, name); err != nil || !ok {
			t.Errorf("n2 does not have %s after its restart: %v", name, err)
		}
	}
}

// configures types configure-nodes.md for a pool with one node.
func (h *howTos) configures(t *testing.T) {
	t.Helper()
	const page = "configure-nodes.md"
	must(t, h.s.Exec(t.Context(), "n3", "useradd", "--create-home", "admin"))
	must(t, h.s.Exec(t.Context(), "n3", "bash", "-c", `printf '#!/bin/sh\nexec sleep infinity\n' > /usr/local/bin/edge-probe && chmod 755 /usr/local/bin/edge-probe`))
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
	pool.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/edge": ""}}
	must(t, h.s.Client.Create(t.Context(), pool))
	node := &corev1.Node{}
	must(t, h.s.Client.Get(t.Context(), client.ObjectKey{Name: "n3"}, node))
	node.Labels["node-role.kubernetes.io/edge"] = ""
	must(t, h.s.Client.Update(t.Context(), node))
	h.types(t, page, 1)
	eventually(t, time.Minute, "the NodeConfig has nodes", func() (bool, string) {
		c := &v1alpha1.NodeConfig{}
		err := h.s.Client.Get(t.Context(), client.ObjectKey{Name: "edge"}, c)
		return err == nil && len(c.Status.Conditions) > 0, fmt.Sprint(c.Status, err)
	})
	if said := h.types(t, page, 2); !strings.Contains(said, "90-edge.conf") {
		t.Errorf("the plan does not name the file: %s", said)
	}
	h.types(t, page, 3)
	if out, err := h.s.Output(t.Context(), "n3", "cat", "/etc/sysctl.d/90-edge.conf"); err != nil || !strings.Contains(out, "somaxconn = 4096") {
		t.Errorf("n3 does not have the file: %v %s", err, out)
	}
	must(t, os.WriteFile(filepath.Join(h.dir, "worker.ign"), []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/issue.net","contents":{"source":"data:,edge"}}]}}`), 0o644))
	if said := h.types(t, page, 4); !strings.Contains(said, "path: /etc/issue.net") {
		t.Errorf("the imported configuration does not have the file: %s", said)
	}
}

// watches types notifications.md, monitoring.md and status-page.md.
func (h *howTos) watches(t *testing.T) {
	t.Helper()
	h.types(t, "boot-images.md", 1)
	h.types(t, "boot-images.md", 2)
	must(t, os.WriteFile(filepath.Join(h.dir, "receivers.yaml"), []byte("receivers:\n- {name: ops, type: webhook, url: \"https://hooks.example.com/refit\", hmacKeyFile: ops.key, caFile: ca.crt}\n"), 0o644))
	authority, err := h.s.Output(t.Context(), "n1", "cat", "/etc/kubernetes/pki/ca.crt")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(h.dir, "ca.crt"), []byte(authority), 0o644))
	h.types(t, "notifications.md", 1)
	secret := &corev1.Secret{}
	must(t, h.s.Client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "refit-notifications"}, secret))
	if len(secret.Data) != 3 {
		t.Errorf("the Secret of the receivers has %d files, want 3", len(secret.Data))
	}
	h.types(t, "status-page.md", 1)
	h.types(t, "status-page.md", 2)
	if token := h.types(t, "status-page.md", 4); strings.Count(token, ".") < 2 {
		t.Errorf("no token for the page: %s", token)
	}
	h.types(t, "monitoring.md", 1)
	prometheus := metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus"}
	must(t, h.s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prometheus.Namespace}}))
	must(t, h.s.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: prometheus}))
	h.types(t, "monitoring.md", 4)
	if token, err := os.ReadFile(filepath.Join(h.dir, "token")); err != nil || strings.Count(string(token), ".") != 2 {
		t.Errorf("no token for Prometheus: %v", err)
	}
	for n, word := range map[int]string{3: "panels", 5: "RefitUpdate"} {
		if said := h.types(t, "monitoring.md", n); !strings.Contains(said, word) {
			t.Errorf("monitoring.md, block %d, does not print %q", n, word)
		}
	}
}

// compareTable wants each typed block in the table, and each block that the table has for this test
// typed.
func (h *howTos) compareTable(t *testing.T) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	for page, row := range howToTable(t) {
		var want []int
		if row.Test == test {
			want = row.Blocks
		}
		have := slices.Sorted(slices.Values(h.typed[page]))
		if !slices.Equal(slices.Compact(have), want) {
			t.Errorf("%s: typed blocks %v, testdata/howtos.yaml has %v", page, have, want)
		}
	}
}

// counts are the typed blocks of each page, and why the others are not.
func (h *howTos) counts(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for page, row := range howToTable(t) {
		reasons := []string{}
		blocks := shellBlocks(t, page)
		for _, b := range blocks {
			if b.untyped != "" {
				reasons = append(reasons, b.untyped)
			}
		}
		if row.Why != "" {
			reasons = append(reasons, row.Why)
		}
		out[page] = map[string]any{"test": row.Test, "blocks": len(blocks), "typed": row.typed(), "notTyped": len(blocks) - row.typed(), "why": reasons}
	}
	return out
}

func howToTable(t *testing.T) map[string]howToRow {
	t.Helper()
	text, err := os.ReadFile("testdata/howtos.yaml")
	must(t, err)
	rows := map[string]howToRow{}
	must(t, yaml.UnmarshalStrict(text, &rows))
	return rows
}
