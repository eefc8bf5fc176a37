//go:build linux

package osimages

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
)

// A pool's configuration becomes an image; what needs no reboot does not; going
// back is no build; a paused pool builds.
func TestAppendBuild(t *testing.T) {
	w := newSite(t)
	w.create(w.osImage(), pool(), config())
	o := w.reconcileAndBuild()
	first := w.pool(o)
	if c := ready(o); c.Status != metav1.ConditionTrue || first.State != "Use" || first.Build != first.Wanted || !strings.HasPrefix(first.Image, w.reg.Ref("os/edge@sha256:")) || first.Placed["image kargs.d"] != 1 {
		t.Fatalf("%+v %+v", c, first)
	}
	b := w.build(first.Build)
	if b.Status.Phase != v1alpha1.BuildSucceeded || b.Status.Copied != 0 || b.Status.FinishedAt == nil || b.Spec.Builder != "Append" || b.Spec.BuilderWhy == "" || fmt.Sprint(b.Status.Platforms) != "[linux/amd64]" {
		t.Errorf("%+v", b)
	}
	rs, err := oci.NewRegistries()
	w.must(err)
	root, err := rs.Open(t.Context(), first.Image)
	w.must(err)
	if _, err := oci.Walk(t.Context(), root, nil); err != nil {
		t.Error("the image is not whole:", err)
	}

	// A file whose change needs a reload is written by the agents: no build.
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.Files = []v1alpha1.NodeFile{inline("/etc/sysctl.d/9.conf", "a=1")} })
	o = w.reconcileAndBuild()
	if p := w.pool(o); p.State != "Keep" || p.Image != first.Image || len(w.allBuilds()) != 1 || !strings.Contains(p.Message, "file /etc/sysctl.d/9.conf (Reload systemd-sysctl.service)") || ready(o).Status != metav1.ConditionTrue {
		t.Errorf("%+v, %d builds", p, len(w.allBuilds()))
	}
	// One that no rule speaks of needs a reboot, and so an image.
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.Files = append(s.Files, inline("/etc/unknown.conf", "x")) })
	second := w.pool(w.reconcileAndBuild())
	if second.State != "Use" || second.Image == first.Image || len(w.allBuilds()) != 2 || !strings.Contains(w.build(second.Build).Spec.Why, "changed since "+first.Build+": configuration") {
		t.Errorf("%+v %+v", second, w.build(second.Build).Spec)
	}
	// Back: the image is there, and nothing is built.
	w.reg.Requests()
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.Files = nil })
	if p := w.pool(w.reconcileAndBuild()); p.Image != first.Image || p.Build != first.Build || len(w.allBuilds()) != 2 {
		t.Errorf("%+v", p)
	}
	for _, r := range w.reg.Requests() {
		if r.Method != http.MethodHead && r.Method != http.MethodGet {
			t.Errorf("the rollback to the first image wrote to the registry: %+v", r)
		}
	}
	// It vanished from the registry: the same build is made again, to the same digest.
	_, digest, _ := strings.Cut(first.Image, "@")
	w.reg.Delete("os/edge", digest)
	w.now = w.now.Add(hasEvery)
	if p := w.pool(w.reconcileAndBuild()); p.Image != first.Image || p.Build != first.Build {
		t.Errorf("%+v", p)
	}
	if w.build(first.Build).UID == b.UID {
		t.Error("it was not made again")
	}
}

// Inputs that change while a build runs interrupt it; what ended does not change
// any more; a controller that was cut off finds its build.
func TestInterrupted(t *testing.T) {
	w := newSite(t)
	w.create(w.osImage(), pool(), config())
	old := w.pool(w.reconcile()).Wanted
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"nosmt"} })
	o := w.reconcile()
	b := w.build(old)
	if b.Status.Phase != v1alpha1.BuildInterrupted || b.Status.FinishedAt == nil || ready(o).Reason != v1alpha1.ReasonImageBuilding || len(w.allBuilds()) != 2 {
		t.Fatalf("%+v %+v", b.Status, ready(o))
	}
	w.reconcileBuilds()
	if got := w.build(old).Status; got.Phase != v1alpha1.BuildInterrupted || got.Digest != "" {
		t.Errorf("an interrupted build was made: %+v", got)
	}
	b.Status.Phase = v1alpha1.BuildSucceeded
	if err := w.admin.Status().Update(context.Background(), b); err == nil || !strings.Contains(err.Error(), "does not change any more") {
		t.Errorf("an end can be changed: %v", err)
	}
	b = w.build(old)
	b.Spec.Base = "x/y@sha256:" + strings.Repeat("0", 64)
	if err := w.admin.Update(context.Background(), b); err == nil || !strings.Contains(err.Error(), "named by the hash") {
		t.Errorf("inputs can be changed: %v", err)
	}
	// The old inputs come back: its build is made again.
	w.reconcileAndBuild()
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"quiet"} })
	if p := w.pool(w.reconcileAndBuild()); p.Build != old || p.State != "Use" {
		t.Errorf("%+v", p)
	}
}

func refuse(status int) func(*http.Request) *http.Response {
	return func(*http.Request) *http.Response {
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil))}
	}
}

