package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// killsWanted is how many kills TestPowerCuts counts, powerCuts how often it cuts
// the power of each worker.
const (
	killsWanted   = 50
	killsPerLoad  = 8
	powerCutsEach = 2
)

// linePoints are lines of the agent between the first chunk and the last pin at
// which it is killed, and up to how many passes of them it lives through.
var linePoints = map[string]int{
	failpoint.ChunkWritten: 120, failpoint.BlobSync: 20, failpoint.BlobRename: 20, failpoint.PeerFetch: 120,
	failpoint.LoadBlob: 20, failpoint.LoadContent: 3, failpoint.LoadUnpack: 3, failpoint.LoadDone: 3, failpoint.PinLabel: 6, failpoint.PinRecord: 3,
}

// cutPoint is one kill as results/powercuts.json has it.
type cutPoint struct {
	Node string `json:"node"`
	// What was killed, and when.
	Point string `json:"point"`
	// Called are the images that the runtime called present afterwards and that were
	// not evaluated before in this load; all of them were whole.
	Called int `json:"checked"`
	// Waited is how long it then took until every image was pinned, for the last cut of a
	// load. It does not count what was loaded while the images were checked, nor the wait
	// for a failpoint that was not reached.
	Waited float64 `json:"waitedSeconds,omitempty"`
}

// TestPowerCuts kills agent, container runtime and kubelet of a node while it fetches,
// loads and pins, at seeded points, and cuts its power: unwritten data is lost. After each
// restart the node converges, and the runtime calls no damaged image present. GNU tar
// compares the unpacked layers with those of the bundle's file, and SHA-256 checks the
// runtime's own blobs.
func TestPowerCuts(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("fifty kills take long: make e2e")
	}
	seed := uint64(1)
	if v, err := strconv.ParseUint(os.Getenv("REFIT_SEED"), 10, 64); err == nil {
		seed = v
	}
	o := scenario.Options{Name: "powercuts", From: from, To: to, Nodes: 3, Runtime: lab.RuntimeMixed, MediumNode: "n1"}
	withFailpoints(&o)
	s := prepared(t, o)
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, device))
	must(t, s.Approve(ctx, b))
	copied(t, s)
	p := &powerCuts{t: t, s: s, b: b, rand: rand.New(rand.NewPCG(seed, seed)), checker: newImageChecker(t, s, b)}
	report := struct {
		Seed    uint64     `json:"seed"`
		Kills   int        `json:"kills"`
		Cuts    int        `json:"powerCuts"`
		Checked int        `json:"imagesChecked"`
		Torn    int        `json:"imagesNotWhole"`
		Seconds int        `json:"seconds"`
		Points  []cutPoint `json:"points"`
	}{Seed: seed}
	began := time.Now()
	keepResult(t, "powercuts.json", func() any {
		report.Points, report.Kills, report.Cuts, report.Checked, report.Torn = p.points, p.kills, p.cuts, p.checker.checked, p.checker.torn
		report.Seconds = int(time.Since(began).Seconds())
		return report
	})
	workers := s.Lab.Workers()
	for i := range powerCutsEach * len(workers) {
		p.cutPower(workers[i%len(workers)])
	}
	for load := 0; p.kills < killsWanted; load++ {
		if load > killsWanted { // a worker pins few images, so a load has few lines
			t.Fatalf("%d of %d kills after %d loads", p.kills, killsWanted, load)
		}
		p.killWhileLoading(workers[load%len(workers)])
	}
}

type powerCuts struct {
	t           *testing.T
	s           *scenario.Scenario
	b           scenario.Bundle
	rand        *rand.Rand
	checker     *imageChecker
	points      []cutPoint
	kills, cuts int
}

// empty takes off a node what came with the bundle and nothing uses: images, and
// the agent's own copy.
func (p *powerCuts) empty(node string) {
	p.t.Helper()
	ctx := p.t.Context()
	must(p.t, p.s.Exec(ctx, node, "systemctl", "stop", "refit-agent"))
	c, err := p.s.CRI(node)
	must(p.t, err)
	defer c.Close()
	containers, err := c.Containers(ctx)
	must(p.t, err)
	for _, i := range p.images(node) {
		used := slices.ContainsFunc(containers, func(k cri.Container) bool {
			return k.ImageID == i.ID || slices.Contains(i.Digests, k.ImageID) || slices.Contains(i.Tags, k.ImageID)
		})
		ours := slices.ContainsFunc(i.Tags, func(tag string) bool { return p.b.Images[tag] != "" && !strings.Contains(tag, "/pause:") })
		if ours && !used {
			must(p.t, p.s.RemoveImage(ctx, node, i.ID))
		}
	}
	must(p.t, p.s.Exec(ctx, node, "sh", "-c", "rm -rf /var/lib/refit/blobs /var/lib/refit/layers"))
	p.checker.forget()
}

