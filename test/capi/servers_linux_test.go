package capi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/lab/components"
)

// management is a management cluster: an API server, Cluster API, refit. Its API
// server plays the workload cluster's as well.
type management struct {
	t     *testing.T
	dir   string
	cfg   *rest.Config
	admin client.Client
	// workload is the kubeconfig with which refit asks the workload cluster.
	workload string
	refit    []*process
	front    *front
}

// ports on loopback.
const (
	frontPort    = 9990             // what Cluster API calls: one of the replicas
	replicaPort  = 9991             // and the next
	webhookPort  = 9443             // and the next three
	patience     = 10 * time.Minute // of a machine that others use too
	lookEvery    = 250 * time.Millisecond
	refitPackage = "../../cmd/refit-controller"
)

func start(t *testing.T) *management {
	t.Helper()
	ctx := t.Context()
	managers, err := components.ClusterAPIManagers(ctx, nil)
	must(t, err)
	release, err := components.Release(ctx, kubernetesOfServer, nil)
	must(t, err)
	m := &management{t: t, dir: t.TempDir()}
	env := &envtest.Environment{BinaryAssetsDirectory: release.BinDir, ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	api := env.ControlPlane.GetAPIServer().Configure()
	api.Set("authorization-mode", "Node", "RBAC")
	api.Set("enable-admission-plugins", "NodeRestriction")
	api.Set("advertise-address", "127.0.0.1") // there is no route to anywhere
	api.Set("endpoint-reconciler-type", "none")
	log, err := os.Create(logFile(m.dir, "kube-apiserver"))
	must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	env.ControlPlane.GetAPIServer().Out, env.ControlPlane.GetAPIServer().Err = log, log
	m.cfg, err = env.Start()
	must(t, err)
	t.Cleanup(func() { _ = env.Stop() }) // the namespace ends everything that is left
	m.cfg.QPS, m.cfg.Burst = 200, 400
	scheme, err := controller.Scheme()
	must(t, err)
	m.admin, err = client.New(m.cfg, client.Options{Scheme: scheme})
	must(t, err)
	m.say("API server up")

	rules, err := config.Rules()
	must(t, err)
	ours, _, workload, err := config.ClusterAPI()
	must(t, err)
	m.apply(slices.Concat(rules, ours, workload)...)
	m.applyCRDs(managers.CRDs)
	caller := filepath.Join(m.dir, "caller") // with which Cluster API calls refit
	writeCertificate(t, caller)
	m.serveWebhooks(managers, m.kubeconfig(env, "capi-manager", "system:masters"), caller)
	m.say("Cluster API %s up", managers.Version)

	binary := filepath.Join(m.dir, "refit-controller")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, refitPackage)
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("build refit-controller: %v\n%s", err, out)
	}
	m.workload = m.kubeconfig(env, "system:serviceaccount:refit-system:refit-management", "system:serviceaccounts", "system:serviceaccounts:refit-system")
	who := m.kubeconfig(env, apitest.ControllerUser, "system:serviceaccounts", "system:serviceaccounts:refit-system")
	for i := range 2 {
		m.refit = append(m.refit, m.process(fmt.Sprintf("refit-%d", i), nil, binary, "-kubeconfig", who, "-identity", fmt.Sprintf("replica-%d", i),
			"-health-address", fmt.Sprintf("127.0.0.1:%d", replicaPort+100+i), "-metrics-address", fmt.Sprintf("127.0.0.1:%d", replicaPort+200+i),
			"-cluster-api-address", fmt.Sprintf("127.0.0.1:%d", replicaPort+i), "-cluster-api-name", "127.0.0.1", "-local-server", "127.0.0.1",
			"-cluster-api-client-ca", filepath.Join(caller, "tls.crt")))
	}
	m.front = newFront(t)
	m.startRefit()
	m.say("two replicas of refit up")
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *management) say(format string, args ...any) {
	m.t.Helper()
	m.t.Logf("%s  %s", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// startRefit starts both replicas and waits until they answer.
func (m *management) startRefit() {
	m.t.Helper()
	for i, p := range m.refit {
		p.start()
		m.waitPort(replicaPort + i)
	}
}

// killRefit ends both replicas as a power cut does.
func (m *management) killRefit() {
	for _, p := range m.refit {
		p.kill()
	}
	m.front.cut()
}

func (m *management) kubeconfig(env *envtest.Environment, user string, groups ...string) string {
	m.t.Helper()
	u, err := env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	must(m.t, err)
	text, err := u.KubeConfig()
	must(m.t, err)
	path := filepath.Join(m.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	must(m.t, os.WriteFile(path, text, 0o600))
	return path
}

func (m *management) apply(objects ...*unstructured.Unstructured) {
	m.t.Helper()
	for _, o := range objects {
		m.wait("apply "+o.GetKind()+" "+o.GetName(), func() string {
			err := m.admin.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership)
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// applyCRDs applies Cluster API's kinds as its installer would, without the
// versions that need a conversion.
func (m *management) applyCRDs(dir string) {
	m.t.Helper()
	for _, o := range m.manifests(dir) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		for _, contract := range []string{"v1beta1", "v1beta2"} { // the look-up of contracts needs them
			labels["cluster.x-k8s.io/"+contract] = contract
		}
		o.SetLabels(labels)
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		must(m.t, err)
		var stored []any
		for _, v := range versions {
			if v.(map[string]any)["storage"] == true {
				stored = append(stored, v)
			}
		}
		must(m.t, unstructured.SetNestedSlice(o.Object, stored, "spec", "versions"))
		unstructured.RemoveNestedField(o.Object, "spec", "conversion")
		m.apply(o)
	}
}

func (m *management) manifests(pattern string) []*unstructured.Unstructured {
	m.t.Helper()
	var out []*unstructured.Unstructured
	files, err := filepath.Glob(filepath.Join(pattern, "*", "*.yaml"))
	must(m.t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(m.t, err)
		for doc := range strings.SplitSeq(string(text), "\n---") {
			u := &unstructured.Unstructured{}
			must(m.t, yaml.Unmarshal([]byte(strings.TrimPrefix(doc, "---")), &u.Object))
			if len(u.Object) == 0 {
				continue
			}
			u.SetAnnotations(map[string]string{"test/manager": filepath.Base(filepath.Dir(f))})
			out = append(out, u)
		}
	}
	return out
}

// serveWebhooks starts the managers and leads the API server to their webhooks.
// Those that call extensions show the certificate in the folder caller.
func (m *management) serveWebhooks(managers *components.ClusterAPI, kubeconfig, caller string) {
	m.t.Helper()
	certs := filepath.Join(m.dir, "webhooks")
	ca := writeCertificate(m.t, certs)
	ports := map[string]int{}
	calls := []string{"--runtime-extension-client-cert-file", filepath.Join(caller, "tls.crt"), "--runtime-extension-client-key-file", filepath.Join(caller, "tls.key")}
	for i, manager := range []struct {
		name, gates string
		more        []string
	}{{components.ManagerCore, "RuntimeSDK=true,InPlaceUpdates=true", calls}, {components.ManagerBootstrap, "", nil},
		{components.ManagerControlPlane, "InPlaceUpdates=true", calls}, {components.ManagerInMemory, "", nil}} {
		port := webhookPort + i
		ports[manager.name] = port
		args := []string{"--kubeconfig", kubeconfig, "--webhook-cert-dir", certs, "--insecure-diagnostics", "--webhook-port", fmt.Sprint(port),
			"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
			"--diagnostics-address", fmt.Sprintf("127.0.0.1:%d", port+100), "--health-addr", fmt.Sprintf("127.0.0.1:%d", port+200)}
		args = append(args, manager.more...)
		if manager.gates != "" {
			args = append(args, "--feature-gates="+manager.gates)
		}
		m.process(manager.name, []string{"POD_IP=127.0.0.1"}, append([]string{filepath.Join(managers.BinDir, manager.name)}, args...)...).start()
	}
	for _, port := range ports {
		m.waitPort(port)
	}
	for _, o := range m.manifests(managers.Webhooks) {
		manager := o.GetAnnotations()["test/manager"]
		hooks, ok, err := unstructured.NestedSlice(o.Object, "webhooks")
		must(m.t, err)
		if !ok {
			continue // a Service
		}
		for _, h := range hooks {
			h := h.(map[string]any)
			path, _, _ := unstructured.NestedString(h, "clientConfig", "service", "path")
			h["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", ports[manager], path), "caBundle": base64.StdEncoding.EncodeToString(ca)}
		}
		must(m.t, unstructured.SetNestedSlice(o.Object, hooks, "webhooks"))
		o.SetName(manager + "-" + o.GetName())
		m.apply(o)
	}
}

// waitPort waits until a process listens on the port.
func (m *management) waitPort(port int) {
	m.t.Helper()
	m.wait(fmt.Sprintf("port %d", port), func() string {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return err.Error()
		}
		_ = c.Close()
		return ""
	})
}

func (m *management) wait(what string, not func() string) {
	m.t.Helper()
	said := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(lookEvery) {
		if said = not(); said == "" {
			return
		}
	}
	m.t.Fatalf("waited in vain: %s\nlast seen: %s", what, said)
}

// writeCertificate makes a certificate for loopback that is its own CA, and
// returns it in PEM.
func writeCertificate(t *testing.T, dir string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert
}

// process is a program that can be killed and started again.
type process struct {
	m    *management
	name string
	env  []string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
}

func (m *management) process(name string, env []string, args ...string) *process {
	p := &process{m: m, name: name, env: env, args: args}
	m.t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.m.t.Helper()
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(p.m.t, err)
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	must(p.m.t, p.cmd.Start())
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		_ = log.Close()
		close(done)
	}(p.cmd, p.done)
}

func (p *process) log() string { return logFile(p.m.dir, p.name) }

// logFile of a process; kept where REFIT_CAPI_LOGS says.
func logFile(dir, name string) string {
	if keep := os.Getenv("REFIT_CAPI_LOGS"); keep != "" {
		dir = keep
	}
	return filepath.Join(dir, name+".log")
}

func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.cmd = nil
}

// front is the Service: it leads each connection to a replica that answers, one
// after the other.
type front struct {
	mu    sync.Mutex
	next  int
	conns map[net.Conn]bool
}

func newFront(t *testing.T) *front {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", frontPort))
	must(t, err)
	f := &front{conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *front) serve(in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	f.next++
	first := f.next
	f.mu.Unlock()
	for i := range 2 {
		out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", replicaPort+(first+i)%2))
		if err != nil {
			continue
		}
		defer out.Close()
		f.keep(in, out)
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		_, _ = io.Copy(in, out)
		return
	}
}

func (f *front) keep(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = true
	}
}

// cut ends the connections that are open: so the replicas take turns.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
	f.conns = map[net.Conn]bool{}
}

// requests that the replicas counted, by hook and outcome.
func (m *management) requests(hook, outcome string) int {
	m.t.Helper()
	total := 0
	for i := range m.refit {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", replicaPort+200+i))
		if err != nil {
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		must(m.t, err)
		want := fmt.Sprintf("refit_cluster_api_requests_total{hook=%q,outcome=%q} ", hook, outcome)
		for line := range strings.SplitSeq(string(text), "\n") {
			if v, ok := strings.CutPrefix(line, want); ok {
				n := 0
				_, err := fmt.Sscan(v, &n)
				must(m.t, err)
				total += n
			}
		}
	}
	return total
}
