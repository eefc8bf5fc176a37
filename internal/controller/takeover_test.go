package controller_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/test/results"
)

// replica is a controller in a process of its own.
type replica struct {
	*exec.Cmd
	log *bytes.Buffer
}

// startReplica runs the program as its Deployment does, with its pod's name.
func startReplica(t *testing.T, binary, kubeconfig, name string) *replica {
	t.Helper()
	r := &replica{exec.Command(binary, "-kubeconfig", kubeconfig, "-identity", name, "-health-address", "0", "-metrics-address", "0"), &bytes.Buffer{}}
	r.Stderr = r.log
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	return r
}

// kill is SIGKILL; it returns when the process is gone.
func (r *replica) kill() {
	_ = r.Process.Kill() // it may have ended
	_ = r.Wait()
}

// kubeconfigAs writes a file with which a process is a user.
func kubeconfigAs(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Impersonate: cfg.Impersonate.UserName, ImpersonateGroups: cfg.Impersonate.Groups}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// cordons counts how often each node was cordoned, from the watch of the API server.
type cordons struct {
	mu   sync.Mutex
	is   map[string]bool
	seen map[string]int
}

func countCordons(t *testing.T, cfg *rest.Config) *cordons {
	t.Helper()
	w, err := newWatcher(t, cfg).Watch(context.Background(), &corev1.NodeList{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	out := &cordons{is: map[string]bool{}, seen: map[string]int{}}
	go func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			out.mu.Lock()
			if n.Spec.Unschedulable && !out.is[n.Name] {
				out.seen[n.Name]++
			}
			out.is[n.Name] = n.Spec.Unschedulable
			out.mu.Unlock()
		}
	}()
	return out
}

func (c *cordons) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.seen {
		n += k
	}
	return n
}

// within is site.wait with another patience: a lease lasts for minutes.
func (s *site) within(limit time.Duration, what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	s.t.Fatalf("waited in vain for %v: %s", limit, what)
}

// The leader's process is killed while a node runs its steps: the standby takes over
// when the lease has run out, the update goes on, and nothing is done twice.
func TestStandbyTakesOver(t *testing.T) {
	if testing.Short() {
		t.Skip("a lease runs out in minutes")
	}
	s := newSite(t, from)
	s.stop()
	var seen struct {
		LeaseSeconds float64
		// TakeoverSeconds from SIGKILL to the standby's lease, and to the first node
		// that it began.
		TakeoverSeconds, NextNodeSeconds float64
		Nodes                            int
	}
	if os.Getenv("REFIT_E2E") != "" { // the file is in the page of evidence: not every run changes it
		results.Keep(t, filepath.Join("testdata", "results", "takeover.json"), func() any { return seen })
	}
	binary := filepath.Join(t.TempDir(), "refit-controller")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "github.com/refit-dev/refit/cmd/refit-controller").CombinedOutput(); err != nil {
		t.Fatalf("build refit-controller: %v\n%s", err, out)
	}
	who := kubeconfigAs(t, apitest.As(s.cfg, apitest.ControllerUser))
	counted := countCordons(t, s.cfg)
	lease := func() *coordinationv1.Lease {
		var l coordinationv1.Lease
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}, &l); err != nil {
			return &coordinationv1.Lease{}
		}
		return &l
	}
	holds := func(name string) func() bool {
		return func() bool { h := lease().Spec.HolderIdentity; return h != nil && *h == name }
	}
	leader := startReplica(t, binary, who, "replica-a")
	// The controller that newSite started may still have its lease.
	s.within(4*time.Minute, "the first replica leads", holds("replica-a"))
	standby := startReplica(t, binary, who, "replica-b")
	defer func() {
		if t.Failed() {
			leader.kill() // a living process still writes its log
			standby.kill()
			t.Logf("leader:\n%s\nstandby:\n%s", leader.log, standby.log)
		}
	}()

	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	for _, n := range []string{"n2", "n3"} {
		s.create(owned(pod("default", "web-"+n, n, "web"), map[string]string{"app": "web"}))
	}
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.slow = true })
	}
	runs := func() (n int) {
		for _, a := range s.agents {
			a.set(func(a *simAgent) { n += a.runs })
		}
		return n
	}
	s.update("u", d, nil)
	s.within(patience, "a node runs its steps", func() bool { return runs() == 1 })
	transitions := *lease().Spec.LeaseTransitions
	leader.kill()
	killed := time.Now()
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.slow = false })
	}
	started := counted.total()
	s.within(5*time.Minute, "the standby leads", func() bool {
		if n := counted.total(); n != started && !holds("replica-b")() {
			t.Fatalf("%d nodes were started while no replica led", n-started)
		}
		return holds("replica-b")()
	})
	seen.TakeoverSeconds = time.Since(killed).Seconds()
	seen.LeaseSeconds = float64(*lease().Spec.LeaseDurationSeconds)
	s.within(patience, "the standby starts the next node", func() bool { return runs() > 1 })
	seen.NextNodeSeconds = time.Since(killed).Seconds()
	s.waitUpdate("u", "the update is done", phase(v1alpha1.PhaseDone))
	if got := *lease().Spec.LeaseTransitions; got != transitions+1 {
		t.Errorf("the lease changed hands %d times", got-transitions)
	}
	for name, a := range s.agents {
		if n := s.node(name); n.Status.NodeInfo.KubeletVersion != to || n.Spec.Unschedulable || len(markings(n)) > 0 {
			t.Errorf("%s is not done: %v", name, n.Annotations)
		}
		a.set(func(a *simAgent) {
			if a.runs != 1 || a.undone != 0 {
				t.Errorf("%s ran %d times and was undone %d times", name, a.runs, a.undone)
			}
		})
		counted.mu.Lock()
		if n := counted.seen[name]; n != 1 {
			t.Errorf("%s was cordoned %d times", name, n)
		}
		counted.mu.Unlock()
	}
	seen.Nodes = len(s.agents)
	t.Logf("%+v", seen)
}
