package bundlecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// runningCluster is a real API server, and a registry with the images of its objects.
type runningCluster struct {
	t      *testing.T
	cfg    *rest.Config
	client client.Client
	host   string
}

func newRunningCluster(t *testing.T) *runningCluster {
	t.Helper()
	cfg := apitest.Start(t)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &runningCluster{t: t, cfg: cfg, client: c, host: strings.TrimPrefix(server.URL, "http://")}
}

// push writes a new image under a name below the registry, and returns it.
func (c *runningCluster) push(image string) v1.Image {
	c.t.Helper()
	img, err := random.Image(1000, 1)
	if err == nil {
		err = remote.Write(c.ref(image), img)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return img
}

func (c *runningCluster) ref(image string) name.Reference {
	c.t.Helper()
	ref, err := name.ParseReference(c.host + "/" + image)
	if err != nil {
		c.t.Fatal(err)
	}
	return ref
}

// id is what a runtime reports for an image.
func (c *runningCluster) id(repository string, img v1.Image) string {
	return c.host + "/" + repository + "@" + digestOfImage(c.t, img)
}

func digestOfImage(t *testing.T, img interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// create makes an object, and then writes the status that it had.
func (c *runningCluster) create(o client.Object) {
	c.t.Helper()
	with := o.DeepCopyObject().(client.Object)
	if err := c.client.Create(c.t.Context(), o); err != nil {
		c.t.Fatalf("%T %s: %v", o, o.GetName(), err)
	}
	with.SetResourceVersion(o.GetResourceVersion())
	with.SetUID(o.GetUID())
	switch x := with.(type) {
	case *corev1.Pod, *corev1.Node, *appsv1.ReplicaSet, *batchv1.Job:
		if err := c.client.Status().Update(c.t.Context(), x); err != nil {
			c.t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

// containers are a specification and the status of running ones: name=image or
// name=image=imageID.
func (c *runningCluster) pod(namespace, podName string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, s := range containers {
		parts := strings.Split(s, "=")
		image := c.host + "/" + parts[1]
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: parts[0], Image: image})
		if len(parts) > 2 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: parts[0], Image: image, ImageID: parts[2],
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}
	}
	return p
}

// kubeconfig writes a file for a user of the server; "" is the administrator.
func (c *runningCluster) kubeconfig(user string) string {
	c.t.Helper()
	info := clientcmdapi.NewAuthInfo()
	info.ClientCertificateData, info.ClientKeyData = c.cfg.CertData, c.cfg.KeyData
	if info.Impersonate = user; user != "" {
		info.ImpersonateGroups = []string{"system:authenticated"}
	}
	out := clientcmdapi.NewConfig()
	out.Clusters["real"] = &clientcmdapi.Cluster{Server: c.cfg.Host, CertificateAuthorityData: c.cfg.CAData}
	out.AuthInfos["u"] = info
	out.Contexts["site"] = &clientcmdapi.Context{Cluster: "real", AuthInfo: "u"}
	out.CurrentContext = "site"
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*out, file); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// refit runs a command as a user.
func (c *runningCluster) refit(user string, args ...string) result {
	c.t.Helper()
	return refitWith(c.t, &inputs.Access{Kubeconfig: c.kubeconfig(user)}, args...)
}

func (c *runningCluster) images(args ...string) imagesView {
	c.t.Helper()
	r := c.refit("", append([]string{"bundle", "images", "-o", "json"}, args...)...)
	var v imagesView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != console.ExitOK {
		c.t.Fatalf("%v, exit %d: %s", err, r.code, r.err)
	}
	return v
}

func meta(namespace, objectName string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: objectName}
}

func ownedBy(o metav1.ObjectMeta, apiVersion, kind, owner string) metav1.ObjectMeta {
	yes := true
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, UID: "3f1e7c3a-8a45-4a2b-9a55-0b1c2d3e4f50", Controller: &yes}}
	return o
}

var (
	appLabels   = map[string]string{"app": "a"}
	appSelector = &metav1.LabelSelector{MatchLabels: appLabels}
)

