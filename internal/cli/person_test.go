package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// person types commands against a real API server; there is no controller.
type person struct {
	t          *testing.T
	kubeconfig string
	client.Client
	controller client.Client
}

func newPerson(t *testing.T) *person {
	t.Helper()
	cfg := apitest.Start(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(cfg), file); err != nil {
		t.Fatal(err)
	}
	a := inputs.Access{Kubeconfig: file}
	c, err := a.Client()
	if err != nil {
		t.Fatal(err)
	}
	as, err := client.New(apitest.As(cfg, apitest.ControllerUser), client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t, file, c, as}
	p.awaitPolicies()
	return p
}

// awaitPolicies waits until the API server has read what its admission policies compare
// with: until then it refuses what they are about.
func (p *person) awaitPolicies() {
	p.t.Helper()
	ctx := context.Background()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:" + strings.Repeat("0", 64)}}
	if err := p.Create(ctx, u); err != nil {
		p.t.Fatal(err)
	}
	probe := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "probe"}, Spec: v1alpha1.NodeUpdateSpec{Run: &v1alpha1.NodeRun{
		Name: u.Name, UID: string(u.UID), Bundle: u.Spec.Bundle, PlanDigest: "sha256:p", Attempt: 1, Steps: []v1alpha1.UpdateStep{}}}}
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = p.controller.Create(ctx, probe.DeepCopy(), client.DryRunAll); err != nil && strings.Contains(err.Error(), "is not open for this run") {
			if err := p.Delete(ctx, u); err != nil {
				p.t.Fatal(err)
			}
			return
		}
	}
	p.t.Fatalf("the admission policies do not come into force: %v", err)
}

func kubeconfigOf(cfg *rest.Config) clientcmdapi.Config {
	return clientcmdapi.Config{CurrentContext: "c",
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}}
}

// types runs a command and checks its exit code; it gives what was reported.
func (p *person) types(code int, args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	o := &options{Access: inputs.Access{Kubeconfig: p.kubeconfig, Out: &out, Err: &out}}
	root := rootOf("refit", o)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	said := out.String()
	if err != nil {
		said += err.Error()
	}
	got := console.ExitOK
	if err != nil {
		got = console.ExitCode(err)
	}
	if got != code {
		p.t.Errorf("refit %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, said)
	}
	return said
}

func (p *person) update(name, digit, phase string, started, finished time.Duration) {
	p.t.Helper()
	now := time.Now().Truncate(time.Second)
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Bundle: "sha256:" + strings.Repeat(digit, 64)}}
	if err := p.Create(context.Background(), u); err != nil {
		p.t.Fatal(err)
	}
	at := metav1.NewTime(now.Add(started))
	u.Status = v1alpha1.ClusterUpdateStatus{Phase: phase, StartedAt: &at}
	if finished != 0 {
		end := metav1.NewTime(now.Add(finished))
		u.Status.FinishedAt = &end
	}
	if err := p.controller.Status().Update(context.Background(), u); err != nil {
		p.t.Fatal(err)
	}
}

// What a person decides arrives in the API as it was reported, and what cannot be is
// refused with the way out.
func TestAPersonsVerbs(t *testing.T) {
	p := newPerson(t)
	ctx := context.Background()
	if err := p.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}); err != nil {
		t.Fatal(err)
	}
	node := func() map[string]string {
		var n corev1.Node
		if err := p.Get(ctx, client.ObjectKey{Name: "w1"}, &n); err != nil {
			t.Fatal(err)
		}
		return n.Annotations
	}
	p.types(console.ExitUsage, "hold", "w1")
	p.types(console.ExitUsage, "hold", "w9", "--reason", "x")
	p.types(console.ExitOK, "hold", "w1", "--reason", "a tape robot")
	if node()[v1alpha1.AnnotationHold] != "a tape robot" {
		t.Errorf("%v", node())
	}
	p.types(console.ExitOK, "release", "w1")
	if said := p.types(console.ExitOK, "release", "w1"); !strings.Contains(said, "was not on hold") {
		t.Errorf("%q", said)
	}
	if _, held := node()[v1alpha1.AnnotationHold]; held {
		t.Errorf("%v", node())
	}

	p.types(console.ExitUsage, "rollback")
	p.update("a", "a", v1alpha1.PhaseDone, -3*time.Hour, -2*time.Hour)
	p.update("b", "b", v1alpha1.PhaseUpdating, -time.Hour, 0)
	p.types(console.ExitOK, "pause")
	p.types(console.ExitOK, "retry")
	p.types(console.ExitOK, "retry", "--node", "w1")
	p.types(console.ExitOK, "retry", "b", "--node", "w1")
	var b v1alpha1.ClusterUpdate
	if err := p.Get(ctx, client.ObjectKey{Name: "b"}, &b); err != nil {
		t.Fatal(err)
	}
	if !b.Spec.Paused || b.Spec.Retry != 1 || len(b.Spec.RetryNodes) != 1 || b.Spec.RetryNodes[0] != (v1alpha1.NodeRetry{Name: "w1", Retry: 2}) {
		t.Errorf("%+v", b.Spec)
	}
	p.types(console.ExitOK, "resume")
	p.types(console.ExitUsage, "retry", "a")

	// The way back: what still moves nodes must end first, and only when it is reported.
	if said := p.types(console.ExitBlocked, "rollback"); !strings.Contains(said, "--end-current") {
		t.Errorf("%q", said)
	}
	if err := p.Get(ctx, client.ObjectKey{Name: "b"}, &b); err != nil {
		t.Fatalf("nothing is ended unasked: %v", err)
	}
	p.types(console.ExitInProgress, "rollback", "--end-current", "--timeout", "1s") // no controller runs here
	if err := p.Get(ctx, client.ObjectKey{Name: "b"}, &b); !apierrors.IsNotFound(err) {
		t.Errorf("b is still there: %v", err)
	}
	var l v1alpha1.ClusterUpdateList
	if err := p.List(ctx, &l); err != nil {
		t.Fatal(err)
	}
	for _, u := range l.Items {
		if u.Name != "a" && (u.Spec.Bundle != "sha256:"+strings.Repeat("a", 64) || !u.Spec.AllowDowngrade || u.Spec.Start != v1alpha1.StartManual) {
			t.Errorf("%s: %+v", u.Name, u.Spec)
		}
	}
	if len(l.Items) != 2 {
		t.Errorf("%d updates", len(l.Items))
	}
}
