package inputs

import (
	"context"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

// kubeadm keeps the settings of the cluster in this ConfigMap.
const (
	kubeadmNamespace = "kube-system"
	kubeadmConfig    = "kubeadm-config"
	kubeadmKey       = "ClusterConfiguration"
	kubeadmPath      = "/api/v1/namespaces/" + kubeadmNamespace + "/configmaps/" + kubeadmConfig
)

// Kubeadm are the settings that decide on kubeadm's list of images.
type Kubeadm struct {
	// Version of Kubernetes, and Repository of its images, "" for kubeadm's own.
	Version, Repository string
	// replaced are the last parts of names that the cluster takes from elsewhere.
	replaced map[string]bool
}

// kubeadm reads them; nil if kubeadm did not make the cluster, or the account must not know.
func (r *clusterReader) kubeadm(ctx context.Context) (*Kubeadm, error) {
	var m struct {
		Data map[string]string `json:"data"`
	}
	err := r.get(ctx, kubeadmPath, &m)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		r.deny("configmaps/" + kubeadmConfig + " in " + kubeadmNamespace)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", kubeadmNamespace, kubeadmConfig, err)
	}
	return parseKubeadm(m.Data[kubeadmKey])
}

func parseKubeadm(text string) (*Kubeadm, error) {
	type image struct {
		Repository string `json:"imageRepository"`
		Tag        string `json:"imageTag"`
	}
	var c struct {
		Version    string `json:"kubernetesVersion"`
		Repository string `json:"imageRepository"`
		DNS        image  `json:"dns"`
		Etcd       struct {
			Local    image          `json:"local"`
			External map[string]any `json:"external"`
		} `json:"etcd"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s: %w", kubeadmNamespace, kubeadmConfig, kubeadmKey, err)
	}
	if c.Version == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s has no kubernetesVersion", kubeadmNamespace, kubeadmConfig, kubeadmKey)
	}
	k := &Kubeadm{Version: c.Version, replaced: map[string]bool{}}
	if c.Repository != "registry.k8s.io" {
		k.Repository = c.Repository
	}
	k.replaced["coredns"] = c.DNS != image{}
	k.replaced["etcd"] = c.Etcd.Local != image{} || c.Etcd.External != nil
	return k, nil
}

// Refs are the references of a list of kubeadm. The pods of the cluster name the images that it
// takes from elsewhere.
func (k *Kubeadm) Refs(list []string) []imagerefs.Ref {
	var out []imagerefs.Ref
	for _, image := range list {
		ref, err := imagetag.ParseRef(image)
		if err == nil && k.replaced[path.Base(ref.Repository)] {
			continue
		}
		out = append(out, imagerefs.Ref{Image: image, Rule: RuleKubeadm,
			Object: imagerefs.Object{Kind: "ConfigMap", Namespace: kubeadmNamespace, Name: kubeadmConfig}, Path: "data." + kubeadmKey})
	}
	return out
}