// images waits for a runtime that was killed.
func (p *powerCuts) images(node string) (all []cri.Image) {
	p.t.Helper()
	eventually(p.t, 2*time.Minute, node+" lists its images", func() (bool, string) {
		c, err := p.s.CRI(node)
		if err != nil {
			return false, err.Error()
		}
		defer c.Close()
		all, err = c.Images(p.t.Context())
		return err == nil, fmt.Sprint(err)
	})
	return all
}

// killWhileLoading has a node fetch and load everything, and kills something of it
// again and again on the way.
func (p *powerCuts) killWhileLoading(node string) {
	p.t.Helper()
	ctx := p.t.Context()
	p.empty(node)
	points := p.choose()
	p.arm(node, points[0])
	// Not waited for: an agent that is killed before it is ready fails its start, and is
	// started again by systemd.
	must(p.t, p.s.Exec(ctx, node, "systemctl", "start", "--no-block", "refit-agent"))
	for i, point := range points {
		fired := p.strike(node, point)
		if !fired {
			must(p.t, p.s.Exec(ctx, node, "rm", "-f", "/var/lib/refit/failpoint"))
		}
		if i+1 < len(points) {
			p.arm(node, points[i+1])
		}
		if !fired {
			if n, _ := p.held(node); n == len(p.s.Needed(p.b, node)) {
				break // the load was over before
			}
			continue
		}
		p.kills++
		p.points = append(p.points, cutPoint{Node: node, Point: "kill -9 of " + point, Called: p.checker.node(p.images(node), node)})
	}
	p.converge(node)
}

// choose picks the kills of one load: lines of the agent, and processes at a time.
func (p *powerCuts) choose() (out []string) {
	var lines []string
	for name := range linePoints {
		lines = append(lines, name)
	}
	slices.Sort(lines)
	for range killsPerLoad {
		switch n := p.rand.IntN(10); {
		case n < 6:
			name := lines[p.rand.IntN(len(lines))]
			out = append(out, fmt.Sprintf("the agent at %s:%d", name, 1+p.rand.IntN(linePoints[name])))
		case n < 7:
			out = append(out, fmt.Sprintf("the agent after %d ms", p.rand.IntN(3000)))
		case n < 9:
			out = append(out, fmt.Sprintf("the runtime after %d ms", p.rand.IntN(3000)))
		default:
			out = append(out, fmt.Sprintf("the kubelet after %d ms", p.rand.IntN(3000)))
		}
	}
	return out
}

// arm writes a line's name where the agent looks for it.
func (p *powerCuts) arm(node, point string) {
	p.t.Helper()
	if name, ok := strings.CutPrefix(point, "the agent at "); ok {
		must(p.t, p.s.Lab.WriteFile(p.t.Context(), node, "/var/lib/refit/failpoint", []byte(name+"\n"), 0o600))
	}
}

// lineTime is how long an agent may take to come to a line before that is taken to
// be behind it.
const lineTime = 10 * time.Second

// strike carries a kill out; false if the agent did not come to the line.
func (p *powerCuts) strike(node, point string) bool {
	p.t.Helper()
	ctx := p.t.Context()
	if strings.HasPrefix(point, "the agent at ") {
		for end := time.Now().Add(lineTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			path, err := p.s.Lab.Path(node, "/var/lib/refit/failpoint")
			must(p.t, err)
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				return true
			}
		}
		return false
	}
	who, after, _ := strings.Cut(strings.TrimPrefix(point, "the "), " after ")
	ms, err := strconv.Atoi(strings.TrimSuffix(after, " ms"))
	must(p.t, err)
	time.Sleep(time.Duration(ms) * time.Millisecond) // the seeded point
	unit := map[string]string{"agent": "refit-agent", "runtime": p.s.Lab.Runtime(node), "kubelet": "kubelet"}[who]
	// One that is being restarted has no process to kill: it is waited for.
	eventually(p.t, time.Minute, unit+" of "+node+" is killed", func() (bool, string) {
		err := p.s.Exec(ctx, node, "systemctl", "kill", "--kill-who=main", "-s", "KILL", unit)
		return err == nil, fmt.Sprint(err)
	})
	return true
}

