package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	tracksNamespace = "tracks"
	trackedApp      = "web"
	trackedRepo     = "tracks/web"
	followed        = "2.6.2-rev1"
	trackedReplicas = 3
)

// trackSeen is what results/tracks.json keeps.
type trackSeen struct {
	Kubernetes string
	// Skew as refit reported it, before an approval.
	Skew string
	// PreloadedBefore: both workers held the digest while the template was still
	// untouched.
	PreloadedBefore bool
	// LowestReady of three pods with a budget of two, over Samples looks.
	LowestReady, Samples int
	// LowestEdge of two static pods while they were given a new build, node by node;
	// PutBackSeconds from the approval of a build that does not start to the old one
	// running again.
	LowestEdge     int
	PutBackSeconds float64
	// Drains while a network agent was replaced.
	Drains drainSeen
	// Seconds from the approval to the last pod, and of the way back.
	RollSeconds, BackSeconds float64
}

// TestTracks runs on real kubelets. A tag moves under running pods, and refit reports
// which digests run where. The approved digest is on the nodes before any pod is touched.
// The workload is rolled within its budget. Later polls do not undo a rollback, and an
// unreachable registry changes nothing that runs.
func TestTracks(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a tag moved under running pods takes a lab of its own: make e2e")
	}
	s := start(t, "tracks", 3)
	ctx := t.Context()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, dev))
	must(t, s.Eject(ctx, s.MediumNode, dev))
	w := &tracked{registrySite: newSite(t, s)}
	w.listen(t, "n1") // the controller may run there
	w.localRegistry(t)

	step(t, "three pods, of which one was started after the tag moved", w.moveUnderPods)
	step(t, "refit reports which node runs which digest, and changes nothing", w.skewIsSaid)
	step(t, "the approved digest is on the nodes before any pod is touched", w.preloaded)
	step(t, "the workload is rolled with its budget kept", w.rolled)
	step(t, "a rollback is done, and stays", w.rolledBack)
	step(t, "workers are drained before their network agent is replaced, one after the other", w.drained)
	e := &edge{tracked: w}
	step(t, "a static pod is named by its long tag, node by node", e.adopted)
	step(t, "an approved build is written by the agents, one node after the other, and nothing else changes", e.written)
	step(t, "a build that does not start is rolled back, and the next node is not started", e.putBack)
	step(t, "without the registry all containers continue, and refit reports it", w.withoutRegistry)
	w.seen.Kubernetes = from
	keepResult(t, "tracks.json", func() any { return w.seen })
}

type tracked struct {
	*registrySite
	old, now string // digests
	looks    int    // requests that the registry served since the roll-back
	seen     trackSeen
}

func (w *tracked) image() string { return registryAddress + "/" + trackedRepo + ":" + followed }

// moveUnderPods deploys the old build, has the tag move, and one pod start anew.
func (w *tracked) moveUnderPods(t *testing.T) {
	ctx := t.Context()
	w.old = w.publish(t, trackedRepo+":"+followed+"-b5.1", "old")
	w.registry.Tag(trackedRepo, w.old, followed)
	labels := map[string]string{"app": trackedApp}
	one, none, two, replicas, grace := intstr.FromInt32(1), intstr.FromInt32(0), intstr.FromInt32(2), int32(trackedReplicas), int64(2)
	at := metav1.ObjectMeta{Namespace: tracksNamespace, Name: trackedApp}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tracksNamespace}},
		&policyv1.PodDisruptionBudget{ObjectMeta: at, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one, MaxSurge: &none}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
					WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
				Containers: []corev1.Container{{Name: "app", Image: w.image(), ImagePullPolicy: corev1.PullAlways,
					Env:            []corev1.EnvVar{{Name: "LISTEN", Value: ":8080"}},
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}}}}}}},
	} {
		must(t, w.s.Client.Create(ctx, o))
	}
	w.until(t, "three pods run the old build", map[string]int{w.old: 3})
	w.now = w.publish(t, trackedRepo+":"+followed+"-b5.2", "new")
	w.registry.Tag(trackedRepo, w.now, followed)
	var l corev1.PodList
	must(t, w.s.Client.List(ctx, &l, client.InNamespace(tracksNamespace)))
	must(t, w.s.Client.Delete(ctx, &l.Items[0]))
	w.until(t, "a pod that was made again runs the new build", map[string]int{w.old: 2, w.now: 1})
}

// until the ready pods run so many of each digest.
func (w *tracked) until(t *testing.T, what string, want map[string]int) {
	t.Helper()
	w.untilPods(t, what, tracksNamespace, trackedApp, want)
}

// untilPods waits until the ready pods of an application run so many of each digest.
func (w *registrySite) untilPods(t *testing.T, what, namespace, app string, want map[string]int) {
	t.Helper()
	eventually(t, 3*time.Minute, what, func() (bool, string) {
		var l corev1.PodList
		if err := w.s.Client.List(t.Context(), &l, client.InNamespace(namespace), client.MatchingLabels{"app": app}); err != nil {
			return false, err.Error()
		}
		got := map[string]int{}
		for i := range l.Items {
			p := &l.Items[i]
			for _, c := range p.Status.ContainerStatuses {
				if c.Ready && p.DeletionTimestamp == nil {
					_, d, _ := strings.Cut(c.ImageID, "@")
					got[d]++
				}
			}
		}
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
	})
}

func (w *tracked) status(t *testing.T) (v1alpha1.ImageTrackStatus, error) {
	t.Helper()
	var o v1alpha1.ImageTrack
	err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: trackedApp}, &o)
	return o.Status, err
}

