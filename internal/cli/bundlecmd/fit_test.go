package bundlecmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func fitCluster(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
}

func fitNode(name, arch, kubelet string, images ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
		KubeletVersion: kubelet, ContainerRuntimeVersion: "containerd://1.7.24", OperatingSystem: "linux", Architecture: arch}}}
	for _, i := range images {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{i}})
	}
	return n
}

// An image counts as there if each node that needs it has its digest: workers need none of the
// control plane.
func TestFitCountsImagesOnTheNodes(t *testing.T) {
	t.Parallel()
	d := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	h := &bundle.Header{Digest: d("b"), Metadata: &bundle.Metadata{KubernetesVersion: "v1.36.3", Platforms: []string{"linux/amd64"}, Images: []bundle.Image{
		{Name: "r.example/api:1", Digest: d("1"), Group: bundle.GroupControlPlane},
		{Name: "r.example/pause:3", Digest: d("2"), Group: bundle.GroupNode},
		{Name: "r.example/app:1", Digest: d("3"), Group: bundle.GroupWorkload},
	}}}
	cp := fitNode("n1", "amd64", "v1.35.4", "r.example/api@"+d("1"), "r.example/pause@"+d("2"), "r.example/app@"+d("3"))
	cp.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	worker := fitNode("n2", "amd64", "v1.35.4", "r.example/pause@"+d("2"), "r.example/app:1", "r.example/app@"+d("4"))
	f, err := FitBundle(t.Context(), fitCluster(t, cp, worker), h, h.Digest)
	if err != nil || f.Nodes != 2 || f.Images != 3 || f.ImagesThere != 2 || len(f.Misfits) != 0 || f.Err(h.Digest) != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	var out bytes.Buffer
	if f.Print(&out); !strings.Contains(out.String(), "already on all nodes that need them: 2 of 3 images\n") {
		t.Error(out.String())
	}
}

// The version of a control plane comes from its agent's report; a bundle that is no file here is
// compared by the status of its Bundle.
func TestFitRefusesByTheStatusOfABundle(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: v1alpha1.BundleStatus{Digest: digest, KubernetesVersion: "v1.36.3", Platforms: []string{"linux/amd64"},
		Constraints: []v1alpha1.BundleConstraint{{Name: "kubernetes", Max: "1.36.2"}}}}
	cp := fitNode("n1", "amd64", "v1.35.4")
	cp.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1alpha1.NodesNamespace}, Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{ControlPlane: "v1.36.4"}}}
	c := fitCluster(t, b, cp, nu, fitNode("n2", "arm64", "v1.33.0"))
	f, err := FitBundle(t.Context(), c, nil, digest)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range f.Misfits {
		found = append(found, m.Node+" "+m.Reason)
		if m.Fix == "" {
			t.Errorf("%+v has no fix", m)
		}
	}
	if got := strings.Join(found, ", "); got != "n1 ConstraintNotMet, n2 VersionSkew, n2 ConstraintNotMet" {
		t.Error(got)
	}
	if err := f.Err(digest); console.ExitCode(err) != console.ExitBlocked || !strings.Contains(err.Error(), "2 of 2 nodes: n1, n2") || !strings.Contains(err.Error(), "--allow-mismatch") {
		t.Error(err)
	}
	if f, err := FitBundle(t.Context(), c, nil, "sha256:"+strings.Repeat("f", 64)); f != nil || err != nil {
		t.Errorf("an unknown bundle: %+v, %v", f, err)
	}
}

func TestConstraintsAndRolesAreShown(t *testing.T) {
	site(t)
	must(t, "bundle", "create", "--output", "b", "--unsigned", "--group", "control-plane=registry.example/*", "--constraint", "kubernetes>=1.35.2", "--constraint", "containerd>=1.7.3",
		"oci:layout", "payload:kubelet@v1.36.3=kubelet")
	var v bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "b", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Constraints) != 2 || v.Constraints[0].String() != "containerd 1.7.3 or later" {
		t.Errorf("%+v", v.Constraints)
	}
	if len(v.Roles) != 2 || v.Roles[0].Role != roleControlPlane || v.Roles[0].Images != 1 || v.Roles[0].Size < 10000 || v.Roles[1].Role != roleWorker || v.Roles[1].Images != 0 || v.Roles[1].Size != 12 {
		t.Errorf("%+v", v.Roles)
	}
	table := must(t, "bundle", "inspect", "b")
	for _, want := range []string{"kubernetes 1.35.2 or later", "STORED ON", "control-plane ", "worker"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q:\n%s", want, table)
		}
	}
	if list := must(t, "bundle", "list", "."); !strings.Contains(list, "CONTROL PLANE  WORKER") || !strings.Contains(list, " 12 B ") {
		t.Error(list)
	}
	for _, bad := range []string{"kernel>=6.1", "kubernetes"} {
		if r := refit(t, "bundle", "create", "--output", "c", "--unsigned", "--constraint", bad, "oci:layout"); r.code != console.ExitUsage {
			t.Errorf("%s: exit %d: %s", bad, r.code, r.err)
		}
	}
}
