package kubeadm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

func TestInitConfiguration(t *testing.T) {
	t.Parallel()
	const cluster = "apiServer:\n  extraArgs:\n  - name: audit-log-maxage\n    value: \"30\"\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\n"
	got, err := initConfiguration(cluster, "v1.36.3", "n1", "[fd00::1]:6443", "/etc/kubernetes/patches")
	if err != nil {
		t.Fatal(err)
	}
	want := `apiServer:
  extraArgs:
  - name: audit-log-maxage
    value: "30"
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: fd00::1
  bindPort: 6443
nodeRegistration:
  name: n1
patches:
  directory: /etc/kubernetes/patches
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct{ cluster, endpoint, says string }{
		"no YAML":                    {"a: [", "10.0.0.1:6443", "parse ClusterConfiguration"},
		"no apiVersion":              {"kind: ClusterConfiguration", "10.0.0.1:6443", "names no apiVersion"},
		"an endpoint without a port": {cluster, "10.0.0.1", "missing port"},
		"a port in words":            {cluster, "10.0.0.1:https", "invalid syntax"},
	} {
		if _, err := initConfiguration(c.cluster, "v1.36.3", "n1", c.endpoint, ""); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyPatchesOfRootAreApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	step := func(path string) v1alpha1.UpdateStep {
		return v1alpha1.UpdateStep{Params: map[string]string{model.ParamPatches: path}}
	}
	good := filepath.Join(dir, "good")
	if err := fsutil.WriteFile(filepath.Join(good, "etcd+merge.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := patchesDirectory(step(good)); err != nil || got != good {
		t.Errorf("%q %v", got, err)
	}
	if got, err := patchesDirectory(v1alpha1.UpdateStep{}); err != nil || got != "" {
		t.Errorf("without a directory: %q %v", got, err)
	}
	loose, link := filepath.Join(dir, "loose"), filepath.Join(dir, "link")
	for _, err := range []error{
		fsutil.WriteFile(filepath.Join(loose, "etcd.yaml"), nil, 0o644), os.Chmod(filepath.Join(loose, "etcd.yaml"), 0o666), os.Symlink(good, link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{loose: "can be written by others", link: "symbolic link", good + "/../good": "shortest form", "patches": "absolute", dir + "/none": "no such file"} {
		if _, err := patchesDirectory(step(path)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