func (c *runningCluster) template(containers ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: appLabels}, Spec: c.pod("", "", containers...).Spec}
	return t
}

// fill makes the objects of a small kubeadm cluster. The tag app:1 moved since its pods started.
func (c *runningCluster) fill() (runs, moved v1.Image) {
	c.t.Helper()
	runs = c.push("app:1")
	for _, image := range []string{"init:1", "sidecar:1", "cron:1", "static:1", "debug:1", "data:1", "prometheus:1", "daemon:1", "db:1", "job:1", "test:1"} {
		c.push(image)
	}
	for _, image := range []string{"kube-apiserver:v1.36.3", "kube-controller-manager:v1.36.3", "kube-scheduler:v1.36.3", "kube-proxy:v1.36.3", "coredns:v1.14.2", "pause:3.10.2", "etcd:3.6.8-0"} {
		c.push("k8s/" + image)
	}
	app := c.template("app=app:1")
	app.Spec.InitContainers = []corev1.Container{{Name: "init", Image: c.host + "/init:1"}}
	none, one := int32(0), int32(1)
	c.create(&appsv1.Deployment{ObjectMeta: meta("default", "app"), Spec: appsv1.DeploymentSpec{Selector: appSelector, Template: app}})
	c.create(&appsv1.ReplicaSet{ObjectMeta: ownedBy(meta("default", "app-2"), "apps/v1", "Deployment", "app"), Spec: appsv1.ReplicaSetSpec{Replicas: &one, Selector: appSelector, Template: app},
		Status: appsv1.ReplicaSetStatus{Replicas: 1}})
	c.create(&appsv1.ReplicaSet{ObjectMeta: ownedBy(meta("default", "app-1"), "apps/v1", "Deployment", "app"), Spec: appsv1.ReplicaSetSpec{Replicas: &none, Selector: appSelector, Template: c.template("app=old:1")}})
	c.create(&appsv1.DaemonSet{ObjectMeta: meta("default", "daemon"), Spec: appsv1.DaemonSetSpec{Selector: appSelector, Template: c.template("daemon=daemon:1")}})
	c.create(&appsv1.StatefulSet{ObjectMeta: meta("default", "db"), Spec: appsv1.StatefulSetSpec{Selector: appSelector, Template: c.template("db=db:1")}})
	job := c.template("job=cron:1")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	c.create(&batchv1.CronJob{ObjectMeta: meta("default", "cron"), Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: job}}}})
	job = c.template("job=job:1")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	c.create(&batchv1.Job{ObjectMeta: meta("default", "unfinished"), Spec: batchv1.JobSpec{Template: job}})
	ended := c.template("job=done:1")
	ended.Spec.RestartPolicy = corev1.RestartPolicyNever
	at := metav1.NewTime(time.Now())
	c.create(&batchv1.Job{ObjectMeta: meta("default", "done"), Spec: batchv1.JobSpec{Template: ended}, Status: batchv1.JobStatus{StartTime: &at, Failed: 1,
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}})
	for i := range 3 {
		p := c.pod("default", fmt.Sprintf("app-2-%d", i), "app=app:1="+c.id("app", runs), "sidecar=sidecar:1")
		p.ObjectMeta = ownedBy(p.ObjectMeta, "apps/v1", "ReplicaSet", "app-2")
		c.create(p)
	}
	over := c.pod("default", "over", "x=over:1")
	over.Status.Phase = corev1.PodSucceeded
	c.create(over)
	static := c.pod("kube-system", "static-n1", "s=static:1")
	static.Spec.NodeName = "n1"
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	c.create(static)
	volume := c.pod("default", "volume", "app=app:1")
	volume.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: c.host + "/data:1"}}}}
	// JSON has characters that YAML refuses.
	volume.Annotations = map[string]string{"odd": "\u007f\u0085\ufeff😀", lastAppliedKey: `{"image":"` + c.host + `/earlier:1"}`}
	c.create(volume)
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: c.host + "/debug:1", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent}}
	if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(volume), volume); err != nil {
		c.t.Fatal(err)
	}
	volume.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
	if err := c.client.SubResource("ephemeralcontainers").Update(c.t.Context(), volume); err != nil {
		c.t.Fatal(err)
	}
	c.create(&corev1.Namespace{ObjectMeta: meta("", "test-1")})
	c.create(c.pod("test-1", "test", "t=test:1"))
	c.create(&corev1.Node{ObjectMeta: meta("", "n1"), Status: corev1.NodeStatus{Images: []corev1.ContainerImage{
		{Names: []string{c.host + "/sandbox/pause@" + digestOfImage(c.t, c.push("sandbox/pause:3.8")), c.host + "/sandbox/pause:3.8"}, SizeBytes: 1},
		{Names: []string{c.host + "/leftover:1"}, SizeBytes: 1}, {Names: []string{"<none>@<none>", "<none>:<none>"}, SizeBytes: 1}}}})
	c.create(&corev1.ConfigMap{ObjectMeta: meta("kube-system", "kubeadm-config"), Data: map[string]string{
		"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\nimageRepository: " + c.host + "/k8s\netcd: {local: {dataDir: /var/lib/etcd}}\n"}})
	c.custom()
	return runs, c.push("app:1")
}

