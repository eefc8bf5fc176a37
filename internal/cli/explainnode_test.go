package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/render"
)

// kubeconfig writes a configuration as a file that the command line reads.
func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Impersonate: cfg.Impersonate.UserName, ImpersonateGroups: cfg.Impersonate.Groups}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// refit explain node/NAME, asked of a real API server: every pod of the node,
// who holds it, and what this update says; nothing is evicted by asking.
func TestExplainANode(t *testing.T) {
	cfg := apitest.Start(t)
	var out bytes.Buffer
	o := &options{Access: inputs.Access{Kubeconfig: kubeconfig(t, cfg), Out: &out, Err: &out}, output: render.JSON}
	c, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	yes, two := true, intstr.FromInt32(2)
	must(c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}))
	for name, labels := range map[string]map[string]string{"web-1": {"app": "web"}, "local": {"tier": "local"}} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "c", Image: "example.test/web:v1"}}}}
		must(c.Create(ctx, p))
	}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	must(c.Create(ctx, b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, CurrentHealthy: 2, DesiredHealthy: 2, ExpectedPods: 2}
	must(c.Status().Update(ctx, b))
	must(c.Create(ctx, &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:" + strings.Repeat("a", 64),
		Drain: &v1alpha1.DrainOptions{SkipSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "local"}}}}}))

	must(o.explainNode(ctx, "n2"))
	var v render.DrainView
	must(json.Unmarshal(out.Bytes(), &v))
	if len(v.Pods) != 2 || v.Pods[0].Pod != "default/web-1" || v.Pods[0].Fate != v1alpha1.PodRefused || !strings.Contains(v.Pods[0].Fix, "can never be met") || v.Pods[1].Fate != v1alpha1.PodSkipped {
		t.Errorf("%+v", v.Pods)
	}
	if !strings.Contains(v.Options, "pods with tier=local stay") || !strings.Contains(v.Headline, "1 pod to evict (1 blocked), 1 pod stays") {
		t.Errorf("%q %q", v.Headline, v.Options)
	}
	var pods corev1.PodList
	must(c.List(ctx, &pods, client.InNamespace("default")))
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			t.Errorf("asking has evicted %s", p.Name)
		}
	}
	if err := o.explainNode(ctx, "n9"); console.ExitCode(err) != console.ExitUsage {
		t.Errorf("a node that is not there: %v", err)
	}
}