// cutPower cuts a node's power while it loads.
func (p *powerCuts) cutPower(node string) {
	p.t.Helper()
	ctx := p.t.Context()
	p.empty(node)
	must(p.t, p.s.Exec(ctx, node, "systemctl", "start", "refit-agent"))
	wait := time.Duration(500+p.rand.IntN(7000)) * time.Millisecond
	time.Sleep(wait) // the seeded point
	must(p.t, p.s.Lab.CutPower(ctx, node))
	p.cuts++
	p.points = append(p.points, cutPoint{Node: node, Point: fmt.Sprintf("power cut %d ms after the agent began", wait.Milliseconds()), Called: p.checker.node(p.images(node), node)})
	p.converge(node)
}

// converge waits until everything is held and pinned, and evaluates all of it anew.
func (p *powerCuts) converge(node string) {
	p.t.Helper()
	began := time.Now()
	eventually(p.t, 5*time.Minute, node+" holds and pins everything", func() (bool, string) {
		n, err := p.held(node)
		needed := len(p.s.Needed(p.b, node))
		return n == needed, fmt.Sprintf("%d of %d, %v", n, needed, err)
	})
	last := &p.points[len(p.points)-1]
	last.Waited = time.Since(began).Seconds()
	p.checker.forget()
	last.Called += p.checker.node(p.images(node), node)
	eventually(p.t, 3*time.Minute, "the kubelet of "+node+" runs", func() (bool, string) {
		out, err := p.s.Output(p.t.Context(), node, "systemctl", "is-active", "kubelet")
		return err == nil, out
	})
}

// held counts the bundle's images that the node's runtime calls present and pinned.
func (p *powerCuts) held(node string) (n int, err error) {
	c, err := p.s.CRI(node)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	have, err := c.Images(p.t.Context())
	for name, digest := range p.s.Needed(p.b, node) {
		if slices.ContainsFunc(have, func(i cri.Image) bool {
			return i.Pinned && slices.Contains(i.Tags, name) && slices.Contains(i.Digests, name[:strings.LastIndexByte(name, ':')]+"@"+digest)
		}) {
			n++
		}
	}
	return n, err
}

// imageChecker compares what a runtime calls present with the bundle's own file, by
// programs that are not refit's.
type imageChecker struct {
	t             *testing.T
	s             *scenario.Scenario
	b             scenario.Bundle
	layout        string
	done          map[string]bool
	checked, torn int
}

func newImageChecker(t *testing.T, s *scenario.Scenario, b scenario.Bundle) *imageChecker {
	t.Helper()
	j := &imageChecker{t: t, s: s, b: b, layout: s.Path("check"), done: map[string]bool{}}
	must(t, os.MkdirAll(j.layout, 0o755))
	out, err := exec.CommandContext(t.Context(), "tar", "-xf", b.Path, "-C", j.layout).CombinedOutput()
	if err != nil {
		t.Fatalf("unpacking the bundle: %v: %s", err, out)
	}
	return j
}

func (j *imageChecker) forget() { clear(j.done) }

