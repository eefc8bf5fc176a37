package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// KubeadmImages are the images that a kubeadm program wants on a control-plane
// node for a release of Kubernetes, for example v1.36.3, with the cluster's own
// ClusterConfiguration (the text in kube-system/kubeadm-config): repositories,
// etcd and DNS may be its own. dir is a private directory for a file.
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
	file := filepath.Join(dir, "release-images.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file) }() // it is written anew each time
	c := exec.CommandContext(ctx, program, "config", "images", "list", "--config", file)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s config images list: %w: %.300s", filepath.Base(program), err, strings.TrimSpace(errs.String()))
	}
	return strings.Fields(out.String()), nil
}
