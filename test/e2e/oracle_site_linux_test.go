package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

const (
	oracleNamespace = "oracle"
	// registryAddress is where each worker reaches the registry: on its own
	// loopback, where runtimes speak plain HTTP.
	registryAddress = "127.0.0.1:5000"
)

// registrySite is a lab with a registry: the lab has no way out, so each worker's port
// 5000 leads to a registry on this machine.
type registrySite struct {
	s        *scenario.Scenario
	registry *registrytest.Server
	app      v1.Image
	doors    map[string]net.Listener
	kept     []kept
}

func newSite(t *testing.T, s *scenario.Scenario) *registrySite {
	t.Helper()
	w := &registrySite{s: s, registry: registrytest.Start(t), app: appImage(t, s.AppImage()), doors: map[string]net.Listener{}}
	for _, n := range []string{"n2", "n3"} {
		w.listen(t, n)
	}
	t.Cleanup(func() {
		for _, l := range w.doors {
			l.Close()
		}
	})
	must(t, client.IgnoreAlreadyExists(s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: oracleNamespace}})))
	return w
}

// listen opens the door of a node; a reboot has closed the one before.
func (w *registrySite) listen(t *testing.T, node string) {
	t.Helper()
	if old := w.doors[node]; old != nil {
		old.Close()
	}
	l, err := w.s.Lab.Listen(t.Context(), node, "tcp", registryAddress)
	must(t, err)
	w.doors[node] = l
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

// localRegistry has the controller ask the registry on its node's loopback address, which
// it refuses by default. Nodes' runtimes pull by their own configuration. All replicas
// end before new ones start: only the node with the stick has their image yet, and a
// rolling update would keep the old leader there.
func (w *registrySite) localRegistry(t *testing.T) {
	t.Helper()
	const flag = "-local-registry=" + registryAddress
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}
	must(t, w.s.Client.Patch(t.Context(), d, client.RawPatch(apitypes.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/strategy","value":{"type":"Recreate"}},{"op":"add","path":"/spec/template/spec/containers/0/args","value":["`+flag+`"]}]`))))
	eventually(t, 2*time.Minute, "a controller that may ask the registry runs", func() (bool, string) {
		var pods corev1.PodList
		if err := w.s.Client.List(t.Context(), &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "refit-controller"}); err != nil {
			return false, err.Error()
		}
		ready := false
		for i := range pods.Items {
			p := &pods.Items[i]
			if !slices.Contains(p.Spec.Containers[0].Args, flag) {
				return false, "pod " + p.Name + " is an old one"
			}
			for _, c := range p.Status.Conditions {
				ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}
		}
		return ready, "no pod is ready"
	})
}

// passOn connects both ends until one has ended.
func passOn(c net.Conn, address string) {
	defer c.Close()
	up, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return // the registry is stopped
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		up.Close()
	}()
	_, _ = io.Copy(c, up)
}

// up has the registry answer again.
func (w *registrySite) up(t *testing.T) {
	t.Helper()
	w.registry.Resume()
}

// appImage is the lab's test application, which runs: one image of one layer.
func appImage(t *testing.T, archive string) v1.Image {
	t.Helper()
	roots, closer, err := oci.OpenArchive(archive, "")
	must(t, err)
	defer closer.Close()
	root := roots[0]
	blob := func(d ocispec.Descriptor) []byte {
		r, err := root.Store.Open(t.Context(), d)
		must(t, err)
		defer r.Close()
		data, err := io.ReadAll(r)
		must(t, err)
		return data
	}
	var m ocispec.Manifest
	must(t, json.Unmarshal(blob(root.Desc), &m))
	var conf v1.ConfigFile
	must(t, json.Unmarshal(blob(m.Config), &conf))
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range m.Layers {
		img, err = mutate.AppendLayers(img, static.NewLayer(blob(l), types.OCIUncompressedLayer))
		must(t, err)
	}
	made, err := img.ConfigFile()
	must(t, err)
	made = made.DeepCopy()
	made.OS, made.Architecture, made.Config = conf.OS, conf.Architecture, conf.Config
	img, err = mutate.ConfigFile(img, made)
	must(t, err)
	return img
}

// publish uploads the application under a tag, with a word that makes it an image
// of its own, and gives its digest.
func (w *registrySite) publish(t *testing.T, ref, word string) string {
	t.Helper()
	conf, err := w.app.ConfigFile()
	must(t, err)
	changed := conf.Config.DeepCopy()
	changed.Env = append(slices.Clone(changed.Env), "VERSION="+word)
	img, err := mutate.Config(w.app, *changed)
	must(t, err)
	to, err := name.ParseReference(w.registry.Ref(ref), name.Insecure)
	must(t, err)
	must(t, remote.Write(to, img))
	digest, err := img.Digest()
	must(t, err)
	return digest.String()
}

// answers is what the registry answers for a tag, nothing while it is stopped.
func (w *registrySite) answers(t *testing.T, repository, tag string) map[string]string {
	t.Helper()
	c, err := net.DialTimeout("tcp", w.registry.Addr, time.Second)
	if err != nil {
		return map[string]string{}
	}
	c.Close()
	return map[string]string{tag: w.registry.Resolve(repository, tag)}
}

func (w *registrySite) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	var n corev1.Node
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &n))
	if n.Spec.Unschedulable == on {
		return
	}
	patch := client.MergeFrom(n.DeepCopy())
	n.Spec.Unschedulable = on
	must(t, w.s.Client.Patch(t.Context(), &n, patch))
}

