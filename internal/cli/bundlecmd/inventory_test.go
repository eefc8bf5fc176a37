package bundlecmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
)

// newSources make the bundle "new" of deltaSite.
const newSources = " --key keys/refit.key oci:layout payload:kubelet@v1.36.3=kubelet"

// line runs a command line.
func line(t *testing.T, s string) string {
	t.Helper()
	return must(t, strings.Fields(s)...)
}

// sameFile compares a restored bundle with the one that was made in full.
func sameFile(t *testing.T, full, restored string) {
	t.Helper()
	want, err := os.ReadFile(full)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(restored)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, %s has %d: %v", restored, len(got), full, len(want), err)
	}
}

func TestInventoryAndBack(t *testing.T) {
	digest := deltaSite(t)
	line(t, "inventory --bundle old --key keys/refit.key --output site.inventory")
	r := refit(t, strings.Fields("bundle create --have site.inventory --pub keys/refit.pub --output h"+newSources)...)
	if r.code != console.ExitOK || strings.TrimSpace(r.out) != digest {
		t.Fatalf("exit %d, %s %s, want %s", r.code, r.out, r.err, digest)
	}
	for _, want := range []string{"kubernetes 1.36.2 has ", "left out: registry.example/app:1", "needs kubernetes 1.36.2 (sha256:"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q is not in %s", want, r.err)
		}
	}
	if got := strings.TrimSpace(line(t, "bundle restore --base old h --output again --pub keys/refit.pub --digest "+digest)); got != digest {
		t.Errorf("restored %s, want %s", got, digest)
	}
	sameFile(t, "new", "again")
	if left, _ := filepath.Glob("h?*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	var v deltaView
	if err := json.Unmarshal([]byte(line(t, "bundle inspect h -o json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Target.Digest != digest || v.Images[0].DeltaSize != 0 || v.Images[0].New != 0 || v.Payloads[0].New != 1 || v.Payloads[0].DeltaSize == 0 {
		t.Errorf("inspect: %+v", v)
	}
	if out := line(t, "bundle verify h --pub keys/refit.pub"); !strings.Contains(out, "needs base "+v.Base) {
		t.Error(out)
	}
	if out := line(t, "bundle inspect h"); !strings.Contains(out, v.Base) {
		t.Error(out)
	}
}

// An inventory is the same each time, names no image and no file, and says that it is unsigned.
func TestInventoryOfBundles(t *testing.T) {
	deltaSite(t)
	first := refit(t, strings.Fields("inventory --bundle old --bundle new")...)
	if first.code != console.ExitOK || !strings.Contains(first.err, "unsigned") || !strings.Contains(first.err, "kubernetes 1.36.2 sha256:") {
		t.Fatalf("exit %d: %s", first.code, first.err)
	}
	line(t, "inventory --bundle new --bundle old --bundle new --output site.inventory")
	second, err := os.ReadFile("site.inventory")
	if err != nil || string(second) != first.out {
		t.Errorf("another inventory of the same bundles: %v", err)
	}
	for _, name := range []string{"registry.example", "keys", "layout", filepath.Dir(t.TempDir())} {
		if strings.Contains(first.out, name) {
			t.Errorf("%s is in %s", name, first.out)
		}
	}
	r := refit(t, strings.Fields("bundle create --have site.inventory --output h"+newSources)...)
	if r.code != console.ExitOK || !strings.Contains(r.err, "is not verified") || !strings.Contains(r.err, "kubernetes 1.36.3 has ") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	line(t, "bundle restore --base new h --output again") // the new bundle itself saves most
	sameFile(t, "new", "again")
}

func TestInventoryErrors(t *testing.T) {
	deltaSite(t)
	line(t, "keys generate --out other")
	line(t, "inventory --bundle old --key keys/refit.key --output signed")
	line(t, "inventory --bundle old --output unsigned")
	line(t, "bundle create --unsigned --output far --name far --version 1.0.0 payload:file.x=keys/refit.pub")
	line(t, "inventory --bundle far --output far.inventory")
	write := func(name string, b []byte) {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("signed")
	if err != nil {
		t.Fatal(err)
	}
	write("tampered", bytes.Replace(b, []byte(`"size":`), []byte(`"size":1`), 1))
	write("cut", b[:len(b)-30])
	write("huge", make([]byte, bundledelta.MaxInventory+1))
	old, err := os.ReadFile("old")
	if err != nil {
		t.Fatal(err)
	}
	write("short", old[:len(old)-2000])
	create := "bundle create --output x --unsigned oci:layout --have "
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{create + "signed --pub other/refit.pub", console.ExitVerification, "expected a valid signature of key"},
		{create + "unsigned --pub keys/refit.pub", console.ExitVerification, "signed by key none"},
		{create + "tampered --pub keys/refit.pub", console.ExitVerification, "expected a valid signature of key"},
		{create + "cut", console.ExitVerification, "the inventory is damaged"},
		{create + "old", console.ExitUsage, "not an inventory"},
		{create + "huge", console.ExitUsage, "huge has more than"},
		{create + "none", console.ExitUsage, "no such file"},
		{create + "signed --base old", console.ExitUsage, "exclude each other"},
		{create + "signed --pub none", console.ExitUsage, "no such file"},
		{"bundle create --output x --unsigned oci:layout --pub keys/refit.pub", console.ExitUsage, "--pub is for --have"},
		{"inventory --bundle none", console.ExitUsage, "no such file"},
		{"inventory --bundle kubelet", console.ExitVerification, "not a refit bundle"},
		{"inventory --bundle d", console.ExitVerification, "it is a delta"},
		{"inventory --bundle short", console.ExitVerification, "not copied completely"},
		{"inventory --bundle old --key keys/refit.pub", console.ExitUsage, "PRIVATE KEY"},
		{"inventory --bundle old --from archive", console.ExitUsage, "exclude each other"},
		{"inventory --bundle old --output keys/refit.pub/x", console.ExitInternal, "write inventory"},
		{"inventory old", console.ExitUsage, "old"},
	} {
		r := refit(t, strings.Fields(c.line)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) || r.out != "" {
			t.Errorf("%s: exit %d, %s; want %d, %q", c.line, r.code, r.err, c.code, c.want)
		}
		for _, file := range []string{"x", "x.partial", "x.full"} {
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s: %s is there", c.line, file)
			}
		}
	}
	// a bundle of which the site has nothing stays as a full one
	r := refit(t, strings.Fields(create+"far.inventory")...)
	if r.code != console.ExitBlocked || !strings.Contains(r.err, "take the full bundle") || !strings.Contains(r.err, "the full bundle is in x.full") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	// a base without what the inventory promised
	if err := os.Rename("tampered", "wrong"); err != nil {
		t.Fatal(err)
	}
	forgeInventory(t, "new", "old", "wrong")
	line(t, "bundle create --have wrong --output h"+newSources)
	r = refit(t, strings.Fields("bundle restore --base old h --output y")...)
	if r.code != console.ExitVerification || !strings.Contains(r.err, "payload kubelet") || !strings.Contains(r.err, "does not have 1 blob") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if left, _ := filepath.Glob("y*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// forgeInventory writes an inventory that says that one bundle has the blobs of another one.
func forgeInventory(t *testing.T, of, as, out string) {
	t.Helper()
	var all []bundledelta.InventoryBundle
	for _, path := range []string{of, as} {
		f, err := openBundle(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all = append(all, bundledelta.InventoryOf(f.Header()))
	}
	all[1].Blobs = all[0].Blobs
	v, err := bundledelta.NewInventory(all[1:])
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Marshal()
	if err == nil {
		err = os.WriteFile(out, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// platforms adds an index with an image for each platform to the layout, and an attestation.
func platforms(t *testing.T, name string, all ...string) {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, p := range append(all, "unknown/unknown") {
		platform, err := v1.ParsePlatform(p)
		if err != nil {
			t.Fatal(err)
		}
		img, err := random.Image(3000, 2)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = platform.OS, platform.Architecture
		if img, err = mutate.ConfigFile(img, config); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	l, err := layout.FromPath("layout")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
		t.Fatal(err)
	}
}

// clusterOfBundle are objects of a cluster whose nodes have pinned all of a bundle.
type clusterOfBundle struct {
	nodes   []corev1.Node
	updates []v1alpha1.NodeUpdate
	pins    v1alpha1.Content
	bundle  v1alpha1.Bundle
}

func clusterWith(t *testing.T, h *bundle.Header, change func(*model.PinSet)) *clusterOfBundle {
	t.Helper()
	var l model.PinSet
	for _, i := range h.Metadata.Images {
		l.Images = append(l.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: h.Digest})
	}
	for _, p := range h.Metadata.Payloads {
		l.Payloads = append(l.Payloads, model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: h.Digest})
	}
	if change != nil {
		change(&l)
	}
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	c := &clusterOfBundle{}
	c.pins = v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentPins, string(data))}, Type: v1alpha1.ContentPins, Data: string(data)}
	c.bundle = v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.BundleSpec{Digest: h.Digest},
		Status: v1alpha1.BundleStatus{Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, Platforms: h.Metadata.Platforms}}
	bundled, fetched := l.CountImages()
	n := int32(bundled)
	for _, name := range []string{"secret-node-1", "secret-node-2"} {
		c.nodes = append(c.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		c.updates = append(c.updates, v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Spec: v1alpha1.NodeUpdateSpec{Pins: c.pins.Name},
			Status: v1alpha1.NodeUpdateStatus{Pins: &v1alpha1.PinStatus{Content: c.pins.Name, ImagesTotal: n, ImagesReady: n, ImagesPinned: n, FetchedTotal: int32(fetched), PayloadsTotal: int32(len(l.Payloads)), PayloadsReady: int32(len(l.Payloads))}}})
	}
	return c
}

// archive writes the objects as refit support does.
func (c *clusterOfBundle) archive(t *testing.T, path string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	put := func(name string, v any) {
		data, err := json.Marshal(v)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))})
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(inputs.SupportHeader, map[string]any{"kind": "Support", "createdAt": "2026-11-26T00:00:00Z", "refit": "test"})
	group := v1alpha1.GroupVersion.String()
	put(inputs.SupportObjects+"/nodes.json", map[string]any{"apiVersion": "v1", "kind": "NodeList", "items": c.nodes})
	put(inputs.SupportObjects+"/nodeupdates.json", map[string]any{"apiVersion": group, "kind": "NodeUpdateList", "items": c.updates})
	put(inputs.SupportObjects+"/contents.json", map[string]any{"apiVersion": group, "kind": "ContentList", "items": []v1alpha1.Content{c.pins}})
	put(inputs.SupportObjects+"/bundles.json", map[string]any{"apiVersion": group, "kind": "BundleList", "items": []v1alpha1.Bundle{c.bundle}})
	if err := errors.Join(w.Close(), z.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func headerOf(t *testing.T, path string) *bundle.Header {
	t.Helper()
	f, err := openBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Header()
}

// A cluster knows images and payloads by their digests only. Of an index the site has the platforms
// of its bundle, so other platforms and attestations are in the delta.
func TestInventoryOfCluster(t *testing.T) {
	deltaSite(t)
	platforms(t, "registry.example/many:1", "linux/amd64", "linux/arm64")
	line(t, "bundle create --output site --unsigned --name edge --version 1.0.0 --platform linux/amd64 oci:layout:registry.example/many:1 payload:kubelet@v1.36.3=kubelet")
	full := strings.TrimSpace(line(t, "bundle create --output full --unsigned --name edge --version 1.0.1 oci:layout payload:kubelet@v1.36.3=kubelet"))
	h := headerOf(t, "site")
	clusterWith(t, h, nil).archive(t, "archive")
	inventory := func() result {
		return refitWith(t, &inputs.Access{Err: io.Discard}, strings.Fields("inventory --from archive --output i")...)
	}
	if r := inventory(); r.code != console.ExitOK || !strings.Contains(r.err, "edge 1.0.0 "+h.Digest+": 1 image, 1 payload") {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	b, err := os.ReadFile("i")
	if err != nil || strings.Contains(string(b), "secret-node") || strings.Contains(string(b), "registry.example") {
		t.Errorf("%v: %s", err, b)
	}
	r := refit(t, strings.Fields("bundle create --have i --output h --unsigned --name edge --version 1.0.1 oci:layout payload:kubelet@v1.36.3=kubelet")...)
	if r.code != console.ExitOK || strings.TrimSpace(r.out) != full || !strings.Contains(r.err, "left out in part: registry.example/many:1") || !strings.Contains(r.err, "left out: kubelet") {
		t.Fatalf("exit %d, %s %s", r.code, r.out, r.err)
	}
	var v deltaView
	if err := json.Unmarshal([]byte(line(t, "bundle inspect h -o json")), &v); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Images { // the index, and manifest, configuration and two layers of amd64
		if p.Name == "registry.example/many:1" && (p.Copied != 5 || p.New != 8) || p.Name == "registry.example/app:1" && p.Copied != 0 {
			t.Errorf("%+v", p)
		}
	}
	if len(v.Images) != 2 || v.Payloads[0].Copied != 1 {
		t.Errorf("%+v", v)
	}
	line(t, "bundle restore --base site h --output again --digest "+full)
	sameFile(t, "full", "again")
}

// An inventory of a cluster has only what every node surely has.
func TestInventoryOfClusterIsSure(t *testing.T) {
	deltaSite(t)
	h := headerOf(t, "old")
	zero := "sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		pins   func(*model.PinSet)
		change func(*clusterOfBundle)
		code   int
		want   string
	}{
		"a node pins still":        {nil, func(c *clusterOfBundle) { c.updates[1].Status.Pins.ImagesPinned = 0 }, 3, "secret-node-2 (it has pinned 0 of 1 image and stored 1 of 1 payload)"},
		"a node loads still":       {nil, func(c *clusterOfBundle) { c.updates[0].Status.Pins.ImagesReady = 0 }, 3, "1 of 2 nodes not ready"},
		"a payload is missing":     {nil, func(c *clusterOfBundle) { c.updates[0].Status.Pins.PayloadsReady = 0 }, 3, "stored 0 of 1 payload"},
		"a report of another list": {nil, func(c *clusterOfBundle) { c.updates[0].Status.Pins.Content = "pins-1" }, 3, "has not reported"},
		"no report":                {nil, func(c *clusterOfBundle) { c.updates[0].Status.Pins = nil }, 3, "has not reported"},
		"no list":                  {nil, func(c *clusterOfBundle) { c.updates[0].Spec.Pins, c.updates[0].Status.Pins.Content = "", "" }, 3, "has not reported"},
		"a node without NodeUpdate": {nil, func(c *clusterOfBundle) {
			c.nodes = append(c.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		}, 3, "new (its agent has not reported"},
		"a NodeUpdate elsewhere":   {nil, func(c *clusterOfBundle) { c.updates[0].Namespace = "default" }, 3, "secret-node-1"},
		"a damaged list":           {nil, func(c *clusterOfBundle) { c.pins.Data += " " }, 6, "is damaged"},
		"a list of another type":   {nil, func(c *clusterOfBundle) { c.pins.Type = v1alpha1.ContentTrust }, 6, "is damaged"},
		"a list that is not there": {nil, func(c *clusterOfBundle) { c.pins.Name = "pins-2" }, 3, "is not there"},
		"no nodes":                 {nil, func(c *clusterOfBundle) { c.nodes = nil }, 3, "no bundle is on every node"},
		"a bundle without a name":  {nil, func(c *clusterOfBundle) { c.bundle.Status.Name = "" }, 3, "no Bundle object has its name"},
		"a hostile name":           {nil, func(c *clusterOfBundle) { c.bundle.Status.Name = "../x" }, 3, "bad bundle name"},
		"only images of registries": {func(l *model.PinSet) {
			l.Payloads, l.Images[0].Bundle, l.Images[0].Registry = nil, "", true
		}, nil, 3, "no bundle is on every node"},
		"digests that are none": {func(l *model.PinSet) { l.Payloads, l.Images[0].Digest = nil, "latest" }, nil, 3, "no bundle is on every node"},
		"a bundle that is none": {func(l *model.PinSet) { l.Images[0].Bundle = "latest" }, nil, 0, "bundle latest is not in the inventory"},
		"an image made on the site": {func(l *model.PinSet) {
			l.Images[0].Base, l.Images[0].Overlay, l.Images[0].Digest = l.Images[0].Digest, "osimage-1", zero
		}, nil, 0, "1 image, 1 payload"},
	} {
		t.Run(name, func(t *testing.T) {
			site := clusterWith(t, h, c.pins)
			if c.change != nil {
				c.change(site)
			}
			site.archive(t, "archive")
			r := refitWith(t, &inputs.Access{Err: io.Discard}, strings.Fields("inventory --from archive")...)
			if r.code != c.code || !strings.Contains(r.err, c.want) || (r.code == 0) != (r.out != "") || strings.Contains(r.out, zero) {
				t.Errorf("exit %d: %s %s; want %d, %q", r.code, r.out, r.err, c.code, c.want)
			}
		})
	}
}

func nodesAndMore(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return fakeclient.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
}

// A bundle that some nodes have is left out and named.
func TestInventoryLeavesOutBundlesOfSomeNodes(t *testing.T) {
	deltaSite(t)
	a, b := clusterWith(t, headerOf(t, "old"), nil), clusterWith(t, headerOf(t, "new"), nil)
	b.bundle.Name = "other"
	both := clusterWith(t, headerOf(t, "old"), func(l *model.PinSet) {
		l.Payloads = append(l.Payloads, model.PinSetPayload{Name: "kubelet", Digest: headerOf(t, "new").Metadata.Payloads[0].Digest, Bundle: b.bundle.Spec.Digest})
	})
	var objects []client.Object
	for i := range a.nodes {
		objects = append(objects, &a.nodes[i])
	}
	objects = append(objects, &a.updates[0], &both.updates[1], &a.pins, &both.pins, &a.bundle, &b.bundle)
	var note bytes.Buffer
	found, err := clusterInventory(t.Context(), nodesAndMore(t, objects...), &note)
	if err != nil || len(found) != 1 || found[0].Digest != a.bundle.Spec.Digest || found[0].Version != "1.36.2" {
		t.Errorf("%v %+v", err, found)
	}
	if !strings.Contains(note.String(), b.bundle.Spec.Digest+" is not in the inventory: 1 of 2 nodes have images of it") {
		t.Error(note.String())
	}
}
