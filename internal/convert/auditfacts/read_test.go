package auditfacts

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/model"
)

func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

const repo = "reg.example/shop/web"

// noon is when the node last reported.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func theNode(images ...[]string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.2.9", Architecture: "amd64"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(noon)}}
	for _, names := range images {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: names})
	}
	return n
}

// thePod runs an image since some minutes before noon.
func thePod(name, image, runs string, minutes int) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"pod-template-hash": "abc"}}}
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-abc", Controller: &yes}}
	p.Spec = corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "web", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Image: image, ImageID: runs,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))}}}}
	return p
}

// runsAs is the pod with another name of its image in its status.
func runsAs(p corev1.Pod, name string) corev1.Pod {
	p.Status.ContainerStatuses[0].Image = name
	return p
}

// What a crash of the first pod would run says what was learned of the node.
func crash(o Objects, registry string) string {
	f := o.Facts()
	a := restartforecast.New(f.Site()).Forecast(&f.Pods[0], &f.Pods[0].Uses[0], restartforecast.Crash, registry)
	to := "-"
	if a.To != "" {
		to = a.To[7:8]
	}
	return a.Outcome + " " + to + " " + a.Reason
}

func TestWhatIsLearnedOfANode(t *testing.T) {
	t.Parallel()
	tagged := repo + ":1"
	full := func(n int, last ...string) [][]string {
		out := [][]string{}
		for range n - 1 {
			out = append(out, []string{"reg.example/x:1"})
		}
		return append(out, last)
	}
	for sentence, c := range map[string]struct {
		o    Objects
		want string
	}{
		"the node's own list is believed": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a"), tagged})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "same a Cached"},
		"a tag that moved on the node since the pod started": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("b"), tagged}, []string{repo + "@" + d("a")})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "changes b TagMoved"},
		"a pod that started after the list was made knows better": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a"), tagged})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60), thePod("b", tagged, repo+"@"+d("b"), 0)}}, "changes b TagMoved"},
		"and is believed where the list has neither image yet": {Objects{Nodes: []corev1.Node{theNode([]string{"reg.example/x:1"})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 0)}}, "same a Cached"},
		"an image that was imported has no digest: its configuration speaks": {Objects{Nodes: []corev1.Node{theNode([]string{tagged})},
			Pods: []corev1.Pod{thePod("a", tagged, d("c"), 60)}}, "same c Cached"},
		"imported again under the tag, as a younger pod shows": {Objects{Nodes: []corev1.Node{theNode([]string{tagged})},
			Pods: []corev1.Pod{thePod("a", tagged, d("c"), 60), thePod("b", tagged, d("e"), 30)}}, "changes e TagMoved"},
		"a complete list without the name: it was removed": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a")})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "fails - NotCached"},
		"a cut off list without the name: what runs proves it": {Objects{Nodes: []corev1.Node{theNode(full(50, "reg.example/y:1")...)},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "same a Cached"},
		"a list of images that have five names may have cut off the sixth": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a"), repo + ":2", repo + ":3", repo + ":4", repo + ":5"})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "same a Cached"},
		"an empty list says nothing": {Objects{Nodes: []corev1.Node{theNode()}, Pods: []corev1.Pod{thePod("a", tagged, "", 60)}}, "unknown - NotKnown"},
		"a kubelet that reports all of its images": {Objects{Nodes: []corev1.Node{theNode(full(60, "reg.example/y:1")...)}, Kubelets: map[string]Kubelet{"n1": {MaxImages: ptr(-1)}},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "fails - NotCached"},
		"a digest that the runtime calls by its configuration has one repository": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a")})},
			Pods: []corev1.Pod{runsAs(thePod("a", repo+"@"+d("a"), repo+"@"+d("a"), 0), d("c"))}}, "same a Digest"},
		"a second repository of one content": {Objects{Nodes: []corev1.Node{theNode([]string{repo + "@" + d("a"), "mirror.example/web@" + d("a"), tagged})},
			Pods: []corev1.Pod{thePod("a", tagged, repo+"@"+d("a"), 60)}}, "unknown - Credentials"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := crash(c.o, restartforecast.Down); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func ptr(n int) *int { return &n }

// What an agent holds and pins is known of its node, once it has all of its list.
func TestHolding(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(model.PinSet{Images: []model.PinSetImage{{Name: repo + ":1", Digest: d("a")}, {Name: "reg.example/db:1", Digest: d("b")}}})
	if err != nil {
		t.Fatal(err)
	}
	list := v1alpha1.Content{Type: v1alpha1.ContentPins, Data: string(data)}
	list.Name = v1alpha1.ContentName(list.Type, list.Data)
	nu := v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	nu.Spec.Pins = list.Name
	nu.Status.Pins = &v1alpha1.PinStatus{Content: list.Name, ImagesTotal: 2, ImagesReady: 2, ImagesPinned: 2}
	nu.Status.Observed = &v1alpha1.Observed{Fields: map[string]string{model.FieldSandboxImage: "registry.k8s.io/pause:3.10.2"}}
	nu.Status.Health = &v1alpha1.NodeHealth{PullVerification: "AlwaysVerify"}
	o := Objects{Nodes: []corev1.Node{theNode([]string{repo + ":1"})}, NodeUpdates: []v1alpha1.NodeUpdate{nu}, Contents: []v1alpha1.Content{list}}
	n := o.Facts().Nodes[0]
	want := []model.CachedImage{{Names: []string{repo + ":1", repo + "@" + d("a")}, Pinned: true}, {Names: []string{"reg.example/db:1", "reg.example/db@" + d("b")}, Pinned: true}}
	if diff := cmp.Diff(want, n.Images); diff != "" || !n.PinnedKnown || n.Sandbox != "registry.k8s.io/pause:3.10.2" || n.Verification != "AlwaysVerify" {
		t.Errorf("%s\n%+v", diff, n)
	}
	for sentence, spoil := range map[string]func(){
		"one image is missing":             func() { o.NodeUpdates[0].Status.Pins.ImagesReady = 1 },
		"the report is about another list": func() { o.NodeUpdates[0].Status.Pins.Content = "pins-x" },
		"the list is not what its name is": func() { o.Contents[0].Data = "{}" },
	} {
		o.NodeUpdates[0].Status.Pins = &v1alpha1.PinStatus{Content: list.Name, ImagesTotal: 2, ImagesReady: 2, ImagesPinned: 2}
		spoil()
		if n := o.Facts().Nodes[0]; n.PinnedKnown || len(n.Images) != 1 {
			t.Errorf("%s, and it is believed: %+v", sentence, n)
		}
	}
}

// Init containers, sidecars, image volumes, static pods,
// workloads without pods.
func TestInventory(t *testing.T) {
	t.Parallel()
	p := thePod("etcd-n1", "reg.example/etcd:3", d("a"), 1)
	p.OwnerReferences = nil
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "a:1"}, {Name: "side", Image: "b:1", RestartPolicy: &always}}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "c:1"}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "d:1", PullPolicy: corev1.PullAlways}}}}
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "key"}}
	got, ok := Pod(&p)
	if !ok || !got.Static || !got.Critical || got.Owner() != "static pod shop/etcd" || !slices.Equal(got.Secrets, []string{"key"}) {
		t.Errorf("%+v", got)
	}
	var uses []string
	for _, u := range got.Uses {
		uses = append(uses, u.Kind+" "+u.Container+" "+u.Image+" "+string(u.Policy))
	}
	want := []string{"init init a:1 ", "sidecar side b:1 ", "container web reg.example/etcd:3 IfNotPresent", "ephemeral debug c:1 ", "volume model d:1 Always"}
	if diff := cmp.Diff(want, uses); diff != "" {
		t.Error(diff)
	}
	p.Status.Phase = corev1.PodSucceeded
	if _, ok := Pod(&p); ok {
		t.Error("a pod that has ended runs no image")
	}
}