// The reasons distinguish an absent base, a denied request and an unreachable registry. A
// transient error is retried, a permanent one fails at once.
func TestFaults(t *testing.T) {
	w := newSite(t)
	w.create(w.osImage(), pool(), config())
	good := w.pool(w.reconcileAndBuild())

	w.now = w.now.Add(hasEvery)
	w.door.instead = refuse(http.StatusForbidden)
	if o := w.reconcile(); ready(o).Reason != v1alpha1.ReasonRegistryUnauthorized || w.pool(o).Image != good.Image {
		t.Errorf("denied: %+v", ready(o))
	}
	w.door.instead = nil
	w.reg.Stop()
	if o := w.reconcile(); ready(o).Reason != v1alpha1.ReasonRegistryUnreachable || w.pool(o).Image != good.Image || len(w.allBuilds()) != 1 {
		t.Errorf("unreachable: %+v", ready(o))
	}
	// A build without a reachable registry is tried four times, and the old image stays.
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"nosmt"} })
	w.reconcile()
	for i := range osbuild.Tries {
		w.reconcileBuilds()
		b := w.build(w.pool(w.reconcile()).Wanted)
		if failed := b.Status.Phase == v1alpha1.BuildFailed; failed != (i == osbuild.Tries-1) || b.Status.Attempts != int32(i+1) || b.Status.Log == "" {
			t.Fatalf("try %d: %+v", i+1, b.Status)
		}
	}
	o := w.reconcile()
	if c := ready(o); c.Reason != v1alpha1.ReasonImageBuildFailed || w.pool(o).Image != good.Image || w.pool(o).State != "Stuck" {
		t.Errorf("failed: %+v", c)
	}
	// The registry is back, and the rebuild annotation asks for one more try.
	w.reg.Resume()
	if p := w.pool(w.reconcileAndBuild()); p.State != "Stuck" {
		t.Errorf("it is tried for ever: %+v", p)
	}
	o.Annotations = map[string]string{v1alpha1.AnnotationRebuild: "1"}
	w.must(w.admin.Update(context.Background(), o))
	if p := w.pool(w.reconcileAndBuild()); p.State != "Use" || p.Image == good.Image {
		t.Errorf("asked again: %+v", p)
	}
	// A base that is not there fails at once.
	var image v1alpha1.OSImage
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &image))
	image.Spec.Base.Image = w.reg.Ref("os/base@sha256:" + strings.Repeat("0", 64))
	w.must(w.admin.Update(context.Background(), &image))
	o = w.reconcileAndBuild()
	if b := w.build(w.pool(o).Wanted); b.Status.Phase != v1alpha1.BuildFailed || b.Status.Attempts != 0 || !strings.Contains(b.Status.Log, "base") {
		t.Errorf("%+v", b.Status)
	}
}

// The tag of a tracked base moves, and the image of the pool is built again.
func TestFollowedBase(t *testing.T) {
	w := newSite(t)
	yes := true
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image, s.Base.Track = w.reg.Ref("os/base:9"), &yes }), pool(), config())
	o := w.reconcileAndBuild()
	first := w.pool(o)
	if o.Status.Base != w.reg.Ref("os/base@"+w.base) || first.State != "Use" {
		t.Fatalf("%+v", o.Status)
	}
	newer := w.pushBase("9.1")
	w.now = w.now.Add(trackEvery)
	o = w.reconcileAndBuild()
	p := w.pool(o)
	if o.Status.Base != w.reg.Ref("os/base@"+newer) || p.Image == first.Image || !strings.Contains(w.build(p.Build).Spec.Why, ": base") {
		t.Errorf("%+v %+v", o.Status, w.build(p.Build).Spec)
	}
	// The registry is unreachable: the last known base stays, and the status reports it.
	w.reg.Stop()
	w.now = w.now.Add(trackEvery)
	if o := w.reconcile(); ready(o).Reason != v1alpha1.ReasonRegistryUnreachable || w.pool(o).Image != p.Image {
		t.Errorf("%+v %+v", ready(o), w.pool(o))
	}
}

// Images that nodes run, want or can roll back to are kept; other images and their builds are deleted.
func TestGarbage(t *testing.T) {
	w := newSite(t)
	none := int32(0)
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Keep = &none }), pool(), config())
	var digests []string
	for i := range 3 {
		w.editConfig(func(s *v1alpha1.NodeConfigSpec) {
			s.KernelArguments = []v1alpha1.KernelArgument{v1alpha1.KernelArgument(fmt.Sprint("n=", i))}
		})
		w.reconcile()
		w.reconcileBuilds()
		o := w.reconcile()
		_, d, _ := strings.Cut(w.pool(o).Image, "@")
		digests = append(digests, d)
		if i == 0 {
			w.report("n1", map[string]string{"os/rollback": d})
		}
	}
	// A node that has not said what it has keeps everything.
	silent := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n2"}, Spec: v1alpha1.NodeUpdateSpec{Config: "config-x"}}
	w.must(w.r.Client.Create(context.Background(), silent))
	w.reconcileAndBuild()
	if n := len(w.allBuilds()); n != 3 {
		t.Errorf("%d builds are left while a node is silent", n)
	}
	w.must(w.r.Client.Delete(context.Background(), silent))
	w.reconcileAndBuild()
	there := map[string]bool{}
	for _, b := range w.allBuilds() {
		there[b.Status.Digest] = true
	}
	if !there[digests[0]] || there[digests[1]] || !there[digests[2]] {
		t.Errorf("kept %v of %v", there, digests)
	}
	for i, want := range []bool{true, false, true} {
		if got := w.has(digests[i]); got != want {
			t.Errorf("image %d is there: %v", i, got)
		}
	}
}

