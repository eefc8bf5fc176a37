package kube

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/confined"
)

// KubeadmImages are the images that a kubeadm program wants on a control-plane
// node for a release of Kubernetes, for example v1.36.3, with the cluster's own
// ClusterConfiguration (the text in kube-system/kubeadm-config): repositories,
// etcd and DNS may be its own. The program runs without rights, network or anything
// of the host's to write; everybody must be able to execute it. dir is a directory for
// a mount point.
func KubeadmImages(ctx context.Context, program, clusterConfiguration, version, dir string) ([]string, error) {
	var conf map[string]any
	if err := yaml.Unmarshal([]byte(clusterConfiguration), &conf); err != nil || conf == nil {
		return nil, fmt.Errorf("kubeadm's ClusterConfiguration cannot be read: %w", err)
	}
	conf["kubernetesVersion"] = version
	text, err := yaml.Marshal(conf)
	if err != nil {
		return nil, err
	}
	if api, ok := conf["apiVersion"].(string); ok {
		// Without a network kubeadm finds no address of the node; the list needs none.
		text = fmt.Appendf(text, "---\napiVersion: %s\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 192.0.2.1}\nnodeRegistration: {name: node}\n", api)
	}
	out, err := confined.Output(ctx, confined.Command{Program: program, Args: []string{"config", "images", "list", "--config", "/cluster.yaml"},
		Files: map[string][]byte{"cluster.yaml": text}, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("%s config images list: %w", filepath.Base(program), err)
	}
	return strings.Fields(string(out)), nil
}
