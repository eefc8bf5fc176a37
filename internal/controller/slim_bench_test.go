package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// What a controller reads at its start, for each node.
func BenchmarkReadNodeUpdates(b *testing.B) {
	const nodes = 1000
	l := &v1alpha1.NodeUpdateList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range nodes {
		nu := reported(b, fmt.Sprintf("node-%05d", i))
		for j := range 6 {
			nu.Spec.Peers = append(nu.Spec.Peers, v1alpha1.Peer{Node: fmt.Sprint("node-", i/6+j), Address: fmt.Sprintf("10.0.%d.%d:7443", i/6, j), PublicKey: fmt.Sprintf("key of the node %d, which is longer", i/6+j)})
		}
		for _, id := range []string{"drain", "kubelet", "kubelet-config", "settle", "certificates"} {
			nu.Spec.Run.Steps = append(nu.Spec.Run.Steps, v1alpha1.UpdateStep{ID: id, Updater: id, Verb: "update", From: "v1.35.4", To: "v1.36.3", Params: map[string]string{"payload": "sha256:4", "config": "config-5"}})
		}
		for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionImagesReady} {
			nu.Status.Conditions = append(nu.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected, Message: "step kubeadm"})
		}
		l.Items = append(l.Items, *nu)
	}
	text, err := json.Marshal(l)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, err := nodeUpdates.read(bytes.NewReader(text)); err != nil || len(got.Items) != nodes {
			b.Fatal(err)
		}
	}
}
