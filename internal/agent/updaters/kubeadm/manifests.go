package kubeadm

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// Names of the static pods that kubeadm writes, in the order in which kubeadm itself
// replaces them: each beginning of this list is a supported mix of versions.
const etcdPod = "etcd"

var controlPlanePods = []string{kube.APIServer, "kube-controller-manager", "kube-scheduler"}

// endpointAnnotation is on the manifest of the API server. kubeadm reads the node's
// endpoint from it (constants.KubeAPIServerAdvertiseAddressEndpointAnnotationKey).
const endpointAnnotation = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"

// initConfiguration is the configuration with which `kubeadm init phase control-plane`
// writes the manifests that `kubeadm upgrade` writes: the cluster's ClusterConfiguration
// at the new version, with the node's own name and endpoint.
func initConfiguration(clusterConfiguration, version, node, endpoint, patches string) ([]byte, error) {
	var cluster map[string]any
	if err := yaml.Unmarshal([]byte(clusterConfiguration), &cluster); err != nil {
		return nil, fmt.Errorf("parse ClusterConfiguration of kube-system/kubeadm-config: %w", err)
	}
	api, _ := cluster["apiVersion"].(string)
	if api == "" {
		return nil, fmt.Errorf("ClusterConfiguration of kube-system/kubeadm-config names no apiVersion")
	}
	cluster["kubernetesVersion"] = version
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of the API server's manifest: %w", endpointAnnotation, err)
	}
	bind, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of the API server's manifest: %w", endpointAnnotation, err)
	}
	own := map[string]any{"apiVersion": api, "kind": "InitConfiguration",
		"localAPIEndpoint": map[string]any{"advertiseAddress": host, "bindPort": bind},
		"nodeRegistration": map[string]any{"name": node}}
	if patches != "" {
		own["patches"] = map[string]any{"directory": patches}
	}
	a, err := yaml.Marshal(cluster)
	if err != nil {
		return nil, err
	}
	b, err := yaml.Marshal(own)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(a, "---\n%s", b), nil
}

// endpointOf reads the node's API endpoint from the manifest of its API server.
func endpointOf(manifests string) (string, error) {
	b, err := os.ReadFile(manifestPath(manifests, kube.APIServer))
	if err != nil {
		return "", fmt.Errorf("manifest of the API server: %w", err)
	}
	var m struct {
		Metadata struct{ Annotations map[string]string } `json:"metadata"`
	}
	if err := yaml.Unmarshal(b, &m); err != nil {
		return "", fmt.Errorf("manifest of the API server: %w", err)
	}
	if m.Metadata.Annotations[endpointAnnotation] == "" {
		return "", fmt.Errorf("the manifest of the API server has no annotation %s", endpointAnnotation)
	}
	return m.Metadata.Annotations[endpointAnnotation], nil
}

// dryRun is a command in which kubeadm writes manifests into the directory staged.
func dryRun(program, staged, config string, phase ...string) []string {
	argv := append([]string{"/usr/bin/env", "KUBEADM_INIT_DRYRUN_DIR=" + staged, program, "init", "phase"}, phase...)
	return append(argv, "--dry-run", "--config", config)
}

func manifestPath(dir, pod string) string { return filepath.Join(dir, pod+".yaml") }

// checkStaged returns what is wrong with staged manifests, "" if they can run: kubeadm
// wrote every one, and the control plane's images have the target's tag.
func checkStaged(staged string, names []string, version string) (string, error) {
	pods, err := kube.StaticPods(staged)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		p := kube.Find(pods, name)
		if p == nil {
			return fmt.Sprintf("kubeadm wrote no manifest of %s", name), nil
		}
		if tag := kube.Tag(p.Containers[0].Image); name != etcdPod && tag != version {
			return fmt.Sprintf("kubeadm wrote a manifest of %s with version %s, %s is wanted", name, tag, version), nil
		}
	}
	return "", nil
}
