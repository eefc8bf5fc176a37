package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry/registrytest"
	"github.com/refit-dev/refit/test/simhost"
)

const (
	osName = "edge" // OSImage, pool and NodeConfig
	// osBaseBytes is the size of the base's large layer.
	osBaseBytes = 500 << 20
	osPort      = "5000"
	osProbe     = "edge-probe.service"
	osProbeFile = "/etc/edge/probe.conf"
)

// osWorkers boot OS images.
var osWorkers = []string{"n2", "n3"}

// osSeen is what results/osimage.json keeps.
type osSeen struct {
	Kubernetes string
	Driver     string // by which the workers' OS is moved, as they say
	BaseBytes  int64
	// Builds in the order in which they were made.
	Builds []osBuilt
	// Moves are what became of the nodes.
	Moves []osMoved
	Steps []outcome
}

// osBuilt is one build of an image.
type osBuilt struct {
	What, Name, Digest string
	// Seconds from the edit to the OSBuild having succeeded, as a watcher of the API
	// sees it, and those between its own start and end.
	Seconds      float64
	OwnSeconds   float64
	CopiedBytes  int64
	BaseReads    int // requests for the bytes of the base's layers, while it was made
	BaseMounts   int // layers that the registry took from the base's repository
	UploadedBlob int // blobs that were uploaded: configuration and layer
}

// osMoved is one worker before and after a move.
type osMoved struct {
	What, Node                  string
	Restarted, Cordoned         bool
	PodsReplaced                int
	BootedBefore, Booted        string // digests as the host says them
	KernelArguments, KubeletOS  string
	Wanted                      string
	Passed                      bool
	OSBuilds, RegistryWrites    int // that were made for it
	SecondsFromApplyToEverybody float64
}

// osSite is a lab whose workers boot OS images, with a registry on the address of n1.
type osSite struct {
	s        *scenario.Scenario
	bundle   scenario.Bundle // with refit's own image, not approved
	registry *registrytest.Server
	address  string       // of the registry, as nodes, pods and the controller know it
	door     net.Listener // at that address, in the network of n1
	bootc    string
	layers   []string // digests of the base's layers
	base     string   // reference by digest
	first    v1alpha1.OSImagePool
	second   v1alpha1.OSImagePool
	seen     osSeen
}

// TestOSImage builds a pool's configuration into an image, on nodes that libostree boots.
// A change that needs only a reload drains no node. A kernel argument becomes a layer on a
// base that refit does not read; the nodes boot it one by one and report its digest. A
// rollback builds nothing, and a canary that fails rolls back by itself.
func TestOSImage(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := newOSSite(t)
	w.keep(t)
	step(t, "an image is built, and the stock OS of both workers gives way to it", w.adopted)
	step(t, "a change that needs a reload only: no node is drained, nothing restarts", w.reloaded)
	step(t, "a kernel argument is built into an image, and booted", w.argument)
	step(t, "refit rollback boots the image before, and builds nothing", w.rolledBack)
	step(t, "reverting the object is the same image again, and drains no node", w.reverted)
	step(t, "a canary that fails rolls back by itself, and the other worker is not started", w.canary)
}

// newOSSite makes the lab with refit installed, and the registry with the base.
func newOSSite(t *testing.T) *osSite {
	t.Helper()
	w := startDeployedSite(t, scenario.Options{Name: "osimage", Nodes: 3})
	for _, n := range osWorkers {
		if got := w.kubeletOS(t, n); got != "Simulated OS 1" {
			t.Fatalf("node %s runs %q, not the stock OS", n, got)
		}
	}
	big := simhost.Files{}
	random := rand.NewChaCha8([32]byte{2})
	for i := range 50 {
		data := make([]byte, osBaseBytes/50)
		_, err := random.Read(data)
		must(t, err)
		big[fmt.Sprintf("usr/share/base/%02d", i)] = string(data)
	}
	w.base = w.push(t, "os/base", osImage(t, simhost.Node(t, "2", w.bootc), big))
	w.seen.BaseBytes = osBaseBytes
	return w
}

