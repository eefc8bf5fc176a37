package e2e

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/test/simhost"
)

// buildSeen is what results/osbuild.json keeps.
type buildSeen struct {
	Kubernetes string
	// Variant of the pod that built, and why no tighter one, as the OSBuild says.
	Variant, VariantWhy string
	// User that the container ran as; empty is the image's own.
	User *int64
	// Name and digest of the build, and of the same inputs once more.
	Name, Digest           string
	AgainName, AgainDigest string
	Seconds                float64
	// Failed is what kubectl describe says of a build that fails.
	Failed []string
	Steps  []outcome
}

// containerSite builds Containerfiles in pods of a lab.
type containerSite struct {
	*osSite
	buildah string // by digest
	good    v1alpha1.OSImagePool
	seen    buildSeen
}

const (
	goodContainerfile = "FROM configs AS final\nRUN echo built in a pod > /usr/share/built\n"
	badContainerfile  = "FROM configs AS final\nRUN echo this is about to fail && exit 3\n"
)

// TestOSContainerfile: buildah builds a Containerfile in a pod without privileges;
// the same inputs are the same OSBuild; of a build that fails
// the end of its log is where people look.
func TestOSContainerfile(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("builds in real pods take a lab of their own: make e2e")
	}
	_, bootc := osTools(t)
	w := &containerSite{osSite: startOSSite(t, scenario.Options{Name: "osbuild", Nodes: 2})}
	keepResult(t, "osbuild.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = from, played[t.Name()]
		return w.seen
	})
	w.materials(t, bootc)
	step(t, "a Containerfile is built by a pod without privileges", w.inPod)
	step(t, "a build that fails says the end of its log", w.fails)
	step(t, "the same inputs are the same build", w.same)
	step(t, "a build that was deleted is made again under its name", w.again)
}

// materials: the image with buildah on the worker, the base in the registry.
func (w *containerSite) materials(t *testing.T, bootc string) {
	ctx := t.Context()
	image, err := components.Buildah(ctx, func(line string) { t.Log(line) })
	must(t, err)
	roots, closer, err := oci.OpenArchive(image.Archive, "")
	must(t, err)
	closer.Close()
	repository, _, _ := strings.Cut(image.Name, ":")
	w.buildah = repository + "@" + roots[0].Desc.Digest.String()
	must(t, w.s.Lab.Import(ctx, "n2", image))
	w.run(t, "n2", "ctr", "-n", "k8s.io", "images", "tag", image.Name, w.buildah)
	shell, err := components.Shell()
	must(t, err)
	files := simhost.Files{"usr/bin/sh": "-> dash"}
	for path, from := range shell {
		data, err := os.ReadFile(from)
		must(t, err)
		files[path] = string(data)
	}
	w.base = w.push(t, "os/base", osImage(t, simhost.Node(t, "2", bootc), files))
}

// inPod: the pool is paused, so nothing is booted.
func (w *containerSite) inPod(t *testing.T) {
	ctx := t.Context()
	mirrors := "unqualified-search-registries = []\n[[registry]]\nlocation = \"" + w.address + "\"\ninsecure = true\n"
	begin := time.Now()
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "builds"}, Data: map[string]string{"registries.conf": mirrors}},
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.UpdatePoolSpec{Paused: true, OSImage: osName,
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "n2"}}}},
		&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName}, KernelArguments: []v1alpha1.KernelArgument{"edge.first=1"}}},
		&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: w.base}, Repository: w.address + "/os/edge",
			Containerfile: &v1alpha1.OSContainerfile{Inline: goodContainerfile},
			Build:         &v1alpha1.OSBuildPlace{Image: w.buildah, Mirrors: &v1alpha1.ConfigMapKey{Name: "builds", Key: "registries.conf"}}}},
	} {
		must(t, w.s.Client.Create(ctx, o))
	}
	var pod corev1.PodSpec
	eventually(t, time.Minute, "there is a Job", func() (bool, string) {
		var l batchv1.JobList
		if err := w.s.Client.List(ctx, &l, client.InNamespace(v1alpha1.BuildsNamespace), client.MatchingLabels{v1alpha1.LabelOSImage: osName}); err != nil || len(l.Items) == 0 {
			return false, "none"
		}
		pod = l.Items[0].Spec.Template.Spec
		return true, l.Items[0].Name
	})
	unprivileged(t, pod)
	w.good = w.ended(t, v1alpha1.BuildSucceeded, "")
	b := w.build(t, w.good.Build)
	w.seen.Seconds = time.Since(begin).Seconds()
	w.seen.Name, w.seen.Digest, w.seen.Variant, w.seen.VariantWhy, w.seen.User = b.Name, b.Status.Digest, b.Status.Variant, b.Status.VariantWhy, pod.Containers[0].SecurityContext.RunAsUser
	if b.Spec.Builder != "Containerfile" || b.Status.Variant == "" || b.Status.VariantWhy == "" {
		t.Errorf("%+v %+v", b.Spec, b.Status)
	}
	files := w.files(t, w.good.Image, "usr/share/built", "usr/lib/bootc/kargs.d/10-refit.toml", "usr/share/version")
	if files["usr/share/built"] != "built in a pod\n" || !strings.Contains(files["usr/lib/bootc/kargs.d/10-refit.toml"], "edge.first=1") || files["usr/share/version"] != "2\n" {
		t.Errorf("the image has %q", files)
	}
}

