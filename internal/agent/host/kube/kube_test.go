package kube

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func certificate(t *testing.T, name string) string {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key first, as in the kubelet's file")})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestNodeName(t *testing.T) {
	dir := t.TempDir()
	config := func(user string) string {
		return write(t, filepath.Join(dir, "kubelet.conf"), "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\nusers: [{name: u, user: {"+user+"}}]\n")
	}
	file := write(t, filepath.Join(dir, "current.pem"), certificate(t, "system:node:n7.site"))
	inline := base64.StdEncoding.EncodeToString([]byte(certificate(t, "system:node:n8")))
	other := write(t, filepath.Join(dir, "other.pem"), certificate(t, "admin"))
	for name, c := range map[string]struct{ user, want, says string }{
		"a certificate in a file, as after its renewal": {"client-certificate: " + file, "n7.site", ""},
		"a certificate in the kubeconfig, as at first":  {"client-certificate-data: " + inline, "n8", ""},
		"a certificate that is not a node's":            {"client-certificate: " + other, "", "--node"},
		"no certificate":                                {"token: x", "", "--node"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NodeName(config(c.user))
			if got != c.want || c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	}
	if s, err := Server(config("token: x")); err != nil || s != "https://10.0.0.1:6443" {
		t.Fatalf("server %q, %v", s, err)
	}
}

func TestEviction(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want Eviction
	}{
		"no evictionHard: the kubelet's defaults":     {"kind: KubeletConfiguration\n", Eviction{NodeFS: "10%", ImageFS: "15%", Collect: "15%", NodeFiles: "5%", ImageFiles: "5%"}},
		"what is set holds":                           {"evictionHard: {nodefs.available: 1%, imagefs.available: 2Gi}\n", Eviction{NodeFS: "1%", ImageFS: "2Gi", Collect: "15%"}},
		"images are collected later, or never":        {"imageGCHighThresholdPercent: 99\n", Eviction{NodeFS: "10%", ImageFS: "15%", Collect: "1%", NodeFiles: "5%", ImageFiles: "5%"}},
		"no collection at all":                        {"imageGCHighThresholdPercent: 100\n", Eviction{NodeFS: "10%", ImageFS: "15%", Collect: "", NodeFiles: "5%", ImageFiles: "5%"}},
		"inodes are counted too":                      {"evictionHard: {nodefs.inodesFree: 3%, imagefs.inodesFree: 1000}\n", Eviction{Collect: "15%", NodeFiles: "3%", ImageFiles: "1000"}},
		"a signal that is not in it has no threshold": {"evictionHard: {memory.available: 100Mi}\n", Eviction{Collect: "15%"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, ReadEviction(nil, write(t, filepath.Join(dir, "config.yaml"), c.text), "")); d != "" {
				t.Fatal(d)
			}
		})
	}
	if d := cmp.Diff(Eviction{NodeFS: "10%", ImageFS: "15%", Collect: "15%", NodeFiles: "5%", ImageFiles: "5%"}, ReadEviction(nil, filepath.Join(dir, "none"), "")); d != "" {
		t.Fatal(d)
	}
	for text, want := range map[string]int64{"10%": 100, "1Ki": 1024, "": 0} {
		if got, err := Bytes(text, 1000); err != nil || got != want {
			t.Errorf("%q of 1000 bytes is %d, %v; want %d", text, got, err, want)
		}
	}
	if _, err := Bytes("much", 1000); err == nil {
		t.Error("nonsense was taken for a threshold")
	}
}