// osTools is a folder for images, with the bootc look-alike.
func osTools(t *testing.T) (dir, bootc string) {
	t.Helper()
	simhost.Needs(t)
	dir, err := os.MkdirTemp("/var/tmp", "refit-osimage-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	bootc, err = simhost.Lookalike(dir)
	must(t, err)
	return dir, bootc
}

// startOSSite makes a lab with refit installed and a registry. Kubernetes stays at one release.
func startOSSite(t *testing.T, o scenario.Options) *osSite {
	t.Helper()
	if o.From == "" {
		o.From, o.To = from, to
	}
	o.MediumNode = fmt.Sprintf("n%d", min(2, o.Nodes))
	w := &osSite{s: prepared(t, o)}
	ctx := t.Context()
	must(t, w.s.Components(ctx))
	must(t, w.s.Up(ctx))
	b, err := w.s.MakeBundle(ctx, scenario.BundleOptions{File: "refit.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	dev, err := w.s.Insert(ctx, w.s.MediumNode, b)
	must(t, err)
	must(t, w.s.Install(ctx, b, dev))
	must(t, w.s.Eject(ctx, w.s.MediumNode, dev))
	w.bundle = b
	w.serve(t)
	return w
}

// startDeployedSite is startOSSite with nodes that are installed with an OS image, version 1.
func startDeployedSite(t *testing.T, o scenario.Options) *osSite {
	t.Helper()
	dir, bootc := osTools(t)
	o.OSImage = filepath.Join(dir, "stock")
	simhost.Layout(t, osImage(t, simhost.Node(t, "1", bootc)), o.OSImage)
	w := startOSSite(t, o)
	w.bootc = bootc
	return w
}

// approves lets all nodes hold refit's own image. Before, only the node with the medium has it: while that
// node is off, no controller runs, and none notices that it is off.
func (w *osSite) approves(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var dev string
	eventually(t, 2*time.Minute, "the medium is plugged in again", func() (bool, string) {
		var err error // as long as the agent reads what was ejected, its device is there
		dev, err = w.s.Insert(ctx, w.s.MediumNode, w.bundle)
		return err == nil, fmt.Sprint(err)
	})
	must(t, w.s.Approve(ctx, w.bundle))
	for _, n := range w.s.Lab.Nodes() {
		for image := range w.bundle.Images {
			eventually(t, 4*time.Minute, n+" holds "+image, func() (bool, string) {
				held, err := w.s.Held(ctx, n, w.bundle, image)
				return held && err == nil, fmt.Sprint(held, err)
			})
		}
	}
	must(t, w.s.Eject(ctx, w.s.MediumNode, dev))
}

// goodAndBad pushes an image with which nodes come up, version 2, and one with which the kubelet does
// not start, version 3.
func (w *osSite) goodAndBad(t *testing.T) (good, bad string) {
	t.Helper()
	good = w.push(t, "os/good", osImage(t, simhost.Node(t, "2", w.bootc)))
	bad = w.push(t, "os/bad", osImage(t, simhost.Node(t, "3", w.bootc).With(simhost.Files{
		"usr/lib/systemd/system/kubelet.service.d/99-bad.conf": "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=" + osBadFlag + "\n"})))
	return good, bad
}

// osImage is an image of plain layers: what is large and random does not shrink. The machine
// whose programs the nodes have brings the parts that the image does not have.
func osImage(t *testing.T, layers ...simhost.Files) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{Labels: map[string]string{
		osimage.LabelBootc: "1", osimage.LabelHostProvides: "kubelet,runtime,refit-agent,systemd,initramfs"}}})
	must(t, err)
	for _, l := range layers {
		img, err = mutate.AppendLayers(img, static.NewLayer(l.Tar(t), types.OCIUncompressedLayer))
		must(t, err)
	}
	return img
}

// serve opens the registry's door: the address of n1, so nodes, pods and the controller reach it by
// one name.
func (w *osSite) serve(t *testing.T) {
	t.Helper()
	w.registry = registrytest.Start(t)
	w.address = net.JoinHostPort(w.s.Lab.Address("n1"), osPort)
	w.listen(t)
	t.Cleanup(func() { w.door.Close() }) // a step ends before the site does
	// The site says to its container runtimes that this registry has no TLS.
	dir := "/etc/containerd/certs.d/" + w.address
	for _, n := range w.s.Lab.Nodes() {
		w.run(t, n, "mkdir", "-p", dir)
		must(t, w.s.Lab.WriteFile(t.Context(), n, dir+"/hosts.toml", []byte("server = \"http://"+w.address+"\"\n"), 0o644))
	}
}

