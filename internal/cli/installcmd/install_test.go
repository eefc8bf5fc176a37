package installcmd

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

func TestParseHosts(t *testing.T) {
	t.Parallel()
	got, err := parseHosts([]string{"n1", "n2:/dev/sdb"})
	if err != nil || len(got) != 2 || got[1] != (host{"n2", "/dev/sdb"}) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", ":/dev/sdb", "n1:sdb", "-oProxyCommand=x"} {
		if _, err := parseHosts([]string{bad}); console.ExitCode(err) != console.ExitUsage {
			t.Errorf("%q is taken: %v", bad, err)
		}
	}
}

func TestFirstContactIsAHostWithADeviceByNameOrAddress(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	n.Name = "n2"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	for _, tc := range []struct {
		h    host
		want bool
	}{{host{"n2", "/dev/sdb"}, true}, {host{"10.0.0.2", "/dev/sdb"}, true}, {host{"n2", ""}, false}, {host{"n3", "/dev/sdb"}, false}} {
		if got := firstContact(n, []host{tc.h}); got != tc.want {
			t.Errorf("%v: %t, want %t", tc.h, got, tc.want)
		}
	}
}

// All that may have been installed goes: the registration with Cluster API before what
// it calls, refit's kinds at the end.
func TestUninstallTakesWhatWasAddedToo(t *testing.T) {
	t.Parallel()
	objects, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, o := range objects {
		at[o.GetKind()+"/"+o.GetName()] = i + 1
	}
	if at["ExtensionConfig/refit"] != 1 {
		t.Errorf("the registration goes as number %d", at["ExtensionConfig/refit"])
	}
	for _, name := range []string{"Service/refit-cluster-api", "ClusterRole/refit-cluster-api", "ClusterRoleBinding/refit-cluster-api", "Role/refit-cluster-api",
		"ClusterRole/refit-cluster-api-kubeconfigs", "ServiceAccount/refit-management", "ClusterRole/refit-management", "Deployment/refit-controller"} {
		if at[name] == 0 || at[name] > at["CustomResourceDefinition/clusterupdates.refit.dev"] {
			t.Errorf("%s goes as number %d", name, at[name])
		}
	}
}

// Where the API server has no such policy, that is reported to who wants it, and nothing
// to who does not.
func TestNoMutationIsSaid(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithRESTMapper(meta.NewDefaultRESTMapper(nil)).Build()
	if err := setIfNotPresent(t.Context(), c, true, 0); console.ExitCode(err) != console.ExitBlocked || !strings.Contains(err.Error(), "1.36") {
		t.Errorf("%v", err)
	}
	if err := setIfNotPresent(t.Context(), c, false, 0); err != nil {
		t.Error(err)
	}
}

// A node that waited to be let in does not wait for ever; what others put there stays.
func TestUninstallLetsNodesIn(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	n.Annotations = map[string]string{"x": "y", v1alpha1.AnnotationAdmitted: "k"}
	n.Spec.Taints = []corev1.Taint{{Key: "a"}, {Key: v1alpha1.TaintImagesNotReady, Effect: corev1.TaintEffectNoSchedule}, {Key: "b"}}
	if !cleanNode(n) || len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != "b" || len(n.Annotations) != 1 {
		t.Errorf("%v %v", n.Spec.Taints, n.Annotations)
	}
	if cleanNode(n) {
		t.Error("a node that nothing is to be taken off is written to")
	}
}
