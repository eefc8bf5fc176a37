package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestNodesThatComeLater runs on real nodes. One joins with the taint from
// its kubelet's registration, one in a pool that asks for it; one loses its disk. Each
// gets everything from its peers, with no stick and no registry, and no pod is
// bound to it before every image of the bundle is pinned there.
func TestNodesThatComeLater(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that join later take a lab of their own: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "later", From: from, To: to, Nodes: 4, Later: 2, MediumNode: "n2"})
	keepStory(t, "later.json")
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	install := func(t *testing.T, hosts string) {
		t.Helper()
		if r, err := s.Run(ctx, "install", "--from", b.Path, "--ssh", hosts, "--rsh", s.Rsh()); err != nil || r.Code != 0 {
			t.Fatalf("install on %s: %+v, %v", hosts, r, err)
		}
	}
	step(t, "the first nodes hold the bundle, and the stick is pulled", func(t *testing.T) {
		install(t, "n1,n2:"+device)
		must(t, s.Approve(ctx, b))
		_, err := s.Prepare(ctx, b)
		must(t, err)
		must(t, s.Eject(ctx, s.MediumNode, device))
		must(t, s.Client.Create(ctx, &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.UpdatePoolSpec{StartupTaint: true}}))
		must(t, s.Client.Create(ctx, oneOnEach(s)))
	})
	step(t, "a node that registers with the taint is let in when it holds everything", func(t *testing.T) {
		must(t, s.Lab.Join(ctx, "n3", v1alpha1.TaintImagesNotReady))
		keptOut(t, s, "n3")
		install(t, "n3")
		podAfterImages(t, s, b, "n3")
	})
	step(t, "a node of a pool that asks is kept out at first sight", func(t *testing.T) {
		must(t, s.Lab.Join(ctx, "n4"))
		keptOut(t, s, "n4")
		install(t, "n4")
		podAfterImages(t, s, b, "n4")
	})
	step(t, "a node whose disk was replaced is reported, and filled again before it takes pods", func(t *testing.T) {
		must(t, s.Exec(ctx, "n4", "systemctl", "stop", "refit-agent"))
		must(t, s.Exec(ctx, "n4", "rm", "-rf", "/var/lib/refit"))
		for name := range s.Needed(b, "n4") {
			must(t, s.RemoveImage(ctx, "n4", name))
		}
		must(t, s.Exec(ctx, "n4", "systemctl", "start", "refit-agent"))
		eventually(t, 2*time.Minute, "the controller says that the store is another", func() (bool, string) {
			return eventOf(t, s, "n4", v1alpha1.ReasonStoreReplaced, "until it holds and pins everything again")
		})
		eventually(t, 5*time.Minute, "n4 holds and pins everything again and is let in", func() (bool, string) {
			missing := notPinned(t, s, b, "n4")
			tainted := taintOf(t, s, "n4") != nil
			if !tainted && len(missing) > 0 {
				t.Fatalf("n4 takes pods without %v", missing)
			}
			return !tainted, fmt.Sprintf("%d images missing", len(missing))
		})
	})
	for _, n := range []string{"n1", "n2"} {
		if ok, _ := eventOf(t, s, n, v1alpha1.ReasonNodeJoining, ""); ok {
			t.Errorf("node %s was there before and was kept out", n)
		}
	}
}

// oneOnEach is a workload that wants one pod on every worker.
func oneOnEach(s *scenario.Scenario) *appsv1.Deployment {
	replicas := int32(3)
	label := map[string]string{"app": "one-on-each"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one-on-each"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: label},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "pause", Image: s.FromRelease().Pause().Name, ImagePullPolicy: corev1.PullIfNotPresent}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, TopologyKey: corev1.LabelHostname}}}}}}}}
}

func taintOf(t *testing.T, s *scenario.Scenario, node string) *corev1.Taint {
	t.Helper()
	var n corev1.Node
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &n))
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == v1alpha1.TaintImagesNotReady {
			return &n.Spec.Taints[i]
		}
	}
	return nil
}

// bound reports whether a pod of the workload is bound to the node.
func bound(t *testing.T, s *scenario.Scenario, node string) bool {
	t.Helper()
	var pods corev1.PodList
	must(t, s.Client.List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"app": "one-on-each"}))
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
}

// keptOut: the node is Ready, carries the taint, and has no pod of the workload.
func keptOut(t *testing.T, s *scenario.Scenario, node string) {
	t.Helper()
	_, ready, err := s.Kubelet(t.Context(), node)
	must(t, err)
	if taint := taintOf(t, s, node); !ready || taint == nil || taint.Effect != corev1.TaintEffectNoSchedule || bound(t, s, node) {
		t.Fatalf("node %s: Ready %v, taint %v, a pod is there %v", node, ready, taint, bound(t, s, node))
	}
}

// podAfterImages waits for the workload's pod; by then CRI reports every image as pinned.
func podAfterImages(t *testing.T, s *scenario.Scenario, b scenario.Bundle, node string) {
	t.Helper()
	eventually(t, 5*time.Minute, "a pod comes to "+node, func() (bool, string) {
		there := bound(t, s, node)
		missing := notPinned(t, s, b, node)
		if there && len(missing) > 0 {
			t.Fatalf("a pod came to %s, which misses %v", node, missing)
		}
		return there, fmt.Sprintf("%d images missing, taint %v", len(missing), taintOf(t, s, node))
	})
	if nu, err := nodeUpdate(t, s, node); err != nil || nu.Status.Pins == nil || nu.Status.Pins.BytesFromMedia != 0 {
		t.Errorf("node %s got something from a medium: %+v, %v", node, nu.Status.Pins, err)
	}
}

// notPinned are the images of the bundle that a node's CRI does not show as pinned
// under their name and digest.
func notPinned(t *testing.T, s *scenario.Scenario, b scenario.Bundle, node string) (missing []string) {
	t.Helper()
	c, err := s.CRI(node)
	must(t, err)
	defer c.Close()
	all, err := c.Images(t.Context())
	must(t, err)
	for name, digest := range s.Needed(b, node) {
		ok := false
		for _, i := range all {
			ok = ok || i.Pinned && slices.Contains(i.Tags, name) && slices.ContainsFunc(i.Digests, func(d string) bool { return strings.HasSuffix(d, "@"+digest) })
		}
		if !ok {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

func eventOf(t *testing.T, s *scenario.Scenario, node, reason, says string) (bool, string) {
	t.Helper()
	var l eventsv1.EventList
	must(t, s.Client.List(t.Context(), &l))
	var seen []string
	for _, e := range l.Items {
		if e.Regarding.Kind == "Node" && e.Regarding.Name == node {
			seen = append(seen, e.Reason)
			if e.Reason == reason && strings.Contains(e.Note, says) {
				return true, ""
			}
		}
	}
	return false, fmt.Sprint(seen)
}
