package kubeadm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/refit-dev/refit/internal/controller/apitest"
)

// goldenCase is a cluster as its administrator configured it.
type goldenCase struct {
	cluster string // parts of the ClusterConfiguration
	// patches of kubeadm, by file name.
	patches  map[string]string
	external bool
	endpoint string
	// contains are parts of the manifests: what the configuration asked for is there.
	contains map[string][]string
}

var goldenCases = map[string]goldenCase{
	"stacked etcd": {endpoint: "192.0.2.10:6443", contains: map[string][]string{etcdPod: {"--name=n1"}}},
	"extra arguments, volumes, environment and patches": {
		endpoint: "[2001:db8::10]:7443",
		cluster: `imageRepository: reg.test/k8s
certificatesDir: /etc/kubernetes/own-pki
controlPlaneEndpoint: api.test:6443
networking: {podSubnet: "10.1.0.0/16,fd01::/48", serviceSubnet: "10.2.0.0/16,fd02::/112", dnsDomain: own.test}
apiServer:
  certSANs: [api.test]
  extraArgs: [{name: audit-log-maxage, value: "30"}, {name: tls-min-version, value: VersionTLS13}, {name: enable-admission-plugins, value: "NodeRestriction,AlwaysPullImages"}]
  extraEnvs: [{name: GODEBUG, value: netdns=go}]
  extraVolumes: [{name: audit, hostPath: /var/log/own-audit, mountPath: /audit, pathType: DirectoryOrCreate}]
controllerManager:
  extraArgs: [{name: allocate-node-cidrs, value: "false"}, {name: bind-address, value: "::"}]
  extraVolumes: [{name: signing, hostPath: /etc/own-signing, mountPath: /signing, readOnly: true}]
scheduler:
  extraArgs: [{name: v, value: "3"}]
  extraEnvs: [{name: GOGC, value: "50"}]
etcd:
  local:
    dataDir: /var/lib/own-etcd
    extraArgs: [{name: quota-backend-bytes, value: "4294967296"}]
    extraEnvs: [{name: ETCD_LOG_LEVEL, value: warn}]
`,
		patches: map[string]string{
			"kube-apiserver0+strategic.yaml": "metadata: {labels: {patched: first}}\nspec: {priorityClassName: own-critical}\n",
			"kube-apiserver1+json.yaml":      "- {op: replace, path: /metadata/labels/patched, value: second}\n",
			"etcd+merge.yaml":                "spec: {terminationGracePeriodSeconds: 77}\n",
			"kube-scheduler.json":            `{"spec": {"hostNetwork": true, "dnsPolicy": "Default"}}`,
		},
		contains: map[string][]string{
			"kube-apiserver":          {"reg.test/k8s/kube-apiserver", "--audit-log-maxage=30", "GODEBUG", "/var/log/own-audit", "patched: second", "own-critical", "own-pki", "2001:db8::10"},
			"kube-controller-manager": {"--allocate-node-cidrs=false", "/etc/own-signing", "--cluster-cidr=10.1.0.0/16,fd01::/48"},
			"kube-scheduler":          {"--v=3", "GOGC", "dnsPolicy: Default"},
			etcdPod:                   {"/var/lib/own-etcd", "--quota-backend-bytes=4294967296", "terminationGracePeriodSeconds: 77"},
		},
	},
	"external etcd": {
		external: true, endpoint: "192.0.2.10:6443",
		cluster: `etcd:
  external:
    endpoints: ["https://192.0.2.20:2379", "https://192.0.2.21:2379"]
    caFile: /etc/kubernetes/pki/etcd/ca.crt
    certFile: /etc/kubernetes/pki/etcd/healthcheck-client.crt
    keyFile: /etc/kubernetes/pki/etcd/healthcheck-client.key
`,
		contains: map[string][]string{"kube-apiserver": {"--etcd-servers=https://192.0.2.20:2379,https://192.0.2.21:2379"}},
	},
}

