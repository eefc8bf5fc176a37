package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// TestHowTosWithServers types two pages about servers of the reader on a cluster of three nodes: an
// external updater, and a registry with a tag that a workload follows.
//
// Replaced are only names that each reader replaces too: the address of the updater and its
// authority, the file with the present version, and the registry. The registry of the lab has
// no login, and the track no window, so that it need not wait for the night.
func TestHowTosWithServers(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own, and two pages typed by hand: make e2e")
	}
	s := start(t, "howtoserver", 3)
	h := administrator(t, s)
	keepResult(t, "howtos-servers.json", func() any { return map[string]any{"typed": h.typed, "steps": played[t.Name()]} })
	ctx := t.Context()
	own, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "refit.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, own)
	must(t, err)
	must(t, s.Install(ctx, own, device))
	step(t, "an external updater changes the firmware of every node", func(t *testing.T) { h.changesFirmware(t) })
	step(t, "a workload follows a tag, and returns", func(t *testing.T) { h.followsTag(t) })
	step(t, "the table has exactly the blocks that were typed", func(t *testing.T) { h.compareTable(t) })
}

// TestHowToHops types the page about several minor versions on a cluster of three nodes that is two
// minor versions behind.
func TestHowToHops(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("three releases of Kubernetes, and a page typed by hand: make e2e")
	}
	s := start(t, "howtohops", 3, func(o *scenario.Options) { o.From = twoBack })
	h := administrator(t, s)
	keepResult(t, "howtos-hops.json", func() any { return map[string]any{"typed": h.typed, "steps": played[t.Name()]} })
	ctx := t.Context()
	between, err := components.Release(ctx, from, func(line string) { t.Log(line) })
	must(t, err)
	hop, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "hop.tar", Version: strings.TrimPrefix(from, "v"), Release: between})
	must(t, err)
	target, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	install, err := s.Insert(ctx, s.MediumNode, hop)
	must(t, err)
	must(t, s.Install(ctx, hop, install))
	must(t, s.Eject(ctx, s.MediumNode, install))
	step(t, "the cluster moves over two minor versions with one approval", func(t *testing.T) { h.hops(t, hop, target) })
	step(t, "the table has exactly the blocks that were typed", func(t *testing.T) { h.compareTable(t) })
}

// sampleFile writes a sample of the page, with the reader's own values, to where the page's
// command reads it.
func sampleFile[O any](t *testing.T, h *howTos, sample, file string, change func(*O)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/samples", sample))
	must(t, err)
	o := new(O)
	must(t, yaml.UnmarshalStrict(text, o))
	change(o)
	text, err = yaml.Marshal(o)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(h.dir, file), text, 0o644))
}

const (
	firmwareFile  = "/var/lib/firmware/bios"
	firmwareField = "firmware/bios"
)

// firmware is an external updater: a server that flashes nodes by a file.
type firmware struct {
	t *testing.T
	s *scenario.Scenario

	mu      sync.Mutex
	flashed map[string]int // calls by node
}

// changesFirmware types external-updater.md. The updater is a server on n1 with a certificate
// of its own. It answers twice for each node: at work, and done.
func (h *howTos) changesFirmware(t *testing.T) {
	t.Helper()
	const page = "external-updater.md"
	for _, n := range h.s.Lab.Nodes() {
		must(t, h.s.Exec(t.Context(), n, "sh", "-c", "mkdir -p "+filepath.Dir(firmwareFile)+" && echo 1.1 > "+firmwareFile))
	}
	f := &firmware{t: t, s: h.s, flashed: map[string]int{}}
	server := httptest.NewServer(f)
	defer server.Close()
	address, authority := serveTLS(t, h.s, strings.TrimPrefix(server.URL, "http://"))
	ca, err := os.ReadFile(authority)
	must(t, err)
	sampleFile(t, h, "updater.yaml", "updater.yaml", func(u *v1alpha1.Updater) { u.Spec.URL, u.Spec.CABundle = "https://"+address, string(ca) })
	sampleFile(t, h, "nodeconfig-fields.yaml", "nodeconfig.yaml", func(c *v1alpha1.NodeConfig) { c.Spec.Fields[0].File = firmwareFile })
	h.types(t, page, 1)
	if said := h.types(t, page, 2); !strings.Contains(said, "external-firmware") {
		t.Errorf("the plan does not have the step external-firmware: %s", said)
	}
	for _, n := range h.s.Lab.Nodes() {
		version, err := h.s.Output(t.Context(), n, "cat", firmwareFile)
		must(t, err)
		if strings.TrimSpace(version) != "1.2" || f.calls(n) < 2 {
			t.Errorf("node %s has firmware %q after %d calls", n, version, f.calls(n))
		}
	}
}

func (f *firmware) calls(node string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flashed[node]
}