const dump = `{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}},
{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"a"},"spec":{"nodeName":"n1","containers":[{"name":"a","image":"a:1","imagePullPolicy":"IfNotPresent"}]}},
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}},
{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"shop","name":"zero"},"spec":{"replicas":0,"template":{"spec":{"containers":[{"name":"z","image":"z:1"}]}}}},
{"apiVersion":"refit.dev/v1alpha1","kind":"ImageTrack","metadata":{"name":"t"},"spec":{"repository":"docker.io/library/a","scheme":"semver"},
 "status":{"tags":[{"tag":"1","digest":"` + "sha256:x" + `","serial":1,"longTag":"1.2.3"}],"history":[{"digest":"sha256:y","tag":"1","longTag":"1.2.2"}]}}
]}
{"kind":"DaemonSet","metadata":{"namespace":"kube-system","name":"agent"},"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"z","image":"z:1"}]}}}}
`

func TestDump(t *testing.T) {
	t.Parallel()
	o, err := ReadDump(strings.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	f := o.Facts()
	if len(f.Nodes) != 1 || len(f.Pods) != 1 || len(f.Templates) != 2 || f.AlwaysPull != restartforecast.AdmissionOff || f.Schemes["docker.io/library/a"] != "semver" || f.Previous["docker.io/library/a"] != "sha256:y" {
		t.Errorf("%+v", f)
	}
	if p := f.Published["docker.io/library/a:1"]; p.Digest != "sha256:x" || p.Long != "1.2.3" || f.Published["docker.io/library/a:1.2.2"].Digest != "sha256:y" {
		t.Errorf("what the track heard: %+v", f.Published)
	}
	var kinds []string
	for _, l := range o.Lint() {
		kinds = append(kinds, l.Kind+"/"+l.Name)
	}
	if diff := cmp.Diff([]string{"Deployment/zero", "DaemonSet/agent", "Pod/a", "Node/n1"}, kinds); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"no json", `{"kind":"List","items":[{"kind":"Pod","spec":7}]}`, `{"kind":"List","items":[3]}`, "[]"} {
		if _, err := ReadDump(strings.NewReader(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func FuzzDump(f *testing.F) {
	f.Add(dump)
	f.Fuzz(func(_ *testing.T, text string) {
		if o, err := ReadDump(strings.NewReader(text)); err == nil {
			o.Facts()
			o.Lint()
		}
	})
}

// Pods of a kind with an unknown template are checked once per owner. Pods of a listed
// workload are not, nor Jobs of a CronJob.
func TestPodsThatNoWorkloadHereMakes(t *testing.T) {
	t.Parallel()
	made := func(kind, by, name string) corev1.Pod {
		yes := true
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: by, Controller: &yes}}}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "reg.example/x:1", ImagePullPolicy: corev1.PullAlways}}
		return p
	}
	o := Objects{Pods: []corev1.Pod{made("Rollout", "web", "web-1"), made("Rollout", "web", "web-2"), made("DaemonSet", "cni", "cni-1"), made("Job", "clean-29012345", "c-1"),
		made("Job", "once", "once-1"), made("Node", "n1", "kube-apiserver-n1")}}
	o.Pods[5].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cni", Annotations: map[string]string{"meta.helm.sh/release-name": "net"}}}
	o.DaemonSets, o.CronJobs = append(o.DaemonSets, ds), append(o.CronJobs, batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "clean"}})
	fail := admissionv1.Fail
	o.Mutating = []admissionv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "kyverno"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "m", FailurePolicy: &fail,
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}}}}}}
	var got []string
	for _, x := range o.Lint() {
		line := x.Kind + "/" + x.Name + " by " + x.Owner
		for _, h := range x.Hooks {
			line += " hook " + h.Name
			if h.AsksPods && h.FailsClosed && h.Mutating {
				line += " asks"
			}
		}
		got = append(got, line)
	}
	want := []string{"DaemonSet/cni by Helm release shop/net", "CronJob/clean by ", "Rollout/web by the creator of Rollout shop/web", "Job/once by the creator of Job shop/once",
		"Pod/kube-apiserver-n1 by ", "MutatingWebhookConfiguration/kyverno by  hook m asks"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