const lastAppliedKey = "kubectl.kubernetes.io/last-applied-configuration"

// custom makes a custom resource of the table.
func (c *runningCluster) custom() {
	c.t.Helper()
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: meta("", "prometheuses.monitoring.coreos.com"), Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "monitoring.coreos.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "prometheuses", Kind: "Prometheus"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}}}}}}
	if _, err := envtest.InstallCRDs(c.cfg, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
		c.t.Fatal(err)
	}
	// The status of a custom resource may have any form.
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": map[string]any{"namespace": "default", "name": "main"},
		"spec": map[string]any{"image": c.host + "/prometheus:1", "replicas": "many"}, "status": "fine"}}
	c.create(o)
}

// kubeadmDir has the kubeadm of the API server, which prints the list.
func kubeadmDir(t *testing.T) string {
	t.Helper()
	dir := apitest.Binaries()
	if _, err := os.Stat(filepath.Join(dir, "kubeadm")); err != nil || runtime.GOOS != "linux" {
		t.Skipf("no kubeadm: %v", err)
	}
	if !strings.Contains(dir, "v1.36.3") {
		t.Skipf("%s is not v1.36.3", dir)
	}
	return dir
}

// Every image that a cluster uses is found where it stands, and what ended is left out.
func TestImagesOfACluster(t *testing.T) {
	c := newRunningCluster(t)
	runs, _ := c.fill()
	v := c.images("cluster:site", "--kubernetes-from", kubeadmDir(t), "--exclude-namespace", "test-*", "--exclude-image", "*/db:1")
	var got []string
	for _, r := range v.References {
		got = append(got, strings.Join([]string{r.state(), strings.TrimPrefix(r.Image, c.host+"/"), r.Rule, r.Object, r.Path}, " "))
	}
	slices.Sort(got)
	config := "ConfigMap/kube-system/kubeadm-config data.ClusterConfiguration"
	want := []string{
		"excluded db:1 container StatefulSet/default/db spec.template.spec.containers[0].image",
		"included app:1 container Deployment/default/app spec.template.spec.containers[0].image",
		"included app:1 container Pod/default/volume spec.containers[0].image",
		"included cron:1 container CronJob/default/cron spec.jobTemplate.spec.template.spec.containers[0].image",
		"included daemon:1 container DaemonSet/default/daemon spec.template.spec.containers[0].image",
		"included data:1 image-volume Pod/default/volume spec.volumes[0].image.reference",
		"included debug:1 container Pod/default/volume spec.ephemeralContainers[0].image",
		"included init:1 container Deployment/default/app spec.template.spec.initContainers[0].image",
		"included job:1 container Job/default/unfinished spec.template.spec.containers[0].image",
		"included k8s/coredns:v1.14.2 kubeadm-list " + config, "included k8s/etcd:3.6.8-0 kubeadm-list " + config,
		"included k8s/kube-apiserver:v1.36.3 kubeadm-list " + config, "included k8s/kube-controller-manager:v1.36.3 kubeadm-list " + config,
		"included k8s/kube-proxy:v1.36.3 kubeadm-list " + config, "included k8s/kube-scheduler:v1.36.3 kubeadm-list " + config, "included k8s/pause:3.10.2 kubeadm-list " + config,
		"included prometheus:1 custom-resource-field Prometheus/default/main spec.image",
		"included sandbox/pause:3.8 sandbox-image Node/n1 status.images",
		"included sidecar:1 container Pod/default/app-2-0 spec.containers[1].image",
		"included static:1 container Pod/kube-system/static-n1 spec.containers[0].image",
		"maybe leftover:1 node-status Node/n1 status.images",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	i := slices.IndexFunc(v.References, func(r referenceView) bool { return r.Image == c.host+"/app:1" })
	if diff := cmp.Diff([]string{digestOfImage(t, runs)}, v.References[i].Running); diff != "" {
		t.Error(diff)
	}
	if r := c.refit("", "bundle", "images", "cluster:other"); r.code == console.ExitOK || !strings.Contains(r.err, "other") {
		t.Errorf("a context that is not there: exit %d: %s", r.code, r.err)
	}
}

// bundleOf creates a bundle of the cluster and returns its images by name below the registry.
func (c *runningCluster) bundleOf(args ...string) (map[string]string, result) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "b")
	r := c.refit("", append([]string{"bundle", "create", "--output", file, "--unsigned", "--version", "1.0.0"}, args...)...)
	if r.code != console.ExitOK {
		return nil, r
	}
	images, err := inputs.ReadBundleImages(file)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for k, d := range images {
		out[strings.TrimPrefix(k, c.host+"/")] = d
	}
	return out, r
}

