package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/peerapi"
)

// ownAddress is an address of this machine that the API server's proxy may connect to.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// logSite is a real API server, a controller that runs as installed behind its Service, and nodes.
type logSite struct {
	*person
	cfg     *rest.Config
	address string
}

func newLogSite(t *testing.T) *logSite {
	t.Helper()
	address := ownAddress(t)
	cfg := apitest.Start(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(cfg), file); err != nil {
		t.Fatal(err)
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &logSite{person: &person{t, file, c, c}, cfg: cfg, address: address}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	s.service(port)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := controller.Run(ctx, controller.Options{Config: apitest.As(cfg, apitest.ControllerUser), Identity: "pod-1", Log: logr.Discard(), Registry: prometheus.NewRegistry(), MetricsAddress: fmt.Sprintf(":%d", port)})
		if err != nil && ctx.Err() == nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

func (s *logSite) make(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		st := o.DeepCopyObject().(client.Object)
		if err := s.Create(context.Background(), o); err != nil {
			s.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		st.SetResourceVersion(o.GetResourceVersion())
		st.SetUID(o.GetUID())
		switch o.(type) {
		case *corev1.Node, *corev1.Pod:
			if err := s.Client.Status().Update(context.Background(), st); err != nil {
				s.t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
			}
		}
	}
}

// service makes the Service of an installation, and its endpoint: the controller of this test.
func (s *logSite) service(port int) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: "pod-1"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: s.address, PodIPs: []corev1.PodIP{{IP: s.address}}}}
	s.make(pod,
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "metrics", Port: 18742, TargetPort: intstr.FromInt(port)}}}},
		&corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Name: "metrics", Port: int32(port)}}, //nolint:staticcheck // the API server's proxy reads Endpoints
			Addresses: []corev1.EndpointAddress{{IP: s.address, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: meta.Namespace, Name: "pod-1"}}}}}})
}

// agent makes a node with an agent whose journal is given.
func (s *logSite) agent(name string, h func(*peerapi.Identity) http.Handler) {
	s.t.Helper()
	key, _, err := peerapi.NewKey()
	if err != nil {
		s.t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h(id))
	srv.TLS = id.ServerTLS(func(string) bool { return true })
	srv.StartTLS()
	s.t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	s.make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	own, err := client.New(apitest.AsNode(s.cfg, name), client.Options{Scheme: s.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // the controller makes the NodeUpdate and grants it
		var nu v1alpha1.NodeUpdate
		if err = own.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &nu); err == nil {
			nu.Status.Agent = &v1alpha1.AgentInfo{Version: "v1", Address: srv.Listener.Addr().String(), PublicKey: id.PublicKey()}
			err = own.Status().Update(context.Background(), &nu)
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("node %s: %v", name, err)
		}
	}
}

// user is a person with the rights of the Role for readers of logs, or without.
func (s *logSite) user(name string, allowed bool) *person {
	s.t.Helper()
	u := apitest.Certificate(s.t, s.cfg, name, "people")
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(u), file); err != nil {
		s.t.Fatal(err)
	}
	if allowed {
		s.make(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "refit-log-reader"},
			Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: name}}})
	}
	return &person{s.t, file, s.Client, s.Client}
}

// eventually repeats a command while the controller starts and the API server reads new bindings.
func (p *person) eventually(want string, args ...string) {
	p.t.Helper()
	said := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		var out bytes.Buffer
		root := rootOf("refit", accessOf(p.kubeconfig, &out))
		root.SetArgs(args)
		err := root.ExecuteContext(context.Background())
		if said = out.String(); err != nil {
			said += err.Error()
		}
		if strings.Contains(said, want) {
			return
		}
	}
	p.t.Fatalf("refit %s: %s, want %q", strings.Join(args, " "), said, want)
}

const journal = `2026-11-27T12:00:00+00:00 n1 refit-agent[7]: level=INFO msg="agent started" node=n1
2026-11-27T12:00:01+00:00 n1 refit-agent[7]: level=INFO msg="step started" update=to-136 step=kubeadm reason=Updating
2026-11-27T12:00:02+00:00 n1 refit-agent[7]: level=INFO msg="of kubeadm"
2026-11-27T12:00:03+00:00 n1 refit-agent[7]: level=INFO msg="step started" update=to-136 step=kubelet reason=Updating
2026-11-27T12:00:04+00:00 n1 refit-agent[7]: level=INFO msg="of kubelet"
2026-11-27T12:00:05+00:00 n1 refit-agent[7]: level=INFO msg="run finished" update=to-136 state=Succeeded
2026-11-27T12:00:06+00:00 n1 refit-agent[7]: level=INFO msg="afterwards"
`

