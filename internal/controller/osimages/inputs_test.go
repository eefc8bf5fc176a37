//go:build linux

package osimages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

const builderImage = "r.example/buildah@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func node(name, arch string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux"}}}
}

func inNodes(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Data: data}
}

func (w *site) editImage(f func(*v1alpha1.OSImageSpec)) {
	w.t.Helper()
	var o v1alpha1.OSImage
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &o))
	f(&o.Spec)
	w.must(w.admin.Update(context.Background(), &o))
}

func (w *site) job(name string) *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: name}, j))
	return j
}

// The inputs of a Containerfile are checked before a build starts and copied at its start. A
// changed input makes another build. Every architecture has its own build job, and the image
// is an index of them all.
func TestInputsOfAContainerfile(t *testing.T) {
	w := newSite(t)
	w.base = w.reg.Push("os/base", registrytest.Image{Version: "9", Layers: []string{"kernel"}, Platforms: []string{"linux/amd64", "linux/arm64", "linux/s390x"}}, "9")
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) {
		s.Containerfile = &v1alpha1.OSContainerfile{Inline: "FROM configs AS final\nCOPY motd /etc/motd\n",
			PerArchitecture: []v1alpha1.OSArchitectureFile{{Architecture: "arm64", ConfigMap: &v1alpha1.ConfigMapKey{Name: "texts", Key: "arm"}}}}
		s.Build = &v1alpha1.OSBuildPlace{Image: builderImage, Context: &v1alpha1.OSBuildContext{ConfigMap: "files"}, Secrets: []v1alpha1.PullSecret{{Name: "entitlement"}},
			Mirrors: &v1alpha1.ConfigMapKey{Name: "texts", Key: "mirrors"}}
	}), pool(), config(), node("n1", "amd64"), node("n2", "arm64"))
	stuck := func(says string) {
		t.Helper()
		if c := ready(w.reconcileAndBuild()); c.Reason != v1alpha1.ReasonOSImageInvalid || !strings.Contains(c.Message, says) || len(w.allBuilds()) != 0 {
			t.Fatalf("want %q: %+v, %d builds", says, c, len(w.allBuilds()))
		}
	}
	stuck("Containerfile for arm64: there is no ConfigMap texts in namespace refit-nodes")
	w.create(inNodes("texts", map[string]string{"arm": "FROM other AS final\n", "mirrors": "[[registry]]\nlocation = \"r.example\"\n"}))
	stuck("Containerfile for arm64: its last stage does not come from configs")
	texts := inNodes("texts", map[string]string{"arm": "FROM configs AS final\nRUN arm\n", "mirrors": "[[registry]]\nlocation = \"r.example\"\n"})
	w.must(w.admin.Update(context.Background(), texts))
	stuck("spec.build.secrets: there is no Secret entitlement in namespace refit-builds")
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.BuildsNamespace, Name: "entitlement"}, Data: map[string][]byte{"key.pem": []byte("hush")}})
	stuck("spec.build.secrets: Secret entitlement is not for builds: kubectl -n refit-builds label secret entitlement refit.dev/build-secret=true")
	var entitlement corev1.Secret
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: "entitlement"}, &entitlement))
	entitlement.Labels = map[string]string{v1alpha1.LabelBuildSecret: "true"}
	w.must(w.admin.Update(context.Background(), &entitlement))
	stuck("spec.build.context: there is no ConfigMap files in namespace refit-nodes")
	files := inNodes("files", map[string]string{"motd": "hello"})
	w.create(files)

	first := w.build(w.pool(w.reconcileAndBuild()).Wanted)
	if first.Spec.Context == "" || len(first.Spec.PerArchitecture) != 1 || fmt.Sprint(first.Status.Platforms) != "[linux/amd64 linux/arm64]" || !strings.Contains(first.Status.VariantWhy, "left out, because no node that may build is of that architecture: linux/s390x") {
		t.Fatalf("%+v %+v", first.Spec, first.Status)
	}
	// Other files are another build, and the one that runs ends.
	files.Data["motd"] = "hello again"
	w.must(w.admin.Update(context.Background(), files))
	b := w.build(w.pool(w.reconcile()).Wanted)
	if st := w.build(first.Name).Status; b.Name == first.Name || st.Phase != v1alpha1.BuildInterrupted {
		t.Fatalf("%s %+v", b.Name, st)
	}
	w.reconcileBuilds()
	w.reconcileBuilds()
	for _, arch := range []string{"amd64", "arm64"} {
		err := w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: first.Name + "-" + arch + "-context"}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("files of the interrupted build for %s: %v", arch, err)
		}
	}
	amd, arm := w.job(b.Name+"-amd64"), w.job(b.Name+"-arm64")
	for arch, j := range map[string]*batchv1.Job{"amd64": amd, "arm64": arm} {
		var cm, files corev1.ConfigMap
		w.must(w.admin.Get(context.Background(), client.ObjectKeyFromObject(j), &cm))
		w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: j.Namespace, Name: j.Name + imagebuild.ContextSuffix}, &files))
		if got := strings.Contains(cm.Data["Containerfile"], "RUN arm\n"); got != (arch == "arm64") || cm.Data["registries.conf"] != "[[registry]]\nlocation = \"r.example\"\n" || string(files.BinaryData["file-000"]) != "hello again" {
			t.Errorf("%s: %v %v", arch, cm.Data, files.BinaryData)
		}
		want := map[string]string{corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux"}
		if diff := cmp.Diff(want, j.Spec.Template.Spec.NodeSelector); diff != "" {
			t.Error(diff)
		}
	}
	// Half is done: it is no image yet. The image is of both.
	one := w.reg.Push("os/edge", registrytest.Image{Layers: []string{"amd"}, Platforms: []string{"linux/amd64"}}, "a")
	two := w.reg.Push("os/edge", registrytest.Image{Layers: []string{"arm"}, Platforms: []string{"linux/arm64"}}, "b")
	list := w.reg.Push("os/edge", registrytest.Image{Files: map[string]string{"packages": "openssl 3.0.2\nkernel 6.2\n"}}, "list")
	w.finishJob(amd, 0, one+"\npackages "+list+"\n")
	w.reconcileBuilds()
	if st := w.build(b.Name).Status; st.Phase != v1alpha1.BuildBuilding || st.Digest != "" {
		t.Errorf("%+v", st)
	}
	w.finishJob(arm, 0, two+"\n")
	w.reconcileBuilds()
	st := w.build(b.Name).Status
	if text := w.packages(st); text != "kernel 6.2\nopenssl 3.0.2\n" || st.PackageCount != 2 || st.PackagesSay != "2 packages" || w.has(list) {
		t.Errorf("%q %+v", text, st)
	}
	if st.Phase != v1alpha1.BuildSucceeded || fmt.Sprint(st.Platforms) != "[linux/amd64 linux/arm64]" || fmt.Sprint(st.Manifests) != fmt.Sprint([]string{one, two}) {
		t.Fatalf("%+v", st)
	}
	ref, err := name.NewDigest(w.reg.Ref("os/edge@" + st.Digest))
	w.must(err)
	idx, err := remote.Index(ref)
	w.must(err)
	m, err := idx.IndexManifest()
	w.must(err)
	var got []string
	for _, d := range m.Manifests {
		got = append(got, d.Platform.String()+" "+d.Digest.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64 " + one, "linux/arm64 " + two}, got); diff != "" {
		t.Error(diff)
	}
	w.reconcileBuilds()
	if err := w.admin.Get(context.Background(), client.ObjectKeyFromObject(amd), amd); err == nil && amd.DeletionTimestamp.IsZero() {
		t.Error("the Jobs of a build that succeeded stay")
	}
	// A fault of one is the build's, and says whose it is.
	w.editImage(func(s *v1alpha1.OSImageSpec) { s.Containerfile.Inline += "RUN false\n" })
	b = w.build(w.pool(w.reconcileAndBuild()).Wanted)
	w.finishJob(w.job(b.Name+"-amd64"), imagebuild.ExitUser, "RUN false failed")
	w.reconcileBuilds()
	if st := w.build(b.Name).Status; st.Phase != v1alpha1.BuildFailed || st.Log != "linux/amd64: RUN false failed" {
		t.Errorf("%+v", st)
	}
	// Without a Containerfile no builder runs: the status reports that spec.build has no effect.
	w.editImage(func(s *v1alpha1.OSImageSpec) { s.Containerfile = nil })
	o := w.reconcileAndBuild()
	if p := w.pool(o); p.State != "Use" || !strings.Contains(p.Message, "spec.build does not matter") || !strings.Contains(p.Message, "the packages are not known: the base has no database of dpkg or apk") {
		t.Errorf("%+v", p)
	}
	if raw, _ := json.Marshal(w.allBuilds()); strings.Contains(string(raw), "hush") {
		t.Error("a secret is in a build")
	}
}