// A bundle has what runs, also if its tag moved; the choice is the user's.
func TestBundleOfACluster(t *testing.T) {
	c := newRunningCluster(t)
	runs, moved := c.fill()
	c.push("leftover:1")
	args := []string{"cluster:", "--kubernetes-from", kubeadmDir(t), "--exclude-namespace", "test-*"}
	images, r := c.bundleOf(args...)
	if r.code != console.ExitOK || len(images) != 19 || images["app:1"] != digestOfImage(t, runs) {
		t.Fatalf("exit %d, %d images, app:1 is %s: %s", r.code, len(images), images["app:1"], r.err)
	}
	for _, want := range []string{"app:1: the tag moved. The bundle has what runs, " + digestOfImage(t, runs) + " (3 containers", "the tag has " + digestOfImage(t, moved) + " now", "--cluster-tags registry", "leftover:1 may be an image (node-status)"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in %s", want, r.err)
		}
	}
	images, r = c.bundleOf(append(args, "--cluster-tags", "registry", "--cluster-node-images")...)
	if r.code != console.ExitOK || len(images) != 20 || images["app:1"] != digestOfImage(t, moved) {
		t.Errorf("exit %d, %d images, app:1 is %s: %s", r.code, len(images), images["app:1"], r.err)
	}
	// Without a digest in the registry there is nothing to restart with.
	if err := remote.Delete(c.ref("app@" + digestOfImage(t, runs))); err != nil {
		t.Fatal(err)
	}
	if _, r = c.bundleOf(args...); r.code != console.ExitBlocked || !strings.Contains(r.err, "any more") || !strings.Contains(r.err, "--cluster-tags registry") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// Images come from a mirror under their own names.
