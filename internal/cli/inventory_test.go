package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
)

// The inventory of a real API server is that of the support archive which was made of it, and names
// no node.
func TestInventoryOfAnAPIServer(t *testing.T) {
	p := newPerson(t)
	of := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	list, err := json.Marshal(model.PinSet{
		Images: []model.PinSetImage{{Name: "r.example/b:1", Digest: of("b"), Bundle: of("1")}, {Name: "r.example/a:1", Digest: of("a"), Bundle: of("1")},
			{Name: "r.example/again:1", Digest: of("a"), Bundle: of("1")}, {Name: "r.example/fetched:1", Digest: of("f"), Registry: true}},
		Payloads: []model.PinSetPayload{{Name: "kubelet", Digest: of("c"), Bundle: of("1")}}})
	if err != nil {
		t.Fatal(err)
	}
	name := v1alpha1.ContentName(v1alpha1.ContentPins, string(list))
	p.keep(name, v1alpha1.ContentPins, string(list))
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.BundleSpec{Digest: of("1")}}
	p.create(t, b)
	b.Status = v1alpha1.BundleStatus{Digest: of("1"), Name: "edge", Version: "1.36.2", Platforms: []string{"linux/amd64"}}
	says(t, p.controller, b)
	var updates []*v1alpha1.NodeUpdate
	for _, node := range []string{"w1", "w2"} {
		p.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: node}, Spec: v1alpha1.NodeUpdateSpec{Pins: name}}
		if err := p.controller.Create(t.Context(), nu); err != nil {
			t.Fatal(err)
		}
		updates = append(updates, nu)
	}
	pinned := &v1alpha1.PinStatus{Content: name, ImagesTotal: 3, ImagesReady: 3, ImagesPinned: 3, FetchedTotal: 1, PayloadsTotal: 1, PayloadsReady: 1}
	updates[0].Status.Pins = pinned
	says(t, p, updates[0])
	dir := t.TempDir()
	file, archive, second := filepath.Join(dir, "site.inventory"), filepath.Join(dir, "a.tar.gz"), filepath.Join(dir, "archive.inventory")
	if said := p.types(console.ExitBlocked, "inventory", "--output", file); !strings.Contains(said, "w2 (its agent has not reported what it pinned)") {
		t.Error(said)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("an inventory was written")
	}
	updates[1].Status.Pins = pinned
	says(t, p, updates[1])
	if said := p.types(console.ExitOK, "inventory", "--output", file); !strings.Contains(said, "edge 1.36.2 "+of("1")+": 2 images, 1 payload") {
		t.Error(said)
	}
	p.types(console.ExitOK, "support", "--output", archive)
	p.types(console.ExitOK, "inventory", "--from", archive, "--output", second)
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := os.ReadFile(second); err != nil || string(same) != string(got) {
		t.Errorf("from the archive: %v\n%s\n%s", err, same, got)
	}
	v, err := bundledelta.ParseInventory(got)
	if err != nil {
		t.Fatal(err)
	}
	if one := v.Bundles[0]; len(v.Bundles) != 1 || one.Digest != of("1") || one.Version != "1.36.2" || len(one.Images) != 2 || string(one.Images[0]) != of("a") || string(one.Payloads[0]) != of("c") {
		t.Errorf("%+v", v.Bundles)
	}
	for _, hidden := range []string{"w1", "w2", "r.example", of("f")} {
		if strings.Contains(string(got), hidden) {
			t.Errorf("%s is in %s", hidden, got)
		}
	}
}
