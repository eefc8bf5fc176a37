package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

const (
	// maxIdle is what an idle agent may have in memory, in bytes: its own memory and the
	// pages of its program.
	maxIdle = 30 << 20
	// idleAfter is when the agent is measured: it releases memory after a minute without
	// work, and what it uses while idle has come back by then.
	idleAfter = 4 * time.Minute
)

// residentMemory is what a process has in memory, in KiB, as the kernel counts it.
type residentMemory struct {
	All     int64 `json:"residentKiB"`
	Own     int64 `json:"ownKiB"`     // heap, stacks, the Go runtime
	Program int64 `json:"programKiB"` // pages of the program's file
}

type idleResult struct {
	What    string  `json:"what"`
	Machine machine `json:"machine"`
	Method  string  `json:"method"`
	// Busy is right after the work, Idle minutes later; Peak the most so far.
	Busy        residentMemory `json:"busy"`
	Idle        residentMemory `json:"idle"`
	PeakKiB     int64          `json:"peakKiB"`
	BundleBytes int64          `json:"bundleBytes"`
	// CPUSeconds that the agent took in the idle time.
	CPUSeconds  float64 `json:"idleCPUSeconds"`
	IdleSeconds float64 `json:"idleSeconds"`
}

// The released agent of a node, after it has copied a bundle from a medium, is small again.
func TestIdleAgent(t *testing.T) {
	resultsDir(t)
	program := "../bin/refit-agent"
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	bin, dir := containerdBin(t), t.TempDir()
	d := startContainerd(t, bin, dir)
	defer func() {
		_ = d.Process.Kill()
		_ = d.Wait() // killed just now
	}()
	path, size, _ := spreadBundle(t, dir, cappedSizes)
	cfg := apitest.Start(t)
	key := approveBundle(t, cfg, path)
	pid := startAgent(t, program, dir, path, apitest.Certificate(t, cfg, "system:node:n1", "system:nodes"))
	r := idleResult{What: "an agent that copied and holds a bundle, with a real API server and containerd", Machine: thisMachine(), BundleBytes: size,
		Method: "the released program in its own process, with the environment of its unit; /proc/PID/status some minutes after the copy. Pages of the program's file count as much as its own memory (go test ./bench -run TestIdleAgent)"}
	waitForPins(t, cfg, key)
	r.Busy, r.PeakKiB = residentOf(t, pid)
	began, before := time.Now(), cpuOf(t, pid)
	time.Sleep(idleAfter)
	r.IdleSeconds, r.CPUSeconds = time.Since(began).Seconds(), (cpuOf(t, pid) - before).Seconds()
	r.Idle, r.PeakKiB = residentOf(t, pid)
	t.Logf("%+v", r)
	if r.Idle.All > maxIdle>>10 {
		t.Errorf("an idle agent has %d KiB in memory, the promise is %d", r.Idle.All, maxIdle>>10)
	}
	writeResult(t, "idle.json", r)
}

// approveBundle makes the objects of an approved bundle, and of node n1 that is to hold it.
func approveBundle(t *testing.T, cfg *rest.Config, path string) client.ObjectKey {
	t.Helper()
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Header()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	pins := model.PinSet{}
	for _, p := range h.Metadata.Payloads {
		pins.Payloads = append(pins.Payloads, model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: h.Digest})
	}
	text, err := json.Marshal(pins)
	if err != nil {
		t.Fatal(err)
	}
	admin, writer := clientOf(t, cfg), clientOf(t, apitest.As(cfg, apitest.ControllerUser))
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}
	}
	content := &v1alpha1.Content{ObjectMeta: in(v1alpha1.ContentName(v1alpha1.ContentPins, string(text))), Type: v1alpha1.ContentPins, Data: string(text)}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: in("n1"), Spec: v1alpha1.NodeUpdateSpec{Bundles: []v1alpha1.ApprovedBundle{{Digest: h.Digest}}, Pins: content.Name}}
	for _, o := range []client.Object{content, nu} {
		err := writer.Create(t.Context(), o)
		for end := time.Now().Add(time.Minute); err != nil && strings.Contains(err.Error(), "not yet synced") && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond) // a new API server reads the objects of its policies after the policies
			err = writer.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
	role, binding := controller.NodeRights(nu) // owned by the NodeUpdate
	for _, o := range []client.Object{
		role, binding,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.BundleSpec{Digest: h.Digest}},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
	return client.ObjectKeyFromObject(nu)
}

func clientOf(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startAgent starts the agent of node n1 and returns its process ID. It ends with the test.
func startAgent(t *testing.T, program, dir, medium string, node *rest.Config) int {
	t.Helper()
	kubeconfig, conf := filepath.Join(dir, "kubelet.conf"), filepath.Join(dir, "agent.yaml")
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: node.Host, CertificateAuthorityData: node.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: node.CertData, ClientKeyData: node.KeyData}
	k.Contexts["x"], k.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("node: n1\nkubeconfig: %s\nstateDir: %s\nrunDir: %s\nruntime: unix://%s\naddress: 127.0.0.1\nmedia: [%s]\nnoDevices: true\n",
		kubeconfig, filepath.Join(dir, "agent"), filepath.Join(dir, "agent-run"), filepath.Join(dir, "c.sock"), medium)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "--config", conf)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=512MiB")
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func waitForPins(t *testing.T, cfg *rest.Config, key client.ObjectKey) {
	t.Helper()
	c := clientOf(t, cfg)
	nu := &v1alpha1.NodeUpdate{}
	for range 600 {
		if err := c.Get(t.Context(), key, nu); err != nil {
			t.Fatal(err)
		}
		if p := nu.Status.Pins; p != nil && p.PayloadsTotal > 0 && p.PayloadsReady == p.PayloadsTotal {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("the agent has not copied the bundle: %+v", nu.Status)
}

// residentOf reads what a process has in memory, and the most that it had, in KiB.
func residentOf(t *testing.T, pid int) (now residentMemory, peak int64) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	into := map[string]*int64{"VmHWM": &peak, "VmRSS": &now.All, "RssAnon": &now.Own, "RssFile": &now.Program}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if to := into[name]; to != nil {
			if _, err := fmt.Sscan(value, to); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
		}
	}
	return now, peak
}