// A person reads the log of a node through a real API server and a controller with the rights of
// an installation; others get nothing, and every refusal has its fix.
func TestLogsThroughTheAPIServer(t *testing.T) {
	s := newLogSite(t)
	asked := make(chan peerapi.LogQuery, 100)
	s.agent("n1", func(*peerapi.Identity) http.Handler {
		return peerapi.WithLogs(http.NotFoundHandler(), func(string) bool { return true }, func(_ context.Context, q peerapi.LogQuery, w io.Writer) error {
			asked <- q
			_, err := io.WriteString(w, journal)
			return err
		})
	})
	s.agent("old", func(*peerapi.Identity) http.Handler { return http.NotFoundHandler() })
	reader, stranger := s.user("reader", true), s.user("stranger", false)

	s.eventually("afterwards", "logs", "n1")
	if said := s.types(console.ExitOK, "logs", "n1"); said != journal {
		t.Errorf("%q", said)
	}
	reader.eventually("afterwards", "logs", "n1")
	for len(asked) > 0 {
		<-asked
	}
	if said := reader.types(console.ExitOK, "logs", "n1", "--step", "kubelet", "--since", "90s", "--tail", "20"); strings.Contains(said, "of kubeadm") || !strings.Contains(said, "of kubelet") || strings.Contains(said, "afterwards") || strings.Count(said, "\n") != 3 {
		t.Errorf("%s", said)
	}
	if q := <-asked; q != (peerapi.LogQuery{Lines: 20, Since: 90 * time.Second}) {
		t.Errorf("%+v", q)
	}
	for _, tc := range []struct {
		as   *person
		code int
		args []string
		want string
	}{
		{stranger, console.ExitBlocked, []string{"logs", "n1"}, "create rolebinding log-reader --role=refit-log-reader"},
		{reader, console.ExitBlocked, []string{"logs", "n9"}, `there is no node "n9" with an agent`},
		{reader, console.ExitBlocked, []string{"logs", "old"}, "is older than this controller"},
		{reader, console.ExitOK, []string{"logs", "n1", "--step", "nothing"}, "the log has no step nothing; its steps: kubeadm, kubelet"},
		{reader, console.ExitUsage, []string{"logs", "n1", "--tail", "0"}, "want 1 to 10000"},
		{reader, console.ExitUsage, []string{"logs", "n1", "--since", "-1h"}, "want at least 1s"},
	} {
		if said := tc.as.types(tc.code, tc.args...); !strings.Contains(said, tc.want) {
			t.Errorf("%q: %s, want %q", tc.args, said, tc.want)
		}
	}
	s.checkDirect(reader)
}

// checkDirect asks the controller itself, without the command: other tokens of a user are not
// valid, nor is none.
func (s *logSite) checkDirect(reader *person) {
	s.t.Helper()
	var out bytes.Buffer
	o := accessOf(reader.kubeconfig, &out)
	for name, token := range map[string]string{"no token": "", "a token of another audience": s.apiToken()} {
		body, err := o.openLog(s.t.Context(), "n1", token, peerapi.LogQuery{Lines: 1})
		if err == nil {
			_ = body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "token") {
			s.t.Errorf("%s: %v", name, err)
		}
	}
}

// apiToken is a token of the readers' account for the API server itself.
func (s *logSite) apiToken() string {
	s.t.Helper()
	tr := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: peerapi.LogReader}}
	if err := s.SubResource("token").Create(context.Background(), account, tr); err != nil {
		s.t.Fatal(err)
	}
	return tr.Status.Token
}

func accessOf(kubeconfig string, out io.Writer) *options {
	return &options{Access: inputs.Access{Kubeconfig: kubeconfig, Out: out, Err: out}}
}

// A log that is followed comes line by line and ends with the command.
func TestLogsFollowed(t *testing.T) {
	s := newLogSite(t)
	next, left := make(chan string), make(chan struct{})
	s.agent("n1", func(*peerapi.Identity) http.Handler {
		return peerapi.WithLogs(http.NotFoundHandler(), func(string) bool { return true }, func(ctx context.Context, q peerapi.LogQuery, w io.Writer) error {
			if !q.Follow {
				_, err := io.WriteString(w, "ready\n")
				return err
			}
			defer close(left)
			for {
				select {
				case line := <-next:
					if _, err := io.WriteString(w, line); err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	})
	s.eventually("ready", "logs", "n1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	root := rootOf("refit", accessOf(s.kubeconfig, w))
	root.SetArgs([]string{"logs", "n1", "-f"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	for _, line := range []string{"first\n", "second\n"} {
		next <- line
		buf := make([]byte, 64)
		n, err := r.Read(buf)
		if err != nil || string(buf[:n]) != line {
			t.Errorf("%v %q", err, buf[:n])
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the command ended with %v", err)
	}
	<-left
}