// listen passes connections of this boot of n1 to the registry.
func (w *osSite) listen(t *testing.T) {
	t.Helper()
	l, err := w.s.Lab.Listen(t.Context(), "n1", "tcp", w.address)
	must(t, err)
	if w.door != nil {
		w.door.Close() // of an earlier boot
	}
	w.door = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go passOn(c, w.registry.Addr)
		}
	}()
}

// requests that the registry got since it was asked last; none if there is no registry.
func (w *osSite) requests() []registrytest.Request {
	if w.registry == nil {
		return nil
	}
	return w.registry.Requests()
}

// push uploads an image and gives its reference by digest.
func (w *osSite) push(t *testing.T, repository string, img v1.Image) string {
	t.Helper()
	to, err := name.ParseReference(w.registry.Ref(repository+":latest"), name.Insecure)
	must(t, err)
	must(t, remote.Write(to, img))
	layers, err := img.Layers()
	must(t, err)
	w.layers = nil
	for _, l := range layers {
		d, err := l.Digest()
		must(t, err)
		w.layers = append(w.layers, d.String())
	}
	digest, err := img.Digest()
	must(t, err)
	return w.address + "/" + repository + "@" + digest.String()
}

func (w *osSite) keep(t *testing.T) {
	keepResult(t, "osimage.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = from, played[t.Name()]
		return w.seen
	})
}

// kubeletOS is the OS that the kubelet reports.
func (w *osSite) kubeletOS(t *testing.T, node string) string {
	t.Helper()
	var n corev1.Node
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &n))
	return n.Status.NodeInfo.OSImage
}

func (w *osSite) run(t *testing.T, node string, argv ...string) string {
	t.Helper()
	out, err := w.s.Output(t.Context(), node, argv...)
	must(t, err)
	return strings.TrimSpace(out)
}

// booted is the digest that the host itself says it has booted.
func (w *osSite) booted(t *testing.T, node string) string {
	t.Helper()
	var v struct {
		Status struct {
			Booted struct {
				Image struct {
					Digest string `json:"imageDigest"`
				} `json:"image"`
			} `json:"booted"`
		} `json:"status"`
	}
	must(t, json.Unmarshal([]byte(w.run(t, node, "env", "-u", "container", "bootc", "status", "--json")), &v))
	return v.Status.Booted.Image.Digest
}

// probe is a unit that counts how often it was reloaded.
func probe() v1alpha1.NodeUnit {
	return v1alpha1.NodeUnit{Name: osProbe, State: "enabled", Contents: "[Unit]\nDescription=a unit of a NodeConfig\n[Service]\n" +
		"ExecStart=/usr/bin/sleep infinity\nExecReload=/bin/sh -c 'cat " + osProbeFile + " >> /run/edge-probe.reloads'\n[Install]\nWantedBy=multi-user.target\n"}
}

// adopted: the pool gets an OSImage. What it is made of is not read.
func (w *osSite) adopted(t *testing.T) {
	ctx := t.Context()
	canary := &v1alpha1.Canary{Nodes: intstr.FromInt32(1)}
	plane := metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpExists}
	worker := plane
	worker.Operator = metav1.LabelSelectorOpDoesNotExist
	w.registry.Requests() // those of the push
	begin := time.Now()
	for _, o := range []client.Object{
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{plane}}}},
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{worker}},
			OSImage: osName, Canary: canary, OnFailure: v1alpha1.FailureUndo,
			Disruption: []v1alpha1.DisruptionRule{{Files: []string{osProbeFile}, Actions: []v1alpha1.DisruptionAction{{Type: "Reload", Unit: osProbe}}}}}},
		&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName}, KernelArguments: []v1alpha1.KernelArgument{"edge.first=1"},
			Units: []v1alpha1.NodeUnit{probe()}}},
		&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: w.base}, Repository: w.address + "/os/edge"}},
	} {
		must(t, w.s.Client.Create(ctx, o))
	}
	w.first = w.built(t, "the first image", begin, "")
	w.moves(t, "from the stock OS to the first image", func(node string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2", restarted: true}
	})
	for _, n := range osWorkers {
		if got := w.run(t, n, "systemctl", "is-active", osProbe); got != "active" {
			t.Errorf("%s on %s is %s", osProbe, n, got)
		}
		if got := w.run(t, n, "cat", "/usr/lib/bootc/kargs.d/10-refit.toml"); !strings.Contains(got, "edge.first=1") {
			t.Errorf("the image on %s brings %q", n, got)
		}
	}
	nu, err := nodeUpdate(t, w.s, "n2")
	must(t, err)
	w.seen.Driver = nu.Status.Observed.Fields["os/driver"]
}

