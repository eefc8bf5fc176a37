package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestHelm installs refit's chart with Helm on a cluster of the lab, updates the cluster with health
// checks and load balancers, upgrades the chart without two areas, and uninstalls it.
func TestHelm(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("an update of a cluster of its own takes minutes: make e2e")
	}
	s := start(t, "helm", 3)
	keepStory(t, "helm.json")
	ctx := t.Context()
	version := putSelfImage(t, s)
	h := &action.Configuration{}
	settings := cli.New()
	settings.KubeConfig = s.Lab.Kubeconfig()
	settings.SetNamespace("kube-system")
	must(t, h.Init(settings.RESTClientGetter(), "kube-system", "secret", func(string, ...any) {}))
	values := func(areas bool) map[string]any {
		return map[string]any{"image": map[string]any{"tag": version}, "areas": map[string]any{"bootImages": areas, "osImages": areas}}
	}
	chart, err := loader.Load(filepath.Join("..", "..", "charts", "refit"))
	must(t, err)

	step(t, "helm install: the controller is ready, and the DaemonSet installs every agent", func(t *testing.T) {
		i := action.NewInstall(h)
		i.ReleaseName, i.Namespace, i.Wait, i.Timeout = "refit", "kube-system", true, 5*time.Minute
		_, err := i.RunWithContext(ctx, chart, values(true))
		must(t, err)
		agentsReport(t, s)
	})
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	_, err = s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	shop := openShop(t, s)
	var digest string
	step(t, "every node holds and pins every image", func(t *testing.T) {
		must(t, s.Approve(ctx, b))
		digest, err = s.Prepare(ctx, b)
		must(t, err)
	})
	step(t, "a health check of the pool closes the gate until it passes", func(t *testing.T) {
		shop(t, "no")
		gateSays(t, s, 3, "HealthCheckFailed", "ConfigMap default/shop: the shop is not open")
		shop(t, "yes")
		gateSays(t, s, 0)
	})
	left := watchBalancers(t, s)
	step(t, "a health check that fails after a node holds the next one", func(t *testing.T) {
		startUpdate(t, s)
		eventually(t, 10*time.Minute, "the first node is being updated", func() (bool, string) {
			v, _ := status(t, s)
			return len(v.Current) > 0, fmt.Sprintf("%s %v", v.Headline, v.Waiting)
		})
		shop(t, "no")
		eventually(t, 10*time.Minute, "the check holds the second node", func() (bool, string) {
			v, ok := status(t, s)
			waits := slices.ContainsFunc(v.Waiting, func(b explain.Blocker) bool { return b.Reason == v1alpha1.ReasonHealthCheckFailed })
			return ok && v.NodesDone == 1 && len(v.Current) == 0 && waits, fmt.Sprintf("%d done, now %v, %v", v.NodesDone, v.Current, v.Waiting)
		})
		shop(t, "yes")
	})
	step(t, "the update finishes by itself", func(t *testing.T) { finished(t, s, b, digest) })
	step(t, "each node left the load balancers before it was cordoned, and is back", func(t *testing.T) { left(t) })
	step(t, "helm upgrade without areas removes their kinds, and the agents go on", func(t *testing.T) {
		u := action.NewUpgrade(h)
		u.Namespace, u.Wait, u.Timeout = "kube-system", true, 5*time.Minute
		_, err := u.RunWithContext(ctx, "refit", chart, values(false))
		must(t, err)
		kinds, err := s.Output(ctx, "n1", "kubectl", "get", "crd", "-o", "name")
		must(t, err)
		if strings.Contains(kinds, "osimages.refit.dev") || strings.Contains(kinds, "bootimagestreams.refit.dev") || !strings.Contains(kinds, "nodeupdates.refit.dev") {
			t.Errorf("kinds: %s", kinds)
		}
		agentsReport(t, s)
	})
	step(t, "helm uninstall leaves the nodes as they are, and nothing of refit in the cluster", func(t *testing.T) {
		_, err := action.NewUninstall(h).Run("refit")
		must(t, err)
		nothingLeft(t, s)
		for _, n := range s.Lab.Nodes() {
			must(t, s.Exec(ctx, n, "refit-agent", "uninstall"))
			v, ready, err := s.Kubelet(ctx, n)
			if err != nil || !ready || v != to {
				t.Errorf("node %s: kubelet %s, ready %t, %v", n, v, ready, err)
			}
		}
	})
}