// The limits come from where the distribution of a node has the kubelet's configuration, with
// what the distribution sets itself. Files of kubeadm count on its nodes only.
func TestNodeEviction(t *testing.T) {
	t.Parallel()
	const defaults = "evictionHard: {nodefs.available: 33%}\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Eviction
	}{
		"kubeadm": {map[string]string{"/var/lib/kubelet/kubeadm-flags.env": "x", "/var/lib/kubelet/config.yaml": "evictionHard: {nodefs.available: 1%, imagefs.available: 2%}\n",
			"/etc/kubernetes/kubelet.conf.d/90-refit.conf": "evictionHard: {nodefs.available: 3%}\n", "/etc/kubernetes/kubelet.conf.d/x.yaml": defaults},
			Eviction{NodeFS: "3%", ImageFS: "2%", Collect: "15%"}},
		"k3s by default": {map[string]string{"/etc/systemd/system/k3s-agent.service": k3sUnit, "/var/lib/kubelet/config.yaml": defaults}, Eviction{NodeFS: "5%", ImageFS: "5%", Collect: "15%"}},
		"k3s with drop-ins": {map[string]string{"/etc/systemd/system/k3s-agent.service": k3sUnit,
			"/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf": "evictionHard: {nodefs.available: 5%, imagefs.available: 5%}\n",
			"/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/10-site.conf":         "evictionHard: {nodefs.available: 8Gi}\nimageGCHighThresholdPercent: 70\n"},
			Eviction{NodeFS: "8Gi", ImageFS: "5%", Collect: "30%"}},
		"RKE2 elsewhere": {map[string]string{"/usr/lib/systemd/system/rke2-agent.service": "[Service]\nExecStart=/usr/bin/rke2 agent --data-dir /mnt/rke2\n",
			"/mnt/rke2/agent/etc/kubelet.conf.d/1.conf": "evictionHard: {imagefs.available: 7%}\n"}, Eviction{NodeFS: "5%", ImageFS: "7%", Collect: "15%"}},
		"k0s": {map[string]string{"/etc/systemd/system/k0sworker.service": "x", "/run/k0s/kubelet/config.yaml": "evictionHard: {imagefs.available: 6%}\n", "/var/lib/kubelet/config.yaml": defaults},
			Eviction{ImageFS: "6%", Collect: "15%"}},
		"k0s by default": {map[string]string{"/etc/systemd/system/k0sworker.service": "x", "/var/lib/kubelet/config.yaml": defaults}, evictionDefaults},
		"EKS": {map[string]string{"/opt/nodeadm/tracker": "x", "/etc/kubernetes/kubelet/config.json": `{"evictionHard":{"nodefs.available":"10%"}}`,
			"/etc/kubernetes/kubelet/config.json.d/40-site.conf": `{"evictionHard":{"nodefs.inodesFree":"4%"}}`}, Eviction{NodeFS: "10%", NodeFiles: "4%", Collect: "15%"}},
		"no known distribution": {map[string]string{"/var/lib/kubelet/config.yaml": "evictionHard: {nodefs.available: 9%}\n"}, Eviction{NodeFS: "9%", Collect: "15%"}},
	} {
		root := t.TempDir()
		for at, text := range c.files {
			put(t, root, at, []byte(text))
		}
		if d := cmp.Diff(c.want, NodeEviction(root)()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestStaticPods(t *testing.T) {
	dir := t.TempDir()
	pod := func(name, image string, command ...string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: kube-system}\nspec: {containers: [{name: %s, image: %q, command: [%s]}]}\n", name, name, image, strings.Join(command, ", "))
	}
	write(t, filepath.Join(dir, "kube-apiserver.yaml"), pod("kube-apiserver", "registry:5000/kube-apiserver:v1.36.3", "kube-apiserver", "--advertise-address=10.0.0.1", "--secure-port=6444"))
	write(t, filepath.Join(dir, "etcd.yaml"), pod("etcd", "registry.k8s.io/etcd:3.6.8-0"))
	write(t, filepath.Join(dir, ".etcd.yaml.swp"), "half")
	write(t, filepath.Join(dir, "notes.txt"), "not a manifest")
	pods, err := StaticPods(dir)
	if err != nil || len(pods) != 2 || pods[0].Name != "etcd" {
		t.Fatalf("%+v, %v", pods, err)
	}
	if got := LocalAPIServer(pods); got != "https://10.0.0.1:6444" {
		t.Fatalf("API server at %q", got)
	}
	if got := Tag(Find(pods, APIServer).Containers[0].Image); got != "v1.36.3" {
		t.Fatalf("tag %q", got)
	}
	if LocalAPIServer(nil) != "" || Find(pods, "kube-scheduler") != nil || Tag("registry:5000/x") != "" || Tag("x:1@sha256:0") != "1" {
		t.Fatal("something is there that is not")
	}
	if none, err := StaticPods(filepath.Join(dir, "absent")); err != nil || none != nil {
		t.Fatalf("a worker: %v, %v", none, err)
	}
}

// The version is that of the process that runs, not of the file that is there.
func TestVersionOfAReplacedProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	raw, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(raw))
	c := exec.Command(path, "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	p, err := ProcessOf(c.Process.Pid)
	if err != nil || p.Replaced || p.Exe != path {
		t.Fatalf("%+v, %v", p, err)
	}
	write(t, path+".new", "#!/bin/sh\necho Kubernetes v1.36.3\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if p, err = ProcessOf(c.Process.Pid); err != nil || !p.Replaced {
		t.Fatalf("%+v, %v", p, err)
	}
	var b Binaries
	if v, err := b.Version(t.Context(), path); err != nil || v != "v1.36.3" {
		t.Fatalf("%q, %v", v, err)
	}
	write(t, path+".new", "#!/bin/sh\necho v1.36.4\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if v, err := b.Version(t.Context(), path); err != nil || v != "v1.36.4" {
		t.Fatalf("after a replacement %q, %v", v, err)
	}
}

