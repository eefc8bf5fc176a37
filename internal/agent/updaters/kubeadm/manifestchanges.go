package kubeadm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// ManifestCheck compares a node's manifests with those that kubeadm writes.
type ManifestCheck struct {
	// Kubeadm is the program, of the version of the node's API server.
	Kubeadm string
	// Node is its name, Manifests the directory of its static pods.
	Node, Manifests string
	// ClusterConfiguration is kubeadm's, Patches the directory of its patches, "" for none.
	ClusterConfiguration, Patches string
	// Dir is for files of the check.
	Dir string
	// Run runs a command; the error has its output.
	Run func(ctx context.Context, argv []string) error
}

// Changes returns what in the manifests kubeadm would write otherwise, and an update
// therefore replaces. It returns names without values, since values may be secrets.
func (c *ManifestCheck) Changes(ctx context.Context) ([]string, error) {
	pods, err := kube.StaticPods(c.Manifests)
	if err != nil {
		return nil, err
	}
	server := kube.Find(pods, kube.APIServer)
	if server == nil {
		return nil, fmt.Errorf("compare manifests: %s has no API server", c.Manifests)
	}
	staged, err := c.stage(ctx, kube.Tag(server.Containers[0].Image), kube.Find(pods, etcdPod) != nil)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range pods {
		want, err := os.ReadFile(manifestPath(staged, p.Name))
		if os.IsNotExist(err) {
			continue // not a pod of kubeadm
		}
		if err != nil {
			return nil, fmt.Errorf("compare manifests: %w", err)
		}
		have, err := os.ReadFile(manifestPath(c.Manifests, p.Name))
		if err != nil {
			return nil, fmt.Errorf("compare manifests: %w", err)
		}
		differences, err := compareManifests(p.Name, have, want)
		if err != nil {
			return nil, err
		}
		out = append(out, differences...)
	}
	return out, nil
}

// stage lets kubeadm write the manifests by its dry run.
func (c *ManifestCheck) stage(ctx context.Context, version string, etcd bool) (staged string, err error) {
	endpoint, err := endpointOf(c.Manifests)
	if err != nil {
		return "", err
	}
	patches, err := patchesDirectory(v1alpha1.UpdateStep{Params: map[string]string{model.ParamPatches: c.Patches}})
	if err != nil {
		return "", err
	}
	text, err := initConfiguration(c.ClusterConfiguration, version, c.Node, endpoint, patches)
	if err != nil {
		return "", err
	}
	staged, file := filepath.Join(c.Dir, "manifests"), filepath.Join(c.Dir, "init.yaml")
	if err := os.RemoveAll(staged); err != nil {
		return "", fmt.Errorf("compare manifests: %w", err)
	}
	if err := os.MkdirAll(staged, 0o700); err != nil {
		return "", fmt.Errorf("compare manifests: %w", err)
	}
	if err := fsutil.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	phases := [][]string{{"control-plane", "all"}}
	if etcd {
		phases = append(phases, []string{"etcd", "local"})
	}
	for _, phase := range phases {
		if err := c.Run(ctx, dryRun(c.Kubeadm, staged, file, phase...)); err != nil {
			return "", err
		}
	}
	return staged, nil
}

// compareManifests returns the names of what differs in two manifests of a pod, sorted.
func compareManifests(pod string, have, want []byte) ([]string, error) {
	var a, b any
	if err := yaml.Unmarshal(have, &a); err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", pod, err)
	}
	if err := yaml.Unmarshal(want, &b); err != nil {
		return nil, fmt.Errorf("manifest of %s that kubeadm wrote: %w", pod, err)
	}
	found := map[string]bool{}
	differences("", a, b, func(name string) {
		if pod != etcdPod || !slices.Contains(joinFlags, name) {
			found[pod+": "+printable(name)] = true
		}
	})
	out := make([]string, 0, len(found))
	for name := range found {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// joinFlags of etcd are of the moment at which a member joined; an upgrade omits them.
var joinFlags = []string{"--initial-cluster", "--initial-cluster-state"}

// differences reports the name of each value that differs: a flag, an item with a name, or
// the path of a field.
func differences(path string, a, b any, report func(string)) {
	if x, y := asMembers(a, b), asMembers(b, a); x != nil && y != nil {
		for _, key := range keysOf(x, y) {
			differences(join(path, key), x[key], y[key], report)
		}
		return
	}
	if fmt.Sprint(a) != fmt.Sprint(b) {
		report(path)
	}
}

// asMembers returns the members of an object by key, those of a list by name, and flags by
// flag. A missing value is an empty list if the other one is a list. It returns nil for any
// other value.
func asMembers(v, other any) map[string]any {
	switch v := v.(type) {
	case nil:
		if _, list := other.([]any); list {
			return map[string]any{}
		}
	case map[string]any:
		return v
	case []any:
		out := map[string]any{}
		for _, item := range v {
			key, value := member(item)
			if key == "" {
				return nil
			}
			if m, ok := value.(map[string]any); ok {
				out[key] = m
				continue
			}
			out[key] = fmt.Sprint(out[key], value) // a flag may be there more than once
		}
		return out
	}
	return nil
}

// member is the key of an item in a list, and its value.
func member(item any) (key string, value any) {
	switch item := item.(type) {
	case string:
		if flag, value, _ := strings.Cut(item, "="); strings.HasPrefix(flag, "-") {
			return flag, value
		}
		return item, ""
	case map[string]any:
		key, _ = item["name"].(string)
		if at, ok := item["mountPath"].(string); ok {
			key += " " + at
		}
	}
	return key, item
}

func keysOf(a, b map[string]any) []string {
	var out []string
	for key := range a {
		out = append(out, key)
	}
	for key := range b {
		if _, both := a[key]; !both {
			out = append(out, key)
		}
	}
	return out
}

// join appends a key to a path. The name of a flag is enough, and every field is in spec.
func join(path, key string) string {
	if strings.HasPrefix(key, "--") || path == "" || path == "spec" {
		return key
	}
	return path + "." + key
}

var unprintable = regexp.MustCompile(`[^A-Za-z0-9._:/ -]`)

// maxName bounds a name; who writes a manifest chooses it.
const maxName = 120

func printable(name string) string {
	name = unprintable.ReplaceAllString(name, "?")
	return name[:min(len(name), maxName)]
}