func (j *imageChecker) blob(digest string) string {
	return filepath.Join(j.layout, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
}

// node evaluates what was not evaluated before, and says how much.
func (j *imageChecker) node(have []cri.Image, node string) (called int) {
	j.t.Helper()
	for name, digest := range j.b.Images {
		repository := name[:strings.LastIndexByte(name, ':')]
		present := slices.ContainsFunc(have, func(i cri.Image) bool {
			return slices.Contains(i.Tags, name) && slices.Contains(i.Digests, repository+"@"+digest)
		})
		if !present || j.done[node+name] {
			continue
		}
		j.done[node+name] = true
		called++
		j.checked++
		if wrong := j.image(node, digest); wrong != "" {
			j.torn++
			j.t.Errorf("node %s calls %s present, and it is not whole: %s", node, name, wrong)
		}
	}
	return called
}

type ociManifest struct {
	Manifests []struct{ Digest string }
	Config    struct{ Digest string }
	Layers    []struct{ Digest string }
}

func (j *imageChecker) image(node, digest string) (wrong string) {
	var m ociManifest
	j.read(digest, &m)
	if len(m.Manifests) > 0 {
		j.read(m.Manifests[0].Digest, &m)
	}
	var layers []string
	for _, l := range m.Layers {
		layers = append(layers, l.Digest)
	}
	var dirs []string
	if j.s.Lab.Runtime(node) == lab.RuntimeCRIO {
		dirs = j.crioDirs(node, layers)
	} else {
		for _, d := range append([]string{digest, m.Config.Digest}, layers...) {
			if got := j.sum(node, "/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/"+strings.TrimPrefix(d, "sha256:")); got != d {
				return "blob " + d + " is " + got
			}
		}
		dirs = j.containerdDirs(node, m.Config.Digest)
	}
	if len(dirs) != len(layers) {
		return fmt.Sprintf("%d layers are in %d directories", len(layers), len(dirs))
	}
	for i, dir := range dirs {
		if wrong := j.compare(node, layers[i], dir); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (j *imageChecker) read(digest string, into any) {
	j.t.Helper()
	b, err := os.ReadFile(j.blob(digest))
	must(j.t, err)
	must(j.t, json.Unmarshal(b, into))
}

func (j *imageChecker) sum(node, path string) string {
	at, err := j.s.Lab.Path(node, path)
	must(j.t, err)
	f, err := os.Open(at)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(j.t, err)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// containerdDirs asks ctr where the layers of an image are, the lowest first.
func (j *imageChecker) containerdDirs(node, config string) (dirs []string) {
	var c struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	j.read(config, &c)
	chain := ""
	for _, d := range c.RootFS.DiffIDs {
		if chain == "" {
			chain = d
			continue
		}
		chain = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(chain+" "+d)))
	}
	var out string
	eventually(j.t, 2*time.Minute, "ctr names the layers", func() (bool, string) {
		ctx, cancel := context.WithTimeout(j.t.Context(), 20*time.Second)
		defer cancel()
		_, _ = j.s.Output(ctx, node, "ctr", "-n", "k8s.io", "snapshots", "rm", "check")
		var err error
		out, err = j.s.Output(ctx, node, "ctr", "-n", "k8s.io", "snapshots", "view", "--mounts", "check", chain)
		return err == nil, fmt.Sprint(err)
	})
	_, _ = j.s.Output(j.t.Context(), node, "ctr", "-n", "k8s.io", "snapshots", "rm", "check")
	var mounts []struct {
		Type, Source string
		Options      []string
	}
	must(j.t, json.Unmarshal([]byte(out), &mounts))
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		return []string{mounts[0].Source}
	}
	for _, m := range mounts {
		for _, o := range m.Options {
			if list, ok := strings.CutPrefix(o, "lowerdir="); ok {
				dirs = strings.Split(list, ":")
				slices.Reverse(dirs)
			}
		}
	}
	return dirs
}

// crioDirs reads in the store's records where layers are.
func (j *imageChecker) crioDirs(node string, layers []string) (dirs []string) {
	const store = "/var/lib/containers/storage"
	path, err := j.s.Lab.Path(node, store+"/overlay-layers/layers.json")
	must(j.t, err)
	b, err := os.ReadFile(path)
	must(j.t, err)
	var all []struct {
		ID     string `json:"id"`
		Digest string `json:"compressed-diff-digest"`
	}
	must(j.t, json.Unmarshal(b, &all))
	for _, l := range layers {
		for _, have := range all {
			if have.Digest == l {
				dirs = append(dirs, store+"/overlay/"+have.ID+"/diff")
				break
			}
		}
	}
	return dirs
}

// compare has GNU tar compare a layer of the bundle with a directory. Owners and
// times are not evaluated, nor what the layer removes.
func (j *imageChecker) compare(node, layer, dir string) (wrong string) {
	at, err := j.s.Lab.Path(node, dir)
	must(j.t, err)
	c := exec.CommandContext(j.t.Context(), "tar", "--compare", "-f", j.blob(layer), "-C", at)
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, _ := c.CombinedOutput() // it fails on the smallest difference
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "/.wh.") || strings.Contains(line, ": .wh.") {
			continue
		}
		for _, bad := range []string{"Contents differ", "Size differs", "No such file", "File type differs", "Symlink differs", "Not linked", "Cannot", "Unexpected EOF"} {
			if strings.Contains(line, bad) {
				return "layer " + layer + ": " + strings.TrimSpace(line)
			}
		}
	}
	return ""
}
