package kube

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/confined"
)

// KubeadmImages returns the images that a kubeadm program needs on a control-plane node for a
// release of Kubernetes, for example v1.36.3. It uses the cluster's ClusterConfiguration (the
// text in kube-system/kubeadm-config), which may name other repositories, etcd or DNS. The program
// runs without privileges, network or write access; it must be executable for all users. dir is a
// directory for a mount point.
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