// unprivileged: nothing of the node, no token, no privilege.
func unprivileged(t *testing.T, p corev1.PodSpec) {
	t.Helper()
	c := p.Containers[0].SecurityContext
	if len(p.Containers) != 1 || c.Privileged == nil || *c.Privileged || p.HostNetwork || p.HostPID || p.HostIPC || p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
		t.Errorf("the pod has privileges: %+v", p)
	}
	for _, v := range p.Volumes {
		if v.HostPath != nil {
			t.Errorf("the pod sees %s of its node", v.HostPath.Path)
		}
	}
}

// files of an image, by their paths.
func (w *containerSite) files(t *testing.T, image string, paths ...string) map[string]string {
	t.Helper()
	ref, err := name.ParseReference(w.registry.Ref(strings.TrimPrefix(image, w.address+"/")), name.Insecure)
	must(t, err)
	img, err := remote.Image(ref)
	must(t, err)
	return extracted(t, img, paths)
}

func extracted(t *testing.T, img v1.Image, paths []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	r := mutate.Extract(img)
	defer r.Close()
	eachFile(t, r, func(path string, data []byte) {
		if slices.Contains(paths, path) {
			out[path] = string(data)
		}
	})
	return out
}

// ended waits until the pool's wanted build, another than before, has come to an end.
func (w *containerSite) ended(t *testing.T, phase, before string) (found v1alpha1.OSImagePool) {
	t.Helper()
	eventually(t, 10*time.Minute, "a build is "+phase, func() (bool, string) {
		var o v1alpha1.OSImage
		must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &o))
		if o.Status.ObservedGeneration != o.Generation || len(o.Status.Pools) != 1 {
			return false, "not reconciled yet"
		}
		found = o.Status.Pools[0]
		var b v1alpha1.OSBuild
		if err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: found.Wanted}, &b); err != nil {
			return false, err.Error()
		}
		over := b.Status.Phase == v1alpha1.BuildSucceeded || b.Status.Phase == v1alpha1.BuildFailed
		if over && b.Status.Phase != phase {
			t.Fatalf("OSBuild %s is %s: %s", b.Name, b.Status.Phase, b.Status.Log)
		}
		return over && b.Name != before && (phase != v1alpha1.BuildSucceeded || found.State == "Use" && found.Build == b.Name), found.State + ": " + found.Message
	})
	return found
}

func (w *containerSite) build(t *testing.T, name string) *v1alpha1.OSBuild {
	t.Helper()
	b := &v1alpha1.OSBuild{}
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: name}, b))
	return b
}

func (w *containerSite) text(t *testing.T, text string) {
	t.Helper()
	var o v1alpha1.OSImage
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &o))
	o.Spec.Containerfile.Inline = text
	must(t, w.s.Client.Update(t.Context(), &o))
}

func (w *containerSite) fails(t *testing.T) {
	w.text(t, badContainerfile)
	p := w.ended(t, v1alpha1.BuildFailed, w.good.Build)
	if p.Image != w.good.Image {
		t.Errorf("the pool's image is %s, and not the one before", p.Image)
	}
	said := w.run(t, "n1", "kubectl", "describe", "osbuild", p.Wanted)
	for _, line := range strings.Split(said, "\n") {
		if strings.Contains(line, "about to fail") || strings.Contains(line, "exit status 3") {
			w.seen.Failed = append(w.seen.Failed, strings.TrimSpace(line))
		}
	}
	if len(w.seen.Failed) == 0 {
		t.Errorf("kubectl describe does not say why:\n%s", said)
	}
	if b := w.build(t, p.Wanted); b.Status.Attempts > 1 {
		t.Errorf("a fault of the Containerfile was tried %d times", b.Status.Attempts)
	}
}

// same: back to the text that was built.
func (w *containerSite) same(t *testing.T) {
	n := len(w.builds(t))
	w.text(t, goodContainerfile)
	p := w.ended(t, v1alpha1.BuildSucceeded, "")
	if p.Build != w.good.Build || p.Image != w.good.Image || len(w.builds(t)) != n {
		t.Errorf("%+v, and not build %s with %s", p, w.good.Build, w.good.Image)
	}
}

// again reconciles after the record of the build is gone.
func (w *containerSite) again(t *testing.T) {
	old := w.build(t, w.good.Build)
	must(t, w.s.Client.Delete(t.Context(), old))
	eventually(t, 10*time.Minute, "it is built again", func() (bool, string) {
		var b v1alpha1.OSBuild
		if err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: w.good.Build}, &b); err != nil {
			return false, err.Error()
		}
		if b.UID == old.UID || b.Status.Phase != v1alpha1.BuildSucceeded {
			return false, b.Status.Phase
		}
		w.seen.AgainName, w.seen.AgainDigest = b.Name, b.Status.Digest
		return true, b.Name + " " + b.Status.Digest
	})
}

// eachFile of a tar.
func eachFile(t *testing.T, r io.Reader, do func(path string, data []byte)) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if h.Typeflag == tar.TypeReg {
			data, err := io.ReadAll(tr)
			must(t, err)
			do(strings.TrimPrefix(h.Name, "/"), data)
		}
	}
}