// built waits for the pool's image to be another than before, and checks what the
// build cost: of the base only the manifest and the configuration. From the image's own repository
// the gate and the nodes read the layers later.
func (w *osSite) built(t *testing.T, what string, begin time.Time, before string) v1alpha1.OSImagePool {
	t.Helper()
	p := w.image(t, func(p v1alpha1.OSImagePool) bool { return p.State == "Use" && p.Image != before && p.Build == p.Wanted })
	var b v1alpha1.OSBuild
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: p.Build}, &b))
	at := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BuildSucceeded)
	if at == nil || b.Status.FinishedAt == nil {
		t.Fatalf("OSBuild %s: %+v", b.Name, b.Status)
	}
	out := osBuilt{What: what, Name: b.Name, Digest: b.Status.Digest, Seconds: time.Since(begin).Seconds(), OwnSeconds: b.Status.FinishedAt.Sub(b.Status.StartedAt.Time).Seconds(), CopiedBytes: b.Status.Copied}
	for _, r := range w.registry.Requests() {
		u, err := url.Parse(r.Path)
		must(t, err)
		of := slices.ContainsFunc(w.layers, func(d string) bool { return strings.HasSuffix(u.Path, "/os/base/blobs/"+d) })
		switch {
		case of && r.Method == http.MethodGet:
			out.BaseReads++
		case r.Method == http.MethodPost && u.Query().Get("mount") != "" && r.Status == "201":
			out.BaseMounts++
		case r.Method == http.MethodPut && strings.Contains(u.Path, "/blobs/uploads/"):
			out.UploadedBlob++
		}
	}
	w.seen.Builds = append(w.seen.Builds, out)
	mounts := len(w.layers)
	if before != "" {
		mounts = 0 // the repository has them since the first build
	}
	if out.BaseReads != 0 || out.CopiedBytes != 0 || out.BaseMounts != mounts || b.Spec.Builder != "Append" {
		t.Errorf("the base was read or copied, or its layers were not mounted: %+v, builder %s (%s)", out, b.Spec.Builder, b.Spec.BuilderWhy)
	}
	return p
}

// image waits until what the pool has of the OSImage is as it is to be.
func (w *osSite) image(t *testing.T, is func(v1alpha1.OSImagePool) bool) (found v1alpha1.OSImagePool) {
	t.Helper()
	limit := time.Now().Add(3 * time.Minute)
	for said := ""; time.Now().Before(limit); time.Sleep(50 * time.Millisecond) { // its time is a result
		var o v1alpha1.OSImage
		must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &o))
		if o.Status.ObservedGeneration != o.Generation || len(o.Status.Pools) != 1 {
			continue
		}
		if is(o.Status.Pools[0]) {
			return o.Status.Pools[0]
		}
		if now := fmt.Sprintf("%+v %+v", o.Status.Pools[0], o.Status.Conditions); now != said {
			said = now
			t.Log(said)
		}
	}
	t.Fatal("the OSImage does not come to be as it should within three minutes")
	return found
}

// edit changes the NodeConfig.
func (w *osSite) edit(t *testing.T, change func(*v1alpha1.NodeConfigSpec)) {
	t.Helper()
	var c v1alpha1.NodeConfig
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &c))
	change(&c.Spec)
	must(t, w.s.Client.Update(t.Context(), &c))
}

// waiting until the nodes are known not to be as the NodeConfig wants.
func (w *osSite) waiting(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, "the workers are not as wanted", func() (bool, string) {
		var c v1alpha1.NodeConfig
		if err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &c); err != nil {
			return false, err.Error()
		}
		return c.Status.ObservedGeneration == c.Generation && c.Status.Current < c.Status.Nodes, fmt.Sprintf("%+v", c.Status)
	})
}