// kubeadm is asked with the cluster's own settings, for the release that is to come.
func TestKubeadmImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives its rights up")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "kubeadm")
	// It answers what it was asked, as words.
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\" \"$2\" \"$3\" \"$4\"\ntr -d ' ' < \"$5\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := KubeadmImages(t.Context(), program, "imageRepository: reg.test/k8s\nkubernetesVersion: v1.35.4\n", "v1.36.3", dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"config", "images", "list", "--config", "imageRepository:reg.test/k8s", "kubernetesVersion:v1.36.3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("files are left: %v %v", left, err)
	}
	if _, err := KubeadmImages(t.Context(), "/bin/false", "a: b", "v1.36.3", dir); err == nil {
		t.Error("a kubeadm that fails gave images")
	}
	if _, err := KubeadmImages(t.Context(), program, "", "v1.36.3", dir); err == nil {
		t.Error("no configuration gave images")
	}
}

// The kubeadm of a bundle is not trusted with the node before an update names it.
func TestKubeadmIsAskedWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives its rights up")
	}
	open, dir := t.TempDir(), t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "kubeadm")
	text := "#!/bin/sh\nid -u\ntouch " + open + "/pwned && echo wrote\ngrep NoNewPrivs /proc/self/status\ngrep -q eth /proc/net/dev && echo network\nexit 0\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := KubeadmImages(t.Context(), program, "kubernetesVersion: v1.35.4\n", "v1.36.3", dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"65534"}, got); diff != "" {
		t.Error(diff)
	}
}

// What a real kubeadm wants is the same without rights and without a network.
func TestKubeadmImagesOfARealKubeadm(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives its rights up")
	}
	home, _ := os.UserCacheDir()
	all, _ := filepath.Glob(filepath.Join(home, "refit/lab/bin/kubernetes-v1.36.*/kubeadm"))
	if len(all) == 0 {
		t.Skip("needs a kubeadm: make demo builds one")
	}
	conf := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nimageRepository: reg.test/k8s\nkubernetesVersion: v1.35.4\n"
	got, err := KubeadmImages(t.Context(), all[0], conf, "v1.36.3", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 6 || !slices.Contains(got, "reg.test/k8s/kube-apiserver:v1.36.3") {
		t.Errorf("%q", got)
	}
}

// A process that was started just now was started just now.
func TestStartedAt(t *testing.T) {
	before := time.Now()
	at, err := StartedAt(os.Getpid())
	if err != nil || at.After(before.Add(2*time.Second)) || before.Sub(at) > time.Hour {
		t.Fatal(at, err)
	}
	c := exec.Command("sleep", "5")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	later, err := StartedAt(c.Process.Pid)
	if err != nil || later.Before(at) {
		t.Fatal(later, at, err)
	}
}
