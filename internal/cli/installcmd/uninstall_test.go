package installcmd

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// Nothing of an installation stays in the cluster: rights and Secrets of machines that
// join too.
func TestUninstallTakesTheJoins(t *testing.T) {
	objects, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, o := range objects {
		have = append(have, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
	}
	for _, want := range []string{"Namespace /refit-joins", "Role refit-joins/refit-joins", "RoleBinding refit-system/refit-joins", "Namespace /refit-builds"} {
		if !slices.Contains(have, want) {
			t.Errorf("%s stays", want)
		}
	}
}

// The person learns which nodes still ask refit before their kubelet starts.
func TestUninstallNamesTheNodesThatAreLeft(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	nu := func(name string, agent *v1alpha1.AgentInfo) *v1alpha1.NodeUpdate {
		return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Status: v1alpha1.NodeUpdateStatus{Agent: agent}}
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(nu("n2", &v1alpha1.AgentInfo{}), nu("n1", &v1alpha1.AgentInfo{}), nu("never", nil)).Build()
	nodes, err := agentNodes(t.Context(), c)
	if err != nil || !slices.Equal(nodes, []string{"n1", "n2"}) {
		t.Fatalf("%v, %v", nodes, err)
	}
	for want, nodes := range map[string][]string{
		"2 nodes still have the agent and its cold-start check (a drop-in of kubelet.service): n1, n2": nodes,
		"1 node still has":          {"n1"},
		"refit-agent uninstall":     {"n1"},
		"and 5 more":                make([]string, maxNamed+5),
		"no node reported an agent": nil,
	} {
		if said := listLeftovers(nodes); !strings.Contains(said, want) {
			t.Errorf("%q does not contain %q", said, want)
		}
	}
}