// plan makes the update, and waits until it may start.
func (w *osSite) plan(t *testing.T, argv ...string) {
	t.Helper()
	r, err := w.s.Run(t.Context(), append([]string{"plan", "--wait", "--timeout", "5m"}, argv...)...)
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("plan: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	t.Log(r.Stdout)
}

// expected of a worker after a move.
type expected struct {
	digest    string
	kargs     []string
	os        string
	restarted bool
}

// moves plans and applies what the NodeConfig wants, watches the workers meanwhile, and
// compares what they say themselves.
func (w *osSite) moves(t *testing.T, what string, want func(node string) expected) {
	t.Helper()
	w.waiting(t)
	before := w.watch(t)
	builds := w.builds(t)
	w.requests()
	begin := time.Now()
	w.plan(t)
	must(t, w.s.Apply(t.Context()))
	w.compare(t, what, before, want, time.Since(begin), len(w.builds(t))-len(builds))
}

// watched are the workers as they were, and whether one was cordoned since.
type watched struct {
	boot, digest map[string]string
	pods         map[string]map[string]bool
	cordoned     func() map[string]bool
}

func (w *osSite) watch(t *testing.T) watched {
	t.Helper()
	out := watched{boot: map[string]string{}, digest: map[string]string{}, pods: map[string]map[string]bool{}}
	for _, n := range osWorkers {
		out.boot[n], out.digest[n], out.pods[n] = w.run(t, n, "cat", "/proc/sys/kernel/random/boot_id"), w.booted(t, n), w.pods(t, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			var l corev1.NodeList
			if w.s.Client.List(ctx, &l) != nil {
				continue // nothing can be cordoned either
			}
			for i := range l.Items {
				if l.Items[i].Spec.Unschedulable {
					seen[l.Items[i].Name] = true
				}
			}
		}
	}()
	out.cordoned = func() map[string]bool { cancel(); <-ended; return seen }
	t.Cleanup(cancel)
	return out
}

// pods of a node by their UID and how often their containers were restarted.
func (w *osSite) pods(t *testing.T, node string) map[string]bool {
	t.Helper()
	var l corev1.PodList
	must(t, w.s.Client.List(t.Context(), &l, client.MatchingFields{"spec.nodeName": node}))
	out := map[string]bool{}
	for i := range l.Items {
		var restarts int32
		for _, c := range l.Items[i].Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		out[fmt.Sprint(l.Items[i].UID, " ", restarts)] = true
	}
	return out
}

func (w *osSite) builds(t *testing.T) []v1alpha1.OSBuild {
	t.Helper()
	var l v1alpha1.OSBuildList
	must(t, w.s.Client.List(t.Context(), &l))
	return l.Items
}

func (w *osSite) compare(t *testing.T, what string, before watched, want func(node string) expected, took time.Duration, builds int) {
	t.Helper()
	cordoned := before.cordoned()
	writes := 0
	for _, r := range w.requests() {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			writes++
		}
	}
	for _, n := range osWorkers {
		x := want(n)
		now, pods := w.booted(t, n), w.pods(t, n)
		m := osMoved{What: what, Node: n, Restarted: w.run(t, n, "cat", "/proc/sys/kernel/random/boot_id") != before.boot[n], Cordoned: cordoned[n],
			BootedBefore: before.digest[n], Booted: now, KernelArguments: w.run(t, n, "cat", "/proc/cmdline"), KubeletOS: w.kubeletOS(t, n),
			OSBuilds: builds, RegistryWrites: writes, SecondsFromApplyToEverybody: took.Seconds(), Wanted: fmt.Sprintf("%+v", x)}
		for p := range before.pods[n] {
			if !pods[p] {
				m.PodsReplaced++
			}
		}
		m.Passed = x.holds(m) && w.reports(t, n, x.digest) == x.digest
		w.seen.Moves = append(w.seen.Moves, m)
		if !m.Passed {
			t.Errorf("%s: %+v", what, m)
		}
	}
}