// seenPod is a pod of a situation, as the kubelet reports it.
type seenPod struct {
	name, uid, node string
	running         bool
	restarts        int32
	digest          string // that runs
	fails           string // the kubelet's word for why it does not start
}

// outcome in the words of a prediction.
func (p seenPod) outcome(before seenPod) string {
	switch {
	case p.fails != "":
		return model.OutcomeFails
	case p.digest == before.digest:
		return model.OutcomeSame
	}
	return model.OutcomeChanges
}

// refusals are the kubelet's words for a container whose image it does not get.
var refusals = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError"}

// look finds the newest pod of an application, other than one.
func (w *registrySite) look(t *testing.T, app, other string) (seenPod, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var l corev1.PodList
	if err := w.s.Client.List(ctx, &l, client.InNamespace(oracleNamespace), client.MatchingLabels{"app": app}); err != nil {
		return seenPod{}, err.Error()
	}
	said := "no pod"
	for i := range l.Items {
		p := &l.Items[i]
		if string(p.UID) == other || p.DeletionTimestamp != nil {
			continue
		}
		out := seenPod{name: p.Name, uid: string(p.UID), node: p.Spec.NodeName}
		said = fmt.Sprintf("%s on %s: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		for _, c := range p.Status.ContainerStatuses {
			out.restarts, out.running = c.RestartCount, c.State.Running != nil
			if c.State.Running != nil {
				_, out.digest, _ = strings.Cut(c.ImageID, "@")
			}
			if c.State.Waiting != nil {
				said += " " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
				if slices.Contains(refusals, c.State.Waiting.Reason) {
					out.fails = c.State.Waiting.Reason
				}
			}
		}
		return out, said
	}
	return seenPod{}, said
}

func (w *registrySite) pod(t *testing.T, app string) seenPod {
	t.Helper()
	p, said := w.look(t, app, "")
	if !p.running {
		t.Fatalf("%s does not run: %s", app, said)
	}
	return p
}

// came waits for what became of the event: a container that was started since, or
// one that the kubelet does not start.
func (f *playedSituation) came(t *testing.T) seenPod {
	t.Helper()
	other := ""
	if f.c.event != "crash" && f.c.event != "reboot" {
		other = f.before.uid // another pod is made
	}
	var p seenPod
	eventually(t, 3*time.Minute, "it starts, or does not", func() (bool, string) {
		var said string
		p, said = f.look(t, f.c.app, other)
		again := p.running && (other != "" || p.restarts > f.before.restarts)
		return p.fails != "" || again && p.digest != "", fmt.Sprintf("%s, %d restarts, digest %s", said, p.restarts, p.digest)
	})
	return p
}
