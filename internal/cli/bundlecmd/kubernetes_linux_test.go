package bundlecmd

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// Images come from a mirror and keep their names, for every platform. Those that the mirror
// does not have are named, all of them.
func TestKubernetesMirror(t *testing.T) {
	kubernetesSite(t)
	s := registrytest.Start(t)
	both := []string{thisHost, "linux/" + foreign}
	digests := map[string]string{
		scriptList[0]: s.Push("k8s/kube-apiserver", registrytest.Image{Version: "a", Platforms: both}, "v1.36.3"),
		scriptList[1]: s.Push("k8s/coredns", registrytest.Image{Version: "b", Platforms: both}, "v1.14.2"), // as kubeadm's imageRepository has it
	}
	writeFiles(t, "from", join(releaseFiles("linux/"+runtime.GOARCH+"/", runtime.GOARCH, testRelease), releaseFiles("linux/"+foreign+"/", foreign, testRelease)), 0o755)
	args := []string{"--kubernetes-from", "from", "--kubernetes-images", "docker://" + s.Ref("k8s"), "--platform", strings.Join(both, ",")}
	r := createRelease(t, args...)
	for _, says := range []string{"2 images missing in the mirror", "registry.k8s.io/etcd:3.6.8-0 (not at " + s.Ref("k8s/etcd:3.6.8-0") + ")", "registry.k8s.io/pause:3.10.2 (not at "} {
		if r.code != console.ExitBlocked || !strings.Contains(r.err, says) {
			t.Errorf("exit code %d, without %q: %s", r.code, says, r.err)
		}
	}
	if strings.Contains(r.err, "coredns") {
		t.Errorf("it names images that are there: %s", r.err)
	}
	digests[scriptList[2]] = s.Push("k8s/etcd", registrytest.Image{Version: "c", Platforms: both}, "3.6.8-0")
	digests[scriptList[3]] = s.Push("sandbox/pause", registrytest.Image{Version: "d", Platforms: both}, "3.10.2")
	args = append(args, "--kubernetes-images", "registry.k8s.io/pause=docker://"+s.Ref("sandbox/pause"))
	if r := createRelease(t, args...); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	v := inspectBundle(t)
	got := map[string]string{}
	for _, i := range v.Images {
		got[i.Name] = i.Digest
	}
	if diff := cmp.Diff(digests, got); diff != "" {
		t.Error(diff)
	}
	slices.Sort(both)
	if diff := cmp.Diff(both, v.Platforms); diff != "" {
		t.Error(diff)
	}
	s.Stop()
	if r := createRelease(t, args...); r.code != console.ExitInternal || !strings.Contains(r.err, s.Addr) {
		t.Errorf("a mirror that is unreachable: exit code %d: %s", r.code, r.err)
	}
}

// The kubeadm, kubelet and kubectl of a real release, as the lab builds it.
func TestKubernetesRealRelease(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	built, err := filepath.Glob(filepath.Join(cache, "refit/lab/bin/kubernetes-"+testRelease+"-*/kubeadm"))
	if err != nil || len(built) == 0 {
		t.Skip("the lab has not built " + testRelease + " on this computer")
	}
	from := filepath.Dir(built[0])
	list, err := kubeadmImages(t.Context(), &releaseProgram{path: built[0], origin: from}, testRelease, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kube-apiserver:" + testRelease, "kube-controller-manager:" + testRelease, "kube-scheduler:" + testRelease, "kube-proxy:" + testRelease, "coredns/coredns:v", "pause:3", "etcd:3"} {
		if !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, "registry.k8s.io/"+part) }) {
			t.Errorf("kubeadm does not list %s: %v", part, list)
		}
	}
	kubernetesSite(t, list...)
	if r := createRelease(t, "--kubernetes-from", from, "--kubernetes-images", "oci:layout"); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	if diff := cmp.Diff([]string{"kubeadm v1.36.3 " + thisHost, "kubectl v1.36.3 " + thisHost, "kubelet v1.36.3 " + thisHost}, payloadsOf(t)); diff != "" {
		t.Error(diff)
	}
	if v := inspectBundle(t); v.Name != "kubernetes" || v.Version != "1.36.3" || len(v.Images) != len(list) {
		t.Errorf("%s %s with %d images", v.Name, v.Version, len(v.Images))
	}
	other := []string{"bundle", "create", "--output", "other", "--unsigned", "kubernetes:v1.36.2", "--kubernetes-from", from}
	if r := refit(t, other...); r.code != console.ExitUsage || !strings.Contains(r.err, `is "v1.36.3"`) {
		t.Errorf("another version: exit code %d: %s", r.code, r.err)
	}
	for _, name := range []string{"kubelet", "kubectl"} {
		p := &releaseProgram{name: name, path: filepath.Join(from, name)}
		if p.checkVersion(testRelease) != nil || p.checkVersion("v1.36.2") == nil {
			t.Errorf("the version of the real %s is not recognized", name)
		}
	}
}
