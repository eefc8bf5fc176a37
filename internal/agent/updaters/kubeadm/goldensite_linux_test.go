package kubeadm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// goldenRoot is a root directory in which kubeadm runs.
type goldenRoot string

func (r goldenRoot) path(p string) string { return filepath.Join(string(r), p) }

// newGoldenRoot makes a root directory with the machine's programs. It contains itself: a
// path is the same inside and outside.
func newGoldenRoot(t *testing.T) goldenRoot {
	t.Helper()
	r := goldenRoot(filepath.Join(t.TempDir(), "root"))
	for _, dir := range []string{"usr", "dev", "opt", "tmp", "etc/ssl/certs", "etc/ca-certificates", "etc/kubernetes", "var/lib/kubelet", filepath.Dir(string(r))} {
		if err := os.MkdirAll(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, r.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", r.path(string(r))); err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs a command in the root directory, with the directory of program as /opt. Its mounts
// end with it.
func (r goldenRoot) run(ctx context.Context, program string, argv ...string) error {
	const enter = `set -e; root=$1; programs=$2; shift 2
mount --rbind /usr "$root/usr"; mount --rbind /dev "$root/dev"; mount --bind "$programs" "$root/opt"
exec chroot "$root" "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", enter, "sh", string(r), filepath.Dir(program)}, argv...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

func (r goldenRoot) kubeadm(t *testing.T, program string, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := r.run(ctx, program, append([]string{"/opt/kubeadm"}, argv...)...); err != nil {
		t.Fatal(err)
	}
}

func (r goldenRoot) write(t *testing.T, path, text string) {
	t.Helper()
	if err := fsutil.WriteFile(r.path(path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r goldenRoot) manifests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(r.path("etc/kubernetes/manifests/*"))
	for _, f := range files {
		text, readErr := os.ReadFile(f)
		if readErr != nil {
			t.Fatal(readErr)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".yaml")] = string(text)
	}
	if err != nil || len(out) < len(controlPlanePods) {
		t.Fatalf("%v, manifests: %d", err, len(out))
	}
	return out
}

// goldenSite is a cluster with one control-plane node, n1, whose kubelet does not run.
type goldenSite struct {
	goldenCase
	api       client.Client
	reference goldenRoot
}

// newGoldenSite lets kubeadm of the old version make the node's files and upload its
// configuration.
func newGoldenSite(t *testing.T, cfg *rest.Config, c goldenCase, program, version string) *goldenSite {
	t.Helper()
	api, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &goldenSite{goldenCase: c, api: api, reference: newGoldenRoot(t)}
	r := s.reference
	writeKubeconfig(t, r.path("etc/kubernetes/admin.conf"), cfg)
	writeKubeconfig(t, r.path("etc/kubernetes/kubelet.conf"), apitest.Certificate(t, cfg, "system:node:n1", "system:nodes"))
	host, port, err := net.SplitHostPort(c.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: %q, bindPort: %s}\nnodeRegistration: {name: n1, criSocket: \"unix:///run/own.sock\"}\n", host, port)
	if len(c.patches) > 0 {
		text += "patches: {directory: /etc/kubernetes/patches}\n"
	}
	text += "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + version + "\n" + c.cluster
	r.write(t, "etc/kubernetes/init.yaml", text)
	for name, patch := range c.patches {
		r.write(t, "etc/kubernetes/patches/"+name, patch)
	}
	s.createNode(t)
	phases := [][]string{{"control-plane", "all"}, {"upload-config", "all"}}
	if !c.external {
		phases = append(phases, []string{"certs", "etcd-ca"}, []string{"certs", "etcd-server"}, []string{"certs", "etcd-healthcheck-client"}, []string{"etcd", "local"})
	} else {
		s.externalCertificates(t, program)
	}
	for _, phase := range phases {
		r.kubeadm(t, program, append(append([]string{"init", "phase"}, phase...), "--config", "/etc/kubernetes/init.yaml")...)
	}
	s.mirror(t)
	return s
}

// externalCertificates lets kubeadm make the files that the configuration names.
func (s *goldenSite) externalCertificates(t *testing.T, program string) {
	t.Helper()
	s.reference.write(t, "certs.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.0\n")
	for _, cert := range []string{"etcd-ca", "etcd-healthcheck-client"} {
		s.reference.kubeadm(t, program, "init", "phase", "certs", cert, "--config", "/certs.yaml")
	}
}

func (s *goldenSite) createNode(t *testing.T) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/own.sock"}}}
	s.create(t, n)
}

// create creates an object until the test ends.
func (s *goldenSite) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := s.api.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.api.Delete(context.Background(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
}

// mirror creates the mirror pods that a kubelet would, and reports each change of a manifest
// as it does: kubeadm waits for that.
func (s *goldenSite) mirror(t *testing.T) {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for name, text := range s.reference.manifests(t) {
		p := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		p.Name, p.Spec.NodeName = name+"-n1", "n1"
		p.Spec.PriorityClassName, p.Spec.Priority = "", nil
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		if name == etcdPod {
			p.Annotations["kubeadm.kubernetes.io/etcd.advertise-client-urls"] = s.startEtcd(t)
		}
		hash := digestOf(text)
		p.Annotations[corev1.MirrorPodAnnotationKey], p.Annotations["kubernetes.io/config.hash"] = hash, hash
		s.create(t, p)
		p.Status.Phase = corev1.PodRunning
		if err := s.api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		pods[name] = p
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for name, p := range pods {
				text, err := os.ReadFile(manifestPath(s.reference.path("etc/kubernetes/manifests"), name))
				if hash := digestOf(string(text)); err == nil && hash != p.Annotations["kubernetes.io/config.hash"] {
					p.Annotations["kubernetes.io/config.hash"] = hash
					if err := s.api.Update(ctx, p); err != nil && ctx.Err() == nil {
						t.Errorf("report the new manifest of %s: %v", name, err)
					}
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// startEtcd starts a member with the node's certificates: kubeadm checks its health before
// and after.
func (s *goldenSite) startEtcd(t *testing.T) string {
	t.Helper()
	pki := filepath.Dir(s.reference.find(t, "server.crt"))
	data := s.reference.path("var/lib/etcd")
	if strings.Contains(s.cluster, "own-etcd") {
		data = s.reference.path("var/lib/own-etcd")
	}
	url, peer := "https://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	cmd := exec.Command(filepath.Join(apitest.Binaries(), "etcd"), "--name", "n1", "--data-dir", data, "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "n1="+peer, "--unsafe-no-fsync", "--log-level", "error",
		"--cert-file", filepath.Join(pki, "server.crt"), "--key-file", filepath.Join(pki, "server.key"), "--trusted-ca-file", filepath.Join(pki, "ca.crt"), "--client-cert-auth")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return url
}

func (r goldenRoot) find(t *testing.T, name string) string {
	t.Helper()
	found, _ := filepath.Glob(r.path("etc/kubernetes/*pki/etcd/" + name)) // the pattern is well formed
	if len(found) != 1 {
		t.Fatalf("%s: %q", name, found)
	}
	return found[0]
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// copyRoot copies the node's files into another root directory.
func (s *goldenSite) copyRoot(t *testing.T) goldenRoot {
	t.Helper()
	r := newGoldenRoot(t)
	if out, err := exec.Command("cp", "-a", s.reference.path("etc")+"/.", r.path("etc")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// upgradeByKubeadm runs kubeadm's own phase, the reference.
func (s *goldenSite) upgradeByKubeadm(t *testing.T, program, to string) {
	t.Helper()
	patches := ""
	if len(s.patches) > 0 {
		patches = ", patches: {directory: /etc/kubernetes/patches}"
	}
	s.reference.write(t, "upgrade.yaml", fmt.Sprintf("apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\napply: {kubernetesVersion: %s, certificateRenewal: false, etcdUpgrade: true%s}\ntimeouts: {upgradeManifests: 1m0s}\n", to, patches))
	s.reference.kubeadm(t, program, "upgrade", "apply", "phase", "control-plane", "--config", "/upgrade.yaml")
}

// upgradeByRefit runs the step "control-plane" to its end. Its commands that write manifests
// are run; the kubelet and the runtime are simulated.
func (s *goldenSite) upgradeByRefit(t *testing.T, r goldenRoot, program, from, to string) {
	t.Helper()
	verb := map[bool]string{true: VerbPods, false: VerbTogether}[s.external]
	before := r.manifests(t)
	f, n := controlPlaneFixtureIn(t, verb, r.path("etc/kubernetes"))
	if err := os.Remove(manifestPath(n.Manifests(), etcdPod)); err != nil {
		t.Fatal(err)
	}
	for pod, text := range before {
		r.write(t, "etc/kubernetes/manifests/"+pod+".yaml", text)
	}
	r.write(t, "etc/kubernetes/payload/kubelet", "kubelet "+to)
	n.tick()
	f.Task.Step.From, f.Task.Step.To = from, to
	if len(s.patches) > 0 {
		f.Task.Step.Params = map[string]string{model.ParamPatches: r.path("etc/kubernetes/patches")}
	}
	n.cluster = s.clusterConfiguration(t)
	written := 0
	n.writeManifests = func(ctx context.Context, argv []string) error {
		written++
		argv = slices.Clone(argv)
		argv[slices.Index(argv, n.path("kubeadm"))] = "/opt/kubeadm"
		return r.run(ctx, program, argv...)
	}
	if res := end(t, f); !res.Done || written == 0 {
		t.Fatalf("%+v after %d commands that write manifests", res, written)
	}
}

// clusterConfiguration is what kubeadm uploaded.
func (s *goldenSite) clusterConfiguration(t *testing.T) string {
	t.Helper()
	var cm corev1.ConfigMap
	if err := s.api.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, &cm); err != nil {
		t.Fatal(err)
	}
	return cm.Data["ClusterConfiguration"]
}

// checkChanges finds no change in manifests that kubeadm wrote, and every change of a person.
func (s *goldenSite) checkChanges(t *testing.T, r goldenRoot, program string) {
	t.Helper()
	check := s.check(t, r, program)
	if got, err := check.Changes(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("manifests that kubeadm wrote: %q, %v", got, err)
	}
	for pod, text := range r.manifests(t) {
		r.write(t, "etc/kubernetes/manifests/"+pod+".yaml", strings.Replace(text, "    - "+pod+"\n", "    - "+pod+"\n    - --own-flag=secret\n", 1))
	}
	want := []string{"kube-apiserver: --own-flag", "kube-controller-manager: --own-flag", "kube-scheduler: --own-flag"}
	if !s.external {
		want = append([]string{"etcd: --own-flag"}, want...)
	}
	if got, err := check.Changes(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("manifests with a flag of a person: %q, %v", got, err)
	}
}

// check compares the manifests in a root directory with those that a kubeadm writes.
func (s *goldenSite) check(t *testing.T, r goldenRoot, program string) *ManifestCheck {
	t.Helper()
	c := &ManifestCheck{Kubeadm: "/opt/kubeadm", Node: "n1", Manifests: r.path("etc/kubernetes/manifests"), ClusterConfiguration: s.clusterConfiguration(t), Dir: r.path("check"),
		Run: func(ctx context.Context, argv []string) error { return r.run(ctx, program, argv...) }}
	if len(s.patches) > 0 {
		c.Patches = r.path("etc/kubernetes/patches")
	}
	return c
}

func writeKubeconfig(t *testing.T, path string, cfg *rest.Config) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["own"] = &clientcmdapi.Cluster{Server: "https://" + strings.TrimPrefix(cfg.Host, "https://"), CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["own"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	k.Contexts["own"], k.CurrentContext = &clientcmdapi.Context{Cluster: "own", AuthInfo: "own"}, "own"
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
}