// reports is the digest that the agent reports.
func (w *osSite) reports(t *testing.T, node, want string) (digest string) {
	t.Helper()
	eventually(t, 3*time.Minute, "node "+node+" reports what it has booted", func() (bool, string) {
		nu, err := nodeUpdate(t, w.s, node)
		if err != nil || nu.Status.Observed == nil {
			return false, fmt.Sprint("nothing observed, ", err)
		}
		digest = nu.Status.Observed.Fields[model.FieldOSImage]
		return digest == want, digest
	})
	return digest
}

// holds reports whether a node is as it is to be: without a restart nothing else may
// have happened to it either.
func (x expected) holds(m osMoved) bool {
	have := strings.Fields(m.KernelArguments)
	for _, a := range have {
		if strings.HasPrefix(a, "edge.") && !slices.Contains(x.kargs, a) {
			return false
		}
	}
	for _, a := range append([]string{"root=LABEL=lab"}, x.kargs...) { // the machine's own stay
		if !slices.Contains(have, a) {
			return false
		}
	}
	quiet := !m.Restarted && !m.Cordoned && m.PodsReplaced == 0
	return m.Booted == x.digest && m.KubeletOS == x.os && m.Restarted == x.restarted && (x.restarted || quiet)
}

func digestOf(image string) string { _, d, _ := strings.Cut(image, "@"); return d }

// reloaded: a file whose rule is a reload.
func (w *osSite) reloaded(t *testing.T) {
	pids, reloads := map[string]string{}, map[string]string{}
	for _, n := range osWorkers {
		pids[n] = w.run(t, n, "systemctl", "show", "--property=MainPID", "--value", osProbe)
		reloads[n] = w.run(t, n, "sh", "-c", "cat /run/edge-probe.reloads 2>/dev/null || true")
	}
	text := "two\n"
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) {
		s.Files = []v1alpha1.NodeFile{{Path: osProbeFile, Contents: &v1alpha1.FileContents{Inline: &text}}}
	})
	p := w.image(t, func(p v1alpha1.OSImagePool) bool {
		return p.State == "Keep" && strings.Contains(p.Message, osProbeFile)
	})
	t.Log(p.Message)
	if p.Image != w.first.Image || len(w.builds(t)) != 1 {
		t.Errorf("something was built: %+v", p)
	}
	w.moves(t, "a reload", func(string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2"}
	})
	for _, n := range osWorkers {
		if got := w.run(t, n, "cat", osProbeFile); got != "two" {
			t.Errorf("%s on %s is %q", osProbeFile, n, got)
		}
		if got := w.run(t, n, "cat", "/run/edge-probe.reloads"); got != strings.TrimSpace(reloads[n]+"\ntwo") {
			t.Errorf("%s on %s was reloaded with %q, before with %q", osProbe, n, got, reloads[n])
		}
		if got := w.run(t, n, "systemctl", "show", "--property=MainPID", "--value", osProbe); got != pids[n] {
			t.Errorf("%s on %s was restarted", osProbe, n)
		}
	}
}

func (w *osSite) argument(t *testing.T) {
	w.registry.Requests()
	begin := time.Now()
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = append(s.KernelArguments, "edge.second=2") })
	w.second = w.built(t, "one more kernel argument", begin, w.first.Image)
	w.moves(t, "one more kernel argument", func(string) expected {
		return expected{digest: digestOf(w.second.Image), kargs: []string{"edge.first=1", "edge.second=2"}, os: "Simulated OS 2", restarted: true}
	})
}

