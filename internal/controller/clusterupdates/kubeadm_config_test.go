package clusterupdates

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// clusterConfig is kubeadm's ClusterConfiguration in an API server, "" for none.
type clusterConfig struct {
	client.Reader
	text string
}

func (c clusterConfig) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c.text == "" {
		return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
	}
	o.(*corev1.ConfigMap).Data = map[string]string{"ClusterConfiguration": c.text}
	return nil
}

func TestReadKubeadmConfig(t *testing.T) {
	t.Parallel()
	const version = "kubernetesVersion: v1.35.4\n"
	for text, want := range map[string]updateplan.Input{
		"":      {},
		version: {KubeadmVersion: "v1.35.4"},
		version + "etcd: {external: {endpoints: [https://192.0.2.1:2379]}}\n":       {KubeadmVersion: "v1.35.4", ExternalEtcd: true},
		version + "etcd: {local: {}}\nfeatureGates: {RootlessControlPlane: true}\n": {KubeadmVersion: "v1.35.4", Rootless: true},
		version + "featureGates: {RootlessControlPlane: false, Other: true}\n":      {KubeadmVersion: "v1.35.4"},
	} {
		var in updateplan.Input
		err := (&Reconciler{Live: clusterConfig{text: text}}).readKubeadmConfig(t.Context(), &in)
		if err != nil || in.KubeadmVersion != want.KubeadmVersion || in.ExternalEtcd != want.ExternalEtcd || in.Rootless != want.Rootless {
			t.Errorf("%q: %v, %+v", text, err, in)
		}
	}
	if err := (&Reconciler{Live: clusterConfig{text: "a: ["}}).readKubeadmConfig(t.Context(), &updateplan.Input{}); err == nil || !strings.Contains(err.Error(), "ClusterConfiguration") {
		t.Error(err)
	}
}
