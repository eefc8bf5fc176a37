package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	netAgent = "net"
	netRepo  = "tracks/net"
	netPort  = 18181
)

// drainSeen is what was seen while a network agent was replaced.
type drainSeen struct {
	// Order of the nodes that were cordoned, each once.
	Order []string
	// Samples while an agent was not Ready; in all of them its node was cordoned and had no pod
	// of the site.
	Samples int
	// LowestReady of the site's three pods, whose budget is two.
	LowestReady int
	Seconds     float64
}

// drained: the agent is a DaemonSet with OnDelete on both workers, in the network of the node. Its
// track drains each worker first.
func (w *tracked) drained(t *testing.T) {
	ctx := t.Context()
	ref := registryAddress + "/" + netRepo + ":" + followed
	first := w.publish(t, netRepo+":"+followed+"-b5.1", "net first")
	w.registry.Tag(netRepo, first, followed)
	labels, grace := map[string]string{"app": netAgent}, int64(1)
	must(t, w.s.Client.Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: tracksNamespace, Name: netAgent}, Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{HostNetwork: true, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "app", Image: ref, Env: []corev1.EnvVar{{Name: "LISTEN", Value: fmt.Sprintf(":%d", netPort)}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(netPort)}}}}}}}}}))
	w.agentsRun(t, first)
	must(t, w.s.Client.Create(ctx, &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: netAgent}, Spec: v1alpha1.ImageTrackSpec{
		Repository: registryAddress + "/" + netRepo, Follow: v1alpha1.TrackFollow{Tag: followed}, Mode: v1alpha1.ModeWrite, IntervalSeconds: 10, Drain: &v1alpha1.DrainOptions{},
		Targets: []v1alpha1.TrackTarget{{Kind: "DaemonSet", Namespace: tracksNamespace, Name: netAgent}}}}))
	second := w.publish(t, netRepo+":"+followed+"-b5.2", "net second")
	w.registry.Tag(netRepo, second, followed)
	eventually(t, 3*time.Minute, "the new build can be approved", func() (bool, string) {
		r, err := w.s.Run(ctx, "tags", "approve", netAgent, followed+"-b5.2", "--reason", "a test")
		must(t, err)
		return r.Code == 0, r.Stderr
	})
	begin := time.Now()
	site := scenario.WatchWorkload(ctx, w.s.Client, tracksNamespace, map[string]string{"app": trackedApp})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var wrong []string
	go func() { defer close(done); wrong = w.seen.Drains.watch(watching, w.s.Client) }()
	w.agentsRun(t, second)
	eventually(t, 3*time.Minute, "the track is done, and no node is cordoned", func() (bool, string) {
		var o v1alpha1.ImageTrack
		must(t, w.s.Client.Get(ctx, client.ObjectKey{Name: netAgent}, &o))
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		var nodes corev1.NodeList
		must(t, w.s.Client.List(ctx, &nodes))
		cordoned := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Spec.Unschedulable })
		return c.Reason == v1alpha1.ReasonAsExpected && !cordoned, fmt.Sprintf("%s: %s, cordoned %v", c.Reason, c.Message, cordoned)
	})
	stop()
	<-done
	seen := &w.seen.Drains
	seen.Seconds = time.Since(begin).Seconds()
	seen.LowestReady, _ = site.Lowest()
	slices.Sort(seen.Order)
	if len(wrong) > 0 || seen.Samples == 0 || fmt.Sprint(seen.Order) != "[n2 n3]" || seen.LowestReady < trackedReplicas-1 {
		t.Errorf("%+v: %s", *seen, strings.Join(wrong, "; "))
	}
	w.until(t, "three pods of the site run", map[string]int{w.old: 3})
}

// agentsRun waits until the agents of both workers are Ready with a digest.
func (w *tracked) agentsRun(t *testing.T, digest string) {
	t.Helper()
	eventually(t, 6*time.Minute, "both agents run "+digest, func() (bool, string) {
		var l corev1.PodList
		if err := w.s.Client.List(t.Context(), &l, client.InNamespace(tracksNamespace), client.MatchingLabels{"app": netAgent}); err != nil {
			return false, err.Error()
		}
		n := 0
		for i := range l.Items {
			p := &l.Items[i]
			if podReady(p) && strings.HasSuffix(p.Status.ContainerStatuses[0].ImageID, digest) {
				n++
			}
		}
		return n == 2, fmt.Sprintf("%d of 2", n)
	})
}

// watch samples the site until ctx ends. Nodes are read before pods: the node of an agent that is
// not Ready was cordoned some time before.
func (d *drainSeen) watch(ctx context.Context, c client.Client) (wrong []string) {
	for ctx.Err() == nil {
		var nodes corev1.NodeList
		var pods corev1.PodList
		if c.List(ctx, &nodes) == nil && c.List(ctx, &pods, client.InNamespace(tracksNamespace)) == nil {
			wrong = append(wrong, d.sample(nodes.Items, pods.Items)...)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return wrong
}

func (d *drainSeen) sample(nodes []corev1.Node, pods []corev1.Pod) (wrong []string) {
	for i := range nodes {
		n := &nodes[i]
		if n.Spec.Unschedulable && !slices.Contains(d.Order, n.Name) {
			d.Order = append(d.Order, n.Name)
		}
		replaced, of := "", 0
		var there []string
		for j := range pods {
			p := &pods[j]
			if p.Spec.NodeName != n.Name {
				continue
			}
			there = append(there, fmt.Sprintf("%s made %s %s ready %v leaves %v", p.Name, p.CreationTimestamp.UTC().Format(time.TimeOnly), p.Status.Phase, podReady(p), p.DeletionTimestamp))
			if p.Labels["app"] == netAgent && !podReady(p) {
				replaced = p.Name
			}
			if p.Labels["app"] == trackedApp {
				of++
			}
		}
		if replaced == "" {
			continue
		}
		d.Samples++
		if !n.Spec.Unschedulable || of > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: agent %s of %s is not Ready, cordoned %v, there are %s", time.Now().UTC().Format(time.TimeOnly), replaced, n.Name, n.Spec.Unschedulable, strings.Join(there, ", ")))
		}
	}
	return wrong
}
