package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/test/simhost"
)

// noRegBaseBytes is the size of the base's large layer.
const noRegBaseBytes = 96 << 20

// noRegSeen is what results/osimage-noregistry.json keeps.
type noRegSeen struct {
	Kubernetes string
	// Runtimes of the workers, which put the image together.
	Runtimes map[string]string
	// Base that the stick brought, and what the OSImage said before it did.
	Base      string
	BaseBytes int64
	Waited    string
	Builds    []noRegBuilt
	Moves     []osMoved
	// OutsideRequests left the lab, or asked for the name of an image host; LookUps are
	// those that CRI-O makes by itself for every pull from the node.
	OutsideRequests, LookUps int64
	Steps                    []outcome
}

// noRegBuilt is one build.
type noRegBuilt struct {
	What, Name, Digest string
	// Seconds from the edit to the build's end, and until both workers held the image.
	Seconds, SecondsHeld float64
	// PartsBytes is the Content that went to the nodes, NewBlobs what is in it, BaseLayers
	// those that every node took from its own copy.
	PartsBytes, NewBlobs, BaseLayers int
}

// noRegSite is a site with nothing like a registry.
type noRegSite struct {
	*osSite
	image  v1.Image // the base
	device string
	seen   noRegSeen
}

// TestOSImageWithoutRegistry builds an image from a pool's configuration on a site that
// has no registry, on a base that came on a USB stick. Nodes with containerd and with CRI-O
// assemble it, boot it through libostree, and report its digest. The rollback needs no
// build and no medium.
func TestOSImageWithoutRegistry(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := newNoRegSite(t)
	keepResult(t, "osimage-noregistry.json", func() any {
		w.seen.Kubernetes, w.seen.Moves, w.seen.Steps = from, w.osSite.seen.Moves, played[t.Name()]
		return w.seen
	})
	step(t, "an OSImage whose base no node has waits, and says for what", w.waits)
	step(t, "the base comes on a stick: the image is built, and every worker puts it together", w.comes)
	step(t, "the stick is pulled, and both workers boot the image", w.boots)
	step(t, "one more kernel argument, while the controller is killed and the agents restart", w.again)
	step(t, "refit rollback boots the image before, and builds nothing", w.rolledBack)
	step(t, "no packet left the site, and nothing like a registry is there", w.noRegistryAsked)
}

func newNoRegSite(t *testing.T) *noRegSite {
	t.Helper()
	dir, bootc := osTools(t)
	stock := filepath.Join(dir, "stock")
	simhost.Layout(t, osImage(t, simhost.Node(t, "1", bootc)), stock)
	big := make([]byte, noRegBaseBytes)
	_, err := rand.NewChaCha8([32]byte{3}).Read(big)
	must(t, err)
	w := &noRegSite{osSite: &osSite{bootc: bootc, s: prepared(t, scenario.Options{Name: "noregistry", From: from, To: to, Nodes: 3, MediumNode: "n2", OSImage: stock, Runtime: lab.RuntimeMixed})}}
	w.image = osImage(t, simhost.Node(t, "2", bootc), simhost.Files{"usr/share/base/large": string(big)})
	digest, err := w.image.Digest()
	must(t, err)
	w.base = "registry.example/os/base@" + digest.String()
	w.seen.Base, w.seen.BaseBytes, w.seen.Runtimes = w.base, noRegBaseBytes, map[string]string{}
	ctx := t.Context()
	must(t, w.s.Components(ctx))
	must(t, w.s.Up(ctx))
	b, err := w.s.MakeBundle(ctx, scenario.BundleOptions{File: "refit.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	device, err := w.s.Insert(ctx, w.s.MediumNode, b)
	must(t, err)
	must(t, w.s.Install(ctx, b, device))
	must(t, w.s.Eject(ctx, w.s.MediumNode, device))
	return w
}

// osBundle is a stick with the base and nothing else.
func (w *noRegSite) osBundle(t *testing.T) scenario.Bundle {
	t.Helper()
	ctx := t.Context()
	key, err := w.s.Key(ctx, "keys")
	must(t, err)
	file := w.s.Path("os.tar")
	dir := filepath.Join(t.TempDir(), "base")
	to, err := layout.Write(dir, empty.Index)
	must(t, err)
	must(t, to.AppendImage(w.image, layout.WithAnnotations(map[string]string{ocispec.AnnotationRefName: "registry.example/os/base:2"})))
	r, err := w.s.Run(ctx, "bundle", "create", "--output", file, "--key", key, "--name", "os", "--version", "2.0.0", "oci:"+dir)
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("refit bundle create: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	b, err := w.s.Inspect(ctx, file)
	must(t, err)
	if got := b.Images["registry.example/os/base:2"]; got != digestOf(w.base) {
		t.Fatalf("the bundle has the base as %q, not %s", got, w.base)
	}
	return b
}

// waits: everything is reported, and the base is nowhere.
func (w *noRegSite) waits(t *testing.T) {
	ctx := t.Context()
	plane := metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpExists}
	worker := plane
	worker.Operator = metav1.LabelSelectorOpDoesNotExist
	for _, o := range []client.Object{
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{plane}}}},
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{worker}}, OSImage: osName}},
		&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName}, KernelArguments: []v1alpha1.KernelArgument{"edge.first=1"},
			Units: []v1alpha1.NodeUnit{probe()}}},
		&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: w.base}, Output: v1alpha1.OutputNodes}},
	} {
		must(t, w.s.Client.Create(ctx, o))
	}
	eventually(t, 2*time.Minute, "the OSImage says what it waits for", func() (bool, string) {
		var o v1alpha1.OSImage
		must(t, w.s.Client.Get(ctx, client.ObjectKey{Name: osName}, &o))
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil {
			return false, "nothing yet"
		}
		w.seen.Waited = c.Reason + ": " + c.Message
		return c.Reason == v1alpha1.ReasonOSBaseNotPinned && strings.Contains(c.Message, "insert a bundle that has it"), w.seen.Waited
	})
	if len(w.builds(t)) != 0 {
		t.Error("something was built")
	}
}