// putSelfImage puts refit's own image into the runtime of every node, as a registry would, and
// returns its tag.
func putSelfImage(t *testing.T, s *scenario.Scenario) (version string) {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	r, err := s.Run(ctx, "version")
	if err != nil || r.Code != 0 {
		t.Fatalf("refit version: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	version = strings.Fields(r.Stdout)[1]
	layout, archive := filepath.Join(dir, "image"), filepath.Join(dir, "image.tar")
	if r, err = s.Run(ctx, "self-image", "--output", layout); err != nil || r.Code != 0 {
		t.Fatalf("refit self-image: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	if out, err := exec.CommandContext(ctx, "skopeo", "--insecure-policy", "copy", "-q", "oci:"+layout, "docker-archive:"+archive+":refit.dev/refit:"+version).CombinedOutput(); err != nil {
		t.Fatalf("skopeo: %v: %s", err, out)
	}
	for _, n := range s.Lab.Nodes() {
		f, err := os.Open(archive)
		must(t, err)
		err = s.Lab.Exec(ctx, n, f, io.Discard, newLog(t), "ctr", "-n", "k8s.io", "images", "import", "--local", "-")
		f.Close()
		must(t, err)
	}
	return version
}

// agentsReport waits until the agent of every node has reported within the last seconds.
func agentsReport(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	began := time.Now()
	for _, n := range s.Lab.Nodes() {
		eventually(t, 3*time.Minute, "the agent of "+n+" reports", func() (bool, string) {
			nu, err := nodeUpdate(t, s, n)
			if err != nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
				return false, fmt.Sprint(err)
			}
			return !nu.Status.Agent.Heartbeat.Time.Before(began.Add(-time.Minute)), nu.Status.Agent.Heartbeat.String()
		})
	}
}

// openShop makes a pool of all nodes whose health check reads a ConfigMap, and leaves the load
// balancers for a while. It returns what opens and closes the shop.
func openShop(t *testing.T, s *scenario.Scenario) (set func(t *testing.T, open string)) {
	t.Helper()
	ctx := t.Context()
	shop := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Data: map[string]string{"open": "yes"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "health-checks-of-the-shop", Labels: map[string]string{v1alpha1.LabelHealthChecks: "true"}},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}}}
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.UpdatePoolSpec{LoadBalancerSeconds: 10, HealthChecks: []v1alpha1.HealthCheck{{
		Name: "shop", Message: "the shop is not open", Expression: "object.data.open == 'yes'", Objects: v1alpha1.CheckedObjects{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "shop"}}}}}
	for _, o := range []client.Object{shop, role, pool} {
		must(t, s.Client.Create(ctx, o))
	}
	return func(t *testing.T, open string) {
		t.Helper()
		change := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"open":"`+open+`"}}`))
		eventually(t, time.Minute, "the shop is changed", func() (bool, string) { // the API server may be unavailable
			err := s.Client.Patch(ctx, shop.DeepCopy(), change)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// gateSays waits until refit gate has an exit code and says all words.
func gateSays(t *testing.T, s *scenario.Scenario, code int, words ...string) {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprintf("refit gate: exit code %d", code), func() (bool, string) {
		r, err := s.Run(t.Context(), "gate")
		missing := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.Stdout, w) })
		return err == nil && r.Code == code && !missing, fmt.Sprintf("exit code %d, %v: %s", r.Code, err, r.Stdout)
	})
}

// watchBalancers follows the label that takes nodes out of external load balancers. The returned
// function checks that each worker had it before it was cordoned, and has it no more. kubeadm gives
// it to control planes, where it stays.
func watchBalancers(t *testing.T, s *scenario.Scenario) func(t *testing.T) {
	t.Helper()
	const controlPlane = "n1"
	var mu sync.Mutex
	out, late := map[string]bool{}, map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
			var nodes corev1.NodeList
			if s.Client.List(ctx, &nodes) != nil {
				continue
			}
			mu.Lock()
			for i := range nodes.Items {
				n := &nodes.Items[i]
				_, label := n.Labels[corev1.LabelNodeExcludeBalancers]
				out[n.Name] = out[n.Name] || label && !n.Spec.Unschedulable
				late[n.Name] = late[n.Name] || n.Spec.Unschedulable && !label
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func(t *testing.T) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range s.Lab.Nodes() {
			var n corev1.Node
			must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: name}, &n))
			if _, label := n.Labels[corev1.LabelNodeExcludeBalancers]; !out[name] || late[name] || label != (name == controlPlane) {
				t.Errorf("node %s: left the load balancers before the cordon %t, cordoned without the label %t, is out now %t", name, out[name], late[name], label)
			}
		}
	}
}

// nothingLeft waits until the cluster has neither kinds nor namespaces nor rights of refit.
func nothingLeft(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	eventually(t, 3*time.Minute, "nothing of refit is left", func() (bool, string) {
		for _, ns := range []string{v1alpha1.SystemNamespace, v1alpha1.NodesNamespace, v1alpha1.BuildsNamespace} {
			if err := s.Client.Get(t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return false, fmt.Sprintf("namespace %s: %v", ns, err)
			}
		}
		out, err := s.Output(t.Context(), "n1", "kubectl", "get", "crd,clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name")
		return err == nil && !strings.Contains(out, "refit"), out
	})
}
