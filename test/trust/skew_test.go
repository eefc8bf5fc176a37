package trust

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// forgetMembers makes the kind NodeUpdate one of an older version: its status has no
// problems, and the agent in it neither updaters nor formats.
func forgetMembers(t *testing.T, admin client.Client) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "nodeupdates.refit.dev"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		status := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
		for _, path := range [][]string{{"problems"}, {"agent", "properties", "updaters"}, {"agent", "properties", "formats"}} {
			unstructured.RemoveNestedField(v.(map[string]any), append(status[:len(status):len(status)], path...)...)
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// An agent that is newer than the cluster's kinds still writes its status: what the API
// server does not know is left out.
func TestANewerAgentWritesItsStatusToOlderKinds(t *testing.T) {
	cfg := apitest.Start(t)
	admin := newClient(t, cfg)
	(&site{t: t, thief: newClient(t, apitest.As(cfg, apitest.ControllerUser))}).waitForPolicy("ask for a drill", askForDrill())
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1"}}
	if err := newClient(t, apitest.As(cfg, apitest.ControllerUser)).Create(t.Context(), nu); err != nil {
		t.Fatal(err)
	}
	forgetMembers(t, admin)
	api := apiclient.New(kubeconfig(t, cfg, t.TempDir(), "n1"), "n1", slog.New(slog.DiscardHandler))
	status := &v1alpha1.NodeUpdateStatus{Phase: "Ready", Problems: []v1alpha1.NodeProblem{{Reason: "StateFileDamaged", Object: "/x", Message: "m"}},
		Agent: &v1alpha1.AgentInfo{Version: "0.2.0", Address: "10.0.0.1:18740", PublicKey: "k", Updaters: []string{"files"}, Formats: []string{"refit.dev/hold/v1"}}}
	for i := 0; ; i++ { // the API server takes a moment to serve the changed kind
		if err := api.ApplyStatus(t.Context(), status); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(context.Background(), client.ObjectKeyFromObject(nu), nu); err != nil {
			t.Fatal(err)
		}
		if nu.Status.Agent == nil || nu.Status.Agent.Version != "0.2.0" || nu.Status.Phase != "Ready" {
			t.Fatalf("the status is %+v", nu.Status)
		}
		if len(nu.Status.Problems) == 0 && len(nu.Status.Agent.Updaters) == 0 {
			return
		}
		if i == 100 {
			t.Fatal("the API server still serves the newer kind")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