func (w *noRegSite) comes(t *testing.T) {
	ctx := t.Context()
	b := w.osBundle(t)
	var err error
	w.device, err = w.s.Insert(ctx, w.s.MediumNode, b)
	must(t, err)
	begin := time.Now()
	must(t, w.s.Approve(ctx, b))
	w.first = w.made(t, "the first image", begin, "")
	for _, n := range osWorkers {
		nu, err := nodeUpdate(t, w.s, n)
		must(t, err)
		w.seen.Runtimes[n] = nu.Status.Observed.RuntimeName
	}
}

// made waits until the pool has another image than before and both workers hold it, and
// checks what it consists of.
func (w *noRegSite) made(t *testing.T, what string, begin time.Time, before string) v1alpha1.OSImagePool {
	t.Helper()
	ctx := t.Context()
	p := w.osSite.image(t, func(p v1alpha1.OSImagePool) bool { return p.State == "Use" && p.Image != before && p.Build == p.Wanted })
	out := noRegBuilt{What: what, Name: p.Build, Digest: digestOf(p.Image), Seconds: time.Since(begin).Seconds()}
	w.osSite.image(t, func(q v1alpha1.OSImagePool) bool { return q.Image == p.Image && q.Prepulled == "2/2" })
	out.SecondsHeld = time.Since(begin).Seconds()
	var build v1alpha1.OSBuild
	must(t, w.s.Client.Get(ctx, client.ObjectKey{Name: p.Build}, &build))
	var c v1alpha1.Content
	must(t, w.s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: build.Status.Parts}, &c))
	m, err := model.ParseImageOverlay(c.Data)
	must(t, err)
	out.PartsBytes, out.NewBlobs = len(c.Data), len(m.Blobs)
	i := slices.IndexFunc(m.Blobs, func(b model.OverlayBlob) bool { return b.Digest == out.Digest })
	if i < 0 || m.Base != digestOf(w.base) {
		t.Fatalf("the Content %s is not about %s: %s of %s", c.Name, out.Digest, m.Digest, m.Base)
	}
	raw, err := m.Blobs[i].Decompress()
	must(t, err)
	var doc v1.Manifest
	must(t, json.Unmarshal(raw, &doc))
	layers, err := w.image.Layers()
	must(t, err)
	for n, l := range layers {
		d, err := l.Digest()
		must(t, err)
		if n < len(doc.Layers) && doc.Layers[n].Digest == d && !m.HasBlob(d.String()) {
			out.BaseLayers++
		}
	}
	if out.BaseLayers != len(layers) || len(doc.Layers) != len(layers)+1 || build.Status.Copied != 0 {
		t.Errorf("%d of %d layers of the base are under one of its own: %+v", out.BaseLayers, len(layers), doc.Layers)
	}
	w.seen.Builds = append(w.seen.Builds, out)
	return p
}

func (w *noRegSite) boots(t *testing.T) {
	must(t, w.s.Eject(t.Context(), w.s.MediumNode, w.device))
	w.moves(t, "from the stock OS to the first image", func(string) expected {
		return expected{digest: digestOf(w.first.Image), kargs: []string{"edge.first=1"}, os: "Simulated OS 2", restarted: true}
	})
	for _, n := range osWorkers {
		if got := w.run(t, n, "systemctl", "is-active", osProbe); got != "active" {
			t.Errorf("%s on %s is %s", osProbe, n, got)
		}
	}
}

// again repeats it without the medium, and kills the programs that work on it.
func (w *noRegSite) again(t *testing.T) {
	begin := time.Now()
	w.edit(t, func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = append(s.KernelArguments, "edge.second=2") })
	must(t, w.s.KillController(t.Context()))
	for _, n := range osWorkers {
		w.run(t, n, "systemctl", "kill", "--signal=KILL", "refit-agent")
	}
	w.second = w.made(t, "one more kernel argument", begin, w.first.Image)
	w.moves(t, "one more kernel argument", func(string) expected {
		return expected{digest: digestOf(w.second.Image), kargs: []string{"edge.first=1", "edge.second=2"}, os: "Simulated OS 2", restarted: true}
	})
}

func (w *noRegSite) noRegistryAsked(t *testing.T) {
	out, err := w.s.Outside(t.Context())
	must(t, err)
	w.seen.OutsideRequests, w.seen.LookUps = out.Requests, out.LookUps
	if out.Requests != 0 {
		t.Errorf("%d requests left the lab: %+v", out.Requests, out.Details)
	}
	for _, n := range w.s.Lab.Nodes() {
		nothingLikeARegistry(t, w.s, n)
	}
	// What each worker would start from if its runtime's store were lost: all of it.
	for _, n := range osWorkers {
		nu, err := nodeUpdate(t, w.s, n)
		must(t, err)
		if c := nu.Status.ColdStart; c == nil || len(c.Without) != 0 || c.Missing != 0 {
			t.Errorf("node %s has no copy of all that it holds: %+v", n, c)
		}
	}
}