// A Containerfile is built by a Job; whose fault it is when it fails, and the end of
// the log, are in the OSBuild.
func TestContainerfile(t *testing.T) {
	w := newSite(t)
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) {
		s.Containerfile = &v1alpha1.OSContainerfile{Inline: "FROM fedora:41\n"}
		s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/buildah@sha256:" + strings.Repeat("a", 64)}
	}), pool(), config(), node("n1", "amd64"))
	o := w.reconcileAndBuild()
	if c := ready(o); c.Reason != v1alpha1.ReasonOSImageInvalid || !strings.Contains(c.Message, "does not come from configs") || len(w.allBuilds()) != 0 {
		t.Fatalf("a build was spent on a Containerfile that cannot be: %+v", c)
	}
	o.Spec.Containerfile.Inline = "FROM configs AS final\nRUN false\n"
	w.must(w.admin.Update(context.Background(), o))
	o = w.reconcileAndBuild()
	b := w.build(w.pool(o).Wanted)
	key := client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: b.Name}
	var job batchv1.Job
	var files corev1.ConfigMap
	w.must(w.admin.Get(context.Background(), key, &job))
	w.must(w.admin.Get(context.Background(), key, &files))
	if b.Status.Phase != v1alpha1.BuildBuilding || b.Status.Job != job.Name || b.Status.Variant != string(imagebuild.FileCapabilities) || !strings.Contains(b.Status.VariantWhy, "no user namespaces") {
		t.Errorf("%+v", b.Status)
	}
	text := files.Data["Containerfile"]
	if !strings.HasPrefix(text, "FROM "+w.reg.Ref("os/edge@sha256:")) || !strings.Contains(text, " AS configs\n\nFROM configs AS final\nRUN false\nRUN { if command -v rpm") {
		t.Error(text)
	}
	// Its pod may not make namespaces: another variant.
	w.finishJob(&job, imagebuild.ExitNamespaces, "unshare: Operation not permitted")
	for range 4 {
		w.reconcileBuilds()
	}
	b = w.build(b.Name)
	w.must(w.admin.Get(context.Background(), key, &job))
	if b.Status.Variant != string(imagebuild.Root) || fmt.Sprint(b.Status.Tried) != "["+string(imagebuild.FileCapabilities)+"]" || job.Spec.Template.Spec.SecurityContext.FSGroup != nil {
		t.Errorf("%+v", b.Status)
	}
	w.finishJob(&job, imagebuild.ExitUser, "STEP 2/2: RUN false\nerror: exit status 1")
	w.reconcileBuilds()
	if b = w.build(b.Name); b.Status.Phase != v1alpha1.BuildFailed || !strings.Contains(b.Status.Log, "RUN false") {
		t.Errorf("%+v", b.Status)
	}
	if c := ready(w.reconcile()); c.Reason != v1alpha1.ReasonImageBuildFailed || !strings.Contains(c.Message, "RUN false") {
		t.Errorf("%+v", c)
	}
	// The next one goes well.
	var image v1alpha1.OSImage
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &image))
	image.Spec.Containerfile.Inline = "FROM configs AS final\nRUN true\n"
	w.must(w.admin.Update(context.Background(), &image))
	w.reconcile()
	w.reconcileBuilds()
	b = w.build(w.pool(w.reconcile()).Wanted)
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: b.Name}, &job))
	digest := w.base // anything that the registry has; the Job's own work is not done here
	w.finishJob(&job, 0, digest+"\n")
	w.reconcileBuilds()
	if b = w.build(b.Name); b.Status.Phase != v1alpha1.BuildSucceeded || b.Status.Digest != digest {
		t.Errorf("%+v", b.Status)
	}
	w.reconcileBuilds()
	if err := w.admin.Get(context.Background(), client.ObjectKeyFromObject(&job), &job); err == nil && job.DeletionTimestamp.IsZero() {
		t.Error("the Job of a build that succeeded stays")
	}
}

// finishJob simulates the Job controller and the kubelet: the job ends with an exit code.
func (w *site) finishJob(job *batchv1.Job, code int32, message string) {
	w.t.Helper()
	ctx := context.Background()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, GenerateName: "p-", Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	w.create(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}}
	w.must(w.admin.Status().Update(ctx, p))
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	job.Status.StartTime = &now
	if code == 0 {
		job.Status.Succeeded, job.Status.CompletionTime = 1, &now
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	} else {
		job.Status.Failed = 1
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "PodFailurePolicy"}}
	}
	w.must(w.admin.Status().Update(ctx, job))
}