func (f *firmware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	data, err := hooks.Discovery()
	for _, hook := range []hooks.Hook{hooks.CanUpdateMachine, hooks.UpdateMachine} {
		if r.URL.Path != hook.Path() {
			continue
		}
		var q hooks.Request
		if q, err = hook.Decode(bytes.NewReader(body)); err == nil {
			data, err = hook.EncodeAnswer(f.answer(hook, q))
		}
	}
	if err != nil {
		f.t.Errorf("request %s: %v", r.URL.Path, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(data)
}

// answer claims the firmware, and flashes a node at the second call.
func (f *firmware) answer(hook hooks.Hook, q hooks.Request) hooks.Answer {
	if hook.Claims {
		patch := fmt.Appendf(nil, `{"spec":{"fields":{%q:"1.2"}}}`, firmwareField)
		return hooks.Answer{Harmless: true, Patches: map[string]hooks.Patch{capidiff.Machine: {PatchType: hooks.JSONMergePatch, Patch: patch}}}
	}
	meta, _ := q.Desired[capidiff.Machine]["metadata"].(map[string]any)
	node, _ := meta["name"].(string)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flashed[node]++; f.flashed[node] == 1 {
		return hooks.Answer{Message: "flashing", RetryAfter: 1}
	}
	if err := f.s.Exec(f.t.Context(), node, "sh", "-c", "echo 1.2 > "+firmwareFile); err != nil {
		return hooks.Answer{Failed: true, Message: err.Error()}
	}
	return hooks.Answer{Message: "flashed"}
}

// hops types several-minor-versions.md with both bundles on one stick.
func (h *howTos) hops(t *testing.T, hop, target scenario.Bundle) {
	t.Helper()
	const page = "several-minor-versions.md"
	for name, b := range map[string]scenario.Bundle{"release-1.35.refit": hop, "release-1.36.refit": target} {
		must(t, os.Symlink(b.Path, filepath.Join(h.dir, name)))
	}
	_, err := h.s.InsertFile(t.Context(), h.s.MediumNode, mediumWith(t, h.s, hop, target))
	must(t, err)
	h.untilFound(t, 2)
	h.types(t, page, 1)
	said := h.types(t, page, 2)
	for _, word := range []string{strings.TrimPrefix(from, "v"), strings.TrimPrefix(to, "v")} {
		if !strings.Contains(said, word) {
			t.Errorf("the plan does not name %s: %s", word, said)
		}
	}
	said = h.types(t, page, 3)
	for _, word := range []string{"Start this update? [y/N]", "3 of 3 nodes are at 1.36.3"} {
		if !strings.Contains(said, word) {
			t.Errorf("the commands never printed %q", word)
		}
	}
	allAt(t, h.s, to)
}

// untilFound waits until so many bundles were found on media.
func (h *howTos) untilFound(t *testing.T, n int) {
	t.Helper()
	eventually(t, 2*time.Minute, "bundles are found on the stick", func() (bool, string) {
		var l v1alpha1.BundleList
		err := h.s.Client.List(t.Context(), &l)
		found := 0
		for _, b := range l.Items {
			if len(b.Status.Locations) > 0 {
				found++
			}
		}
		return found == n, fmt.Sprintf("%d of %d, %v", found, len(l.Items), err)
	})
}

// followsTag types follow-an-image-tag.md for the workload of the lab, which has the names of
// the page.
func (h *howTos) followsTag(t *testing.T) {
	t.Helper()
	const page, tag, repository = "follow-an-image-tag.md", "2.6.2-rev1", "shop/app"
	w := newSite(t, h.s)
	w.listen(t, "n1") // the controller may run there
	w.localRegistry(t)
	built := func(build, word string) string {
		digest := w.publish(t, repository+":"+tag+"-"+build, word)
		w.registry.Tag(repository, digest, tag)
		return digest
	}
	runs := func(what, digest string) { w.untilPods(t, what, "shop", "app", map[string]int{digest: 3}) }
	candidate := func(build string) {
		eventually(t, 2*time.Minute, "the track has "+build, func() (bool, string) {
			var o v1alpha1.ImageTrack
			err := h.s.Client.Get(t.Context(), client.ObjectKey{Name: "shop-app"}, &o)
			return slices.ContainsFunc(o.Status.Candidates, func(c v1alpha1.TrackCandidate) bool { return c.LongTag == tag+"-"+build }), fmt.Sprint(o.Status, err)
		})
	}
	first := built("b5.1", "first")
	d := &appsv1.Deployment{}
	must(t, h.s.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "app"}, d))
	d.Spec.Template.Spec.Containers[0].Image = registryAddress + "/" + repository + ":" + tag
	must(t, h.s.Client.Update(t.Context(), d))
	runs("three pods run the first build", first)
	h.types(t, page, 1)
	sampleFile(t, h, "imagetrack.yaml", "imagetrack.yaml", func(o *v1alpha1.ImageTrack) {
		o.Spec.Repository, o.Spec.Windows, o.Spec.PullSecret = registryAddress+"/"+repository, nil, nil
		o.Spec.IntervalSeconds, o.Spec.DiscoverSeconds = 10, 10
	})
	h.types(t, page, 2)
	eventually(t, 3*time.Minute, "the workload names the digest that it runs", func() (bool, string) {
		err := h.s.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
		image := d.Spec.Template.Spec.Containers[0].Image
		return strings.HasSuffix(image, "@"+first), fmt.Sprint(image, err)
	})
	runs("three pods run the first build by its digest", first)
	second := built("b5.2", "second")
	candidate("b5.2")
	if said := h.types(t, page, 3); !strings.Contains(said, tag+"-b5.2") {
		t.Errorf("the commands do not show the new build: %s", said)
	}
	if said := h.types(t, page, 4); !strings.Contains(said, second) {
		t.Errorf("the approval does not print the digest: %s", said)
	}
	runs("three pods run the approved build", second)
	built("b5.3", "third")
	candidate("b5.3")
	if said := h.types(t, page, 5); !strings.Contains(said, first) {
		t.Errorf("the rollback does not print the digest before: %s", said)
	}
	runs("three pods run the first build again", first)
}