func TestBundleOfAClusterFromAMirror(t *testing.T) {
	c := newRunningCluster(t)
	img := c.push("copy/team/app:1")
	p := c.pod("default", "p", "app=x:1")
	p.Spec.Containers[0].Image = "registry.invalid/team/app:1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "registry.invalid/team/app:1", ImageID: "registry.invalid/team/app@" + digestOfImage(t, img)}}
	c.create(p)
	images, r := c.bundleOf("cluster:", "--kubernetes-images", "docker://"+c.host+"/copy")
	if diff := cmp.Diff(map[string]string{"registry.invalid/team/app:1": digestOfImage(t, img)}, images); diff != "" {
		t.Errorf("%s: %s", diff, r.err)
	}
	if !strings.Contains(r.err, "no sandbox image is known") {
		t.Error(r.err)
	}
}

// Runtimes report the digest of an index, of a platform, or an ID. All are the same image.
func TestRunningDigests(t *testing.T) {
	c := newRunningCluster(t)
	c.create(c.pod("default", "old", "a=two:1=example/two@"+digestOfImage(t, c.push("two:1"))))
	c.create(c.pod("default", "new", "a=two:1=example/two@"+digestOfImage(t, c.push("two:1"))))
	c.create(c.pod("default", "lost", "a=lost:1=example/lost@"+digestOfImage(t, c.push("lost:1"))))
	c.create(c.pod("default", "lost2", "a=lost:1=example/lost@"+digestOfImage(t, c.push("lost:1"))))
	c.push("lost:1")
	single := c.push("single:1")
	config, err := single.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	c.create(c.pod("default", "single", "a=single:1="+config.String()))
	c.create(c.pod("default", "unknown", "a=unknown:1=sha256:"+strings.Repeat("b", 64)))
	c.push("unknown:1")
	var index v1.ImageIndex = empty.Index
	var platforms []v1.Image
	for _, arch := range []string{"amd64", "arm64"} {
		img := c.push("scratch:" + arch)
		platforms = append(platforms, img)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if err := remote.WriteIndex(c.ref("multi:1"), index); err != nil {
		t.Fatal(err)
	}
	armConfig, err := platforms[1].ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	c.create(c.pod("default", "m1", "a=multi:1="+c.id("multi", platforms[0])))
	c.create(c.pod("default", "m2", "a=multi:1="+armConfig.String()))
	c.create(c.pod("default", "gone", "a=gone:1="+c.id("gone", c.push("gone:2"))))
	c.create(c.pod("default", "bare", "a=untagged"))
	_, r := c.bundleOf("cluster:")
	for _, want := range []string{"lost:1: containers run different images", "unknown:1: containers run the image with the ID", "Pod/default/bare spec.containers[0].image: image reference", "has no tag"} {
		if r.code != console.ExitBlocked || !strings.Contains(r.err, want) {
			t.Errorf("exit %d, no %q in %s", r.code, want, r.err)
		}
	}
	images, r := c.bundleOf("cluster:", "--exclude-image", "*/lost:*", "--exclude-image", "*/unknown:*", "--exclude-image", "*/untagged")
	want := []string{digestOfImage(t, single), digestOfImage(t, index), digestOfImage(t, remoteImage(t, c.ref("gone:2"))), digestOfImage(t, remoteImage(t, c.ref("two:1")))}
	if diff := cmp.Diff(want, []string{images["single:1"], images["multi:1"], images["gone:1"], images["two:1"]}); diff != "" || !strings.Contains(r.err, "two:1: containers run different images under this tag") {
		t.Errorf("%s: %s", diff, r.err)
	}
}

func remoteImage(t *testing.T, ref name.Reference) v1.Image {
	t.Helper()
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// roleOfTheDocs is the access that docs/how-to/your-own-cluster.md asks for.
func roleOfTheDocs(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	page, err := os.ReadFile("../../../docs/how-to/your-own-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		for _, doc := range strings.Split(string(block[1]), "---\n") {
			var o unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(o.GetAPIVersion(), "rbac.authorization.k8s.io/") {
				out = append(out, o)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("the page has no role")
	}
	return out
}

// Kinds that the account must not list are named. The documented role is enough, and reads only.
func TestBundleOfAClusterNeedsRights(t *testing.T) {
	c := newRunningCluster(t)
	c.fill()
	dir := kubeadmDir(t)
	file := filepath.Join(t.TempDir(), "b")
	r := c.refit("stranger", "bundle", "create", "--output", file, "--unsigned", "cluster:", "--kubernetes-from", dir)
	for _, want := range []string{"pods", "deployments.apps", "prometheuses.monitoring.coreos.com", "nodes", "configmaps/kubeadm-config in kube-system", "--cluster-partial"} {
		if r.code != console.ExitBlocked || !strings.Contains(r.err, want) {
			t.Errorf("exit %d, no %q in %s", r.code, want, r.err)
		}
	}
	for _, role := range roleOfTheDocs(t) {
		if err := c.client.Create(t.Context(), &role); err != nil {
			t.Fatal(err)
		}
	}
	r = c.refit("release-engineer", "bundle", "images", "-o", "json", "cluster:", "--kubernetes-from", dir)
	var v imagesView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v: %s", err, r.err)
	}
	if diff := cmp.Diff([]string{"prometheuses.monitoring.coreos.com"}, v.Denied); diff != "" || r.code != console.ExitBlocked {
		t.Errorf("exit %d: %s", r.code, diff)
	}
	r = c.refit("release-engineer", "bundle", "create", "--output", file, "--unsigned", "--version", "1.0.0", "cluster:", "--kubernetes-from", dir, "--cluster-partial")
	if r.code != console.ExitOK || !strings.Contains(r.err, "without prometheuses.monitoring.coreos.com") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// fakeAPI answers lists of pods as a test wants, and others with an empty list.
func fakeAPI(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			t.Errorf("%s %s", r.Method, r.URL)
		case r.URL.Path == "/api/v1/pods":
			answer(w, r)
		case strings.HasSuffix(r.URL.Path, "kubeadm-config"):
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		default:
			io.WriteString(w, `{"metadata":{},"items":null}`)
		}
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

const onePod = `{"metadata":{"namespace":"a","name":"p"},"spec":{"containers":[{"name":"c","image":"registry.example/a:1"}]}}`

// An answer that ends early, repeats, or is no list ends the command with the reason.
func TestHostileAnswersOfACluster(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"metadata":{},"items":[` + onePod + `]`: "ends before the list does",
		`{"metadata":{},"items":[` + onePod + `,`: "ends before the list does",
		`{"metadata":{},"items":[{"metadata":`:    "ends before the list does",
		``:                                        "ends before the list does",
		`[]`:                                      "is no list",
		`{"items":{"a":1}}`:                       "not a list",
		`{"items":[null]}`:                        "no object",
		`{"items":[{"metadata":{"name":7}}]}`:     "metadata",
		`{"metadata":{"continue":"same"},"items":[]}`:       "same page again",
		`{"items":[{"metadata":{"name":"p"},"spec":"x"}]}`:  "Pod/p: spec",
		`{"items":["` + strings.Repeat("x", 33<<20) + `"]}`: "more than 33554432 bytes",
	} {
		cfg := fakeAPI(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		_, err := inputs.ReadClusterImages(t.Context(), inputs.ClusterOptions{Config: cfg})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "list pods") {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

// A list that got too old goes on where the server says, and a full answer is complete.
func TestAListThatGetsOld(t *testing.T) {
	t.Parallel()
	cfg := fakeAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("continue") {
		case "":
			io.WriteString(w, `{"metadata":{"continue":"1"},"items":[`+onePod+`]}`)
		case "1":
			w.WriteHeader(http.StatusGone)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"2"},"status":"Failure","reason":"Expired","code":410}`)
		case "2":
			io.WriteString(w, `{"items":[`+strings.ReplaceAll(strings.ReplaceAll(onePod, `"p"`, `"q"`), "a:1", "b:1")+`],"metadata":{}}`)
		}
	})
	images, err := inputs.ReadClusterImages(t.Context(), inputs.ClusterOptions{Config: cfg})
	if err != nil || len(images.Refs) != 2 || images.Refs[1].String() != "Pod/a/q" || images.Kubeadm != nil {
		t.Errorf("%+v %v", images, err)
	}
}