// rolledBack requests the previous image, against what the NodeConfig asks for.
func (w *osSite) rolledBack(t *testing.T) {
	before, builds := w.watch(t), len(w.builds(t))
	w.requests()
	begin := time.Now()
	r, err := w.s.Run(t.Context(), "rollback", "--pool", osName, "--wait", "--timeout", "5m")
	must(t, err)
	if r.Code != 0 || !strings.Contains(r.Stderr, w.first.Build) || !strings.Contains(r.Stdout, "os/image") {
		t.Fatalf("refit rollback: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if p := w.image(t, func(p v1alpha1.OSImagePool) bool { return p.Build == w.first.Build }); p.Image != w.first.Image || p.Wanted != w.second.Build {
		t.Errorf("%+v, and not held on build %s with %s", p, w.first.Build, w.first.Image)
	}
	must(t, w.s.Apply(t.Context()))
	w.compare(t, "refit rollback", before, func(string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2", restarted: true}
	}, time.Since(begin), len(w.builds(t))-builds)
	for _, m := range w.seen.Moves[len(w.seen.Moves)-len(osWorkers):] {
		if m.OSBuilds != 0 || m.RegistryWrites != 0 {
			t.Errorf("the rollback built an image: %+v", m)
		}
	}
}

// reverted: the NodeConfig as it was. The pool follows it again, and everybody is there.
func (w *osSite) reverted(t *testing.T) {
	before, builds := w.watch(t), len(w.builds(t))
	w.registry.Requests()
	begin := time.Now()
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments, s.Files = s.KernelArguments[:1], nil })
	r, err := w.s.Run(t.Context(), "rollback", "--pool", osName, "--follow")
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("refit rollback --follow: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	p := w.image(t, func(p v1alpha1.OSImagePool) bool { return p.State == "Use" && p.Build == p.Wanted })
	if p.Build != w.first.Build || p.Image != w.first.Image {
		t.Errorf("%+v, and not build %s with %s", p, w.first.Build, w.first.Image)
	}
	eventually(t, 2*time.Minute, "all workers are as wanted", func() (bool, string) {
		var c v1alpha1.NodeConfig
		err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &c)
		return err == nil && c.Status.ObservedGeneration == c.Generation && c.Status.Nodes == 2 && c.Status.Current == 2, fmt.Sprintf("%+v", c.Status)
	})
	w.compare(t, "reverted", before, func(string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2"}
	}, time.Since(begin), len(w.builds(t))-builds)
}

// canary: an image that another user made brings other kernel arguments than the pool
// wants, and so takes away those. The first worker boots it, sees that, and rolls back.
func (w *osSite) canary(t *testing.T) {
	bad := w.push(t, "os/bad", osImage(t, simhost.Node(t, "3", w.bootc).With(simhost.Files{"usr/lib/bootc/kargs.d/10-other.toml": "kargs = [\"edge.other=3\"]\n"})))
	var o v1alpha1.OSImage
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &o))
	o.Spec = v1alpha1.OSImageSpec{Image: bad}
	must(t, w.s.Client.Update(t.Context(), &o))
	w.image(t, func(p v1alpha1.OSImagePool) bool { return p.Image == bad })
	w.waiting(t)
	before := w.watch(t)
	w.registry.Requests() // those of the push
	begin := time.Now()
	w.plan(t)
	r, err := w.s.Run(t.Context(), "apply", "--yes", "--timeout", "15m")
	must(t, err)
	if r.Code != 5 {
		t.Fatalf("refit apply: exit code %d, want 5 for failed and halted:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	failed := w.undone(t)
	w.compare(t, "a canary that fails", before, func(n string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2", restarted: n == failed}
	}, time.Since(begin), 0)
	eventually(t, 2*time.Minute, "it takes pods again", func() (bool, string) {
		var n corev1.Node
		err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: failed}, &n)
		return err == nil && !n.Spec.Unschedulable, fmt.Sprintf("unschedulable %v, %v", n.Spec.Unschedulable, err)
	})
	v, _ := status(t, w.s)
	said, err := json.Marshal(v)
	must(t, err)
	if !strings.Contains(string(said), "the kernel runs without edge.first=1") {
		t.Errorf("refit status does not say why: %s", said)
	}
}

// undone waits until the canary has rolled back, and returns its name.
func (w *osSite) undone(t *testing.T) (node string) {
	t.Helper()
	eventually(t, 5*time.Minute, "the canary has rolled back", func() (bool, string) {
		said := ""
		for _, n := range osWorkers {
			nu, err := nodeUpdate(t, w.s, n)
			if err != nil {
				return false, err.Error()
			}
			if nu.Status.Run == nil {
				continue
			}
			said += fmt.Sprintf("%s %s %s: %s; ", n, nu.Status.Run.State, nu.Status.Run.Reason, nu.Status.Run.Message)
			if nu.Status.Run.State == v1alpha1.RunUndone {
				node = n
			}
		}
		return node != "", said
	})
	return node
}