// TestManifestsEqualThoseOfKubeadmUpgrade lets `kubeadm upgrade` replace the control plane of
// a cluster in one root directory, and the step "control-plane" in another. All manifests are
// equal, byte for byte.
func TestManifestsEqualThoseOfKubeadmUpgrade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: kubeadm runs in a root directory of its own")
	}
	old := kubeadmProgram(t, "v1.35.4")
	cfg := apitest.Start(t)
	for to, from := range map[string]string{"v1.35.4": "v1.35.0", "v1.36.3": "v1.35.4"} {
		t.Run(to, func(t *testing.T) {
			program := kubeadmProgram(t, to)
			for name, c := range goldenCases {
				t.Run(name, func(t *testing.T) { c.compare(t, cfg, old, program, from, to) })
			}
		})
	}
}

// compare upgrades twice, and compares the manifests.
func (c goldenCase) compare(t *testing.T, cfg *rest.Config, old, program, from, to string) {
	site := newGoldenSite(t, cfg, c, old, from)
	before := site.reference.manifests(t)
	refit := site.copyRoot(t)
	site.checkChanges(t, site.copyRoot(t), old)
	site.upgradeByKubeadm(t, program, to)
	site.upgradeByRefit(t, refit, program, from, to)
	want := site.reference.manifests(t)
	if d := cmp.Diff(want, refit.manifests(t)); d != "" {
		t.Errorf("kubeadm's (-) and refit's (+) manifests differ:\n%s", d)
	}
	for pod, text := range want {
		if text == before[pod] && pod != etcdPod {
			t.Errorf("kubeadm has not changed the manifest of %s", pod)
		}
	}
	for pod, parts := range c.contains {
		for _, part := range parts {
			if !strings.Contains(want[pod], part) {
				t.Errorf("the manifest of %s has no %q:\n%s", pod, part, want[pod])
			}
		}
	}
}

// With an external CA kubeadm's dry run needs kubeconfig files that `kubeadm upgrade` does not:
// the planner then leaves the node to `kubeadm upgrade`.
func TestManifestsOfANodeWithoutTheCAKey(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: kubeadm runs in a root directory of its own")
	}
	program := kubeadmProgram(t, "v1.35.4")
	site := newGoldenSite(t, apitest.Start(t), goldenCases["stacked etcd"], program, "v1.35.4")
	r := site.copyRoot(t)
	for _, f := range []string{"admin.conf", "kubelet.conf"} {
		if err := os.Remove(r.path("etc/kubernetes/" + f)); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []string{"certs ca", "certs apiserver", "certs apiserver-kubelet-client", "certs front-proxy-ca", "certs front-proxy-client",
		"kubeconfig admin", "kubeconfig super-admin", "kubeconfig kubelet", "kubeconfig controller-manager", "kubeconfig scheduler"} {
		r.kubeadm(t, program, append(append([]string{"init", "phase"}, strings.Fields(phase)...), "--config", "/etc/kubernetes/init.yaml")...)
	}
	if err := os.Remove(r.path("etc/kubernetes/pki/ca.key")); err != nil {
		t.Fatal(err)
	}
	check := site.check(t, r, program)
	// The manifests are of a cluster whose key kubeadm had.
	signing := []string{"kube-controller-manager: --cluster-signing-cert-file", "kube-controller-manager: --cluster-signing-key-file"}
	if got, err := check.Changes(t.Context()); err != nil || !slices.Equal(got, signing) {
		t.Errorf("with all kubeconfig files: %q, %v", got, err)
	}
	if err := os.Remove(r.path("etc/kubernetes/super-admin.conf")); err != nil {
		t.Fatal(err)
	}
	if _, err := check.Changes(t.Context()); err == nil || !strings.Contains(err.Error(), "super-admin.conf") {
		t.Errorf("without super-admin.conf: %v", err)
	}
}

// kubeadmProgram is a real kubeadm of the lab.
func kubeadmProgram(t *testing.T, version string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "refit/lab/bin/kubernetes-"+version+"-*/kubeadm")) // the pattern is well formed
	if len(found) == 0 {
		t.Skipf("no kubeadm %s: run `refit-lab components --version %s` once", version, version)
	}
	return found[0]
}