func (w *site) packages(st v1alpha1.OSBuildStatus) string {
	w.t.Helper()
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: st.Packages}, &c))
	return c.Data
}

// The packages of every image are recorded, and the status of the image lists what changed.
func TestPackagesOfABase(t *testing.T) {
	w := newSite(t)
	base := func(version string) string {
		return w.reg.Push("os/base", registrytest.Image{Layers: []string{"kernel"}, Files: map[string]string{"var/lib/dpkg/status": "Package: openssl\nStatus: install ok installed\nVersion: " + version + "\n\nPackage: vim\nStatus: install ok installed\nVersion: 9\n"}}, "9")
	}
	w.base = base("3.0.1")
	w.create(w.osImage(), pool(), config())
	first := w.build(w.pool(w.reconcileAndBuild()).Build)
	if w.packages(first.Status) != "openssl 3.0.1\nvim 9\n" || first.Status.PackagesSay != "2 packages" || first.Status.PackagesFrom != "" {
		t.Fatalf("%+v", first.Status)
	}
	// Another layer over the same base: its list is known, and nothing is read for it.
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"nosmt"} })
	w.reconcile()
	w.reg.Requests()
	second := w.build(w.pool(w.reconcileAndBuild()).Build)
	if second.Name == first.Name || second.Status.Packages != first.Status.Packages || second.Status.PackagesSay != "no package changed" || second.Status.PackagesFrom != first.Name {
		t.Errorf("%+v", second.Status)
	}
	var read []string // its configuration alone
	for _, r := range w.reg.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.Path, "os/base/blobs/") {
			read = append(read, r.Path)
		}
	}
	if len(read) != 1 {
		t.Errorf("layers of the base were read again: %v", read)
	}
	newer := base("3.0.2")
	w.editImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = w.reg.Ref("os/base@" + newer) })
	p := w.pool(w.reconcileAndBuild())
	third := w.build(p.Build)
	if st := third.Status; st.PackagesSay != "1 package changed: openssl 3.0.1 -> 3.0.2" || fmt.Sprint(st.PackageChanges) != "[openssl 3.0.1 -> 3.0.2]" || !strings.Contains(p.Message, st.PackagesSay) {
		t.Errorf("%+v %s", st, p.Message)
	}
}