// says waits until a condition of the track has a reason.
func (w *tracked) says(t *testing.T, kind, reason string) metav1.Condition {
	t.Helper()
	var out metav1.Condition
	eventually(t, 3*time.Minute, "the track says "+reason, func() (bool, string) {
		st, err := w.status(t)
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(st.Conditions, kind)
		if c == nil {
			return false, "nothing yet"
		}
		out = *c
		return c.Reason == reason, c.Reason + ": " + c.Message
	})
	return out
}

func (w *tracked) template(t *testing.T) string {
	t.Helper()
	var d appsv1.Deployment
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Namespace: tracksNamespace, Name: trackedApp}, &d))
	return d.Spec.Template.Spec.Containers[0].Image
}

func (w *tracked) skewIsSaid(t *testing.T) {
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: trackedApp}, Spec: v1alpha1.ImageTrackSpec{
		Repository: registryAddress + "/" + trackedRepo, Follow: v1alpha1.TrackFollow{Tag: followed}, Mode: v1alpha1.ModeWrite, IntervalSeconds: 10,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: tracksNamespace, Name: trackedApp}}}}))
	c := w.says(t, v1alpha1.ConditionSkewed, v1alpha1.ReasonImageSkewed)
	w.seen.Skew = c.Message
	for _, word := range []string{w.old, w.now, followed + "-b5.1", followed + "-b5.2", "n2", "n3"} {
		if !strings.Contains(c.Message, word) {
			t.Errorf("it does not say %s: %s", word, c.Message)
		}
	}
	if r, err := w.s.Run(t.Context(), "tags", "status", trackedApp); err != nil || r.Code != 0 || !strings.Contains(r.Stdout, w.now) || !strings.Contains(r.Stdout, v1alpha1.DecisionApproval) {
		t.Errorf("refit tags status: %v %+v", err, r)
	}
	if got := w.template(t); got != w.image() {
		t.Errorf("it was changed before an approval: %s", got)
	}
}

// preloaded: refit may not write yet, so it can only bring the image.
func (w *tracked) preloaded(t *testing.T) {
	ctx := t.Context()
	r, err := w.s.Run(ctx, "tags", "approve", trackedApp, followed+"-b5.2")
	must(t, err)
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != w.now {
		t.Fatalf("refit tags approve: %+v", r)
	}
	c := w.says(t, v1alpha1.ConditionReady, v1alpha1.ReasonWorkloadBlocked)
	if !strings.Contains(c.Message, "rolebinding") {
		t.Errorf("it does not say what to do: %s", c.Message)
	}
	long := registryAddress + "/" + trackedRepo + ":" + followed + "-b5.2"
	w.seen.PreloadedBefore = w.template(t) == w.image()
	for _, node := range []string{"n2", "n3"} {
		held, err := w.s.Held(ctx, node, scenario.Bundle{Images: map[string]string{long: w.now}}, long)
		must(t, err)
		w.seen.PreloadedBefore = w.seen.PreloadedBefore && held
	}
	if !w.seen.PreloadedBefore {
		t.Error("the workers do not hold it under its long tag, or the template was touched before")
	}
}

// rolled: the right to write is given, and the pods are replaced.
func (w *tracked) rolled(t *testing.T) {
	ctx := t.Context()
	m := scenario.WatchWorkload(ctx, w.s.Client, tracksNamespace, map[string]string{"app": trackedApp})
	begin := time.Now()
	must(t, w.s.Client.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tracksNamespace, Name: "refit-image-writer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "refit-image-writer"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}}))
	w.until(t, "three pods run the approved digest", map[string]int{w.now: 3})
	w.seen.RollSeconds = time.Since(begin).Seconds()
	w.says(t, v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)
	w.seen.LowestReady, w.seen.Samples = m.Lowest()
	if w.seen.LowestReady < trackedReplicas-1 || w.seen.Samples == 0 {
		t.Errorf("of %d pods %d were ready, the budget wants 2 (%d looks)", trackedReplicas, w.seen.LowestReady, w.seen.Samples)
	}
	if got := w.template(t); got != w.image()+"@"+w.now {
		t.Errorf("the template names %s", got)
	}
}

func (w *tracked) rolledBack(t *testing.T) {
	begin := time.Now()
	r, err := w.s.Run(t.Context(), "tags", "rollback", trackedApp, "--reason", "a test")
	must(t, err)
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != w.old {
		t.Fatalf("refit tags rollback: %+v", r)
	}
	w.until(t, "three pods run what ran before", map[string]int{w.old: 3})
	w.seen.BackSeconds = time.Since(begin).Seconds()
	w.registry.Requests()
	eventually(t, 3*time.Minute, "the registry was asked three more times", func() (bool, string) {
		st, err := w.status(t)
		must(t, err)
		if st.Approved == nil || st.Approved.Digest != w.old {
			t.Fatalf("a look undid the roll-back: %+v", st.Approved)
		}
		w.looks += len(w.registry.Requests())
		return w.looks >= 3, fmt.Sprint(w.looks)
	})
	w.until(t, "and they still do", map[string]int{w.old: 3})
}

// withoutRegistry nothing that runs changes.
func (w *tracked) withoutRegistry(t *testing.T) {
	w.registry.Stop()
	w.says(t, v1alpha1.ConditionReady, v1alpha1.ReasonRegistryUnreachable)
	w.until(t, "three pods still run", map[string]int{w.old: 3})
	w.registry.Resume()
}
