package components

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clusterAPIVersion is that of the controllers and of the in-memory provider,
// which is in the test module; the two must be the same.
const clusterAPIVersion = "1.13.4"

// Managers of Cluster API, by their names in [ClusterAPI.BinDir].
const (
	ManagerCore         = "core"          // Clusters, MachineDeployments, MachineSets, Machines
	ManagerBootstrap    = "bootstrap"     // KubeadmConfigs
	ManagerControlPlane = "control-plane" // KubeadmControlPlanes
	ManagerInMemory     = "in-memory"     // DevClusters and DevMachines that have no host
)

// ClusterAPI is Cluster API's controllers, built.
type ClusterAPI struct {
	Version string
	// BinDir holds one binary per manager.
	BinDir string
	// CRDs and Webhooks are directories with the manifests of the modules, as
	// published, one directory per manager below each.
	CRDs, Webhooks string
}

// managerManifests says where the manifests of a manager are in the module cache.
var managerManifests = map[string]struct{ module, dir string }{
	ManagerCore:         {clusterAPIModule, "config"},
	ManagerBootstrap:    {clusterAPIModule, "bootstrap/kubeadm/config"},
	ManagerControlPlane: {clusterAPIModule, "controlplane/kubeadm/config"},
	ManagerInMemory:     {clusterAPIModule + "/test", "infrastructure/docker/config"},
}

const clusterAPIModule = "sigs.k8s.io/cluster-api"

func clusterAPISet() set {
	v := clusterAPIModule + "/version"
	return set{name: "cluster-api-" + clusterAPIVersion, module: "cluster-api",
		ldflags: fmt.Sprintf("-s -w -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s", v, clusterAPIVersion, strings.Split(clusterAPIVersion, ".")[1]),
		binaries: []binary{ // the control plane last: what it shares with the others is compiled by then
			{name: ManagerCore, pkg: clusterAPIModule},
			{name: ManagerBootstrap, pkg: clusterAPIModule + "/bootstrap/kubeadm"},
			{name: ManagerInMemory, pkg: clusterAPIModule + "/test/infrastructure/docker"},
			{name: ManagerControlPlane, pkg: clusterAPIModule + "/controlplane/kubeadm"},
		}}
}

// ClusterAPIManagers builds, or finds built, Cluster API's controllers with the
// in-memory provider, and copies their CRDs and webhook configurations.
func ClusterAPIManagers(ctx context.Context, progress Progress) (*ClusterAPI, error) {
	s := clusterAPISet()
	bin, err := build(ctx, s, progress)
	if err != nil {
		return nil, err
	}
	out := &ClusterAPI{Version: "v" + clusterAPIVersion, BinDir: bin, CRDs: filepath.Join(bin, "crds"), Webhooks: filepath.Join(bin, "webhooks")}
	if exists(out.CRDs) && exists(out.Webhooks) {
		return out, nil
	}
	return out, locked(ctx, bin+".lock", progress, func() error { return copyManifests(ctx, s, out) })
}

func copyManifests(ctx context.Context, s set, out *ClusterAPI) error {
	files, err := moduleFiles(s)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(out.BinDir), "manifests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	for kind, target := range map[string]string{"crd/bases": out.CRDs, "webhook": out.Webhooks} {
		if exists(target) {
			continue
		}
		staged := filepath.Join(work, filepath.Base(target))
		for manager, from := range managerManifests {
			dir, err := moduleDir(ctx, work, from.module)
			if err != nil {
				return err
			}
			if err := copyYAML(filepath.Join(dir, from.dir, kind), filepath.Join(staged, manager)); err != nil {
				return err
			}
		}
		if err := os.Rename(staged, target); err != nil {
			return err
		}
	}
	return nil
}

// moduleDir is where the Go client keeps a module that work requires.
func moduleDir(ctx context.Context, work, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = work, goEnv(false)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w\n%s", module, err, tail(stderr.String(), 5))
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(data, &found); err != nil {
		return "", fmt.Errorf("find module %s: what the Go client answers is not read: %w", module, err)
	}
	if found.Dir == "" {
		return "", fmt.Errorf("find module %s: the Go client names no directory", module)
	}
	return found.Dir, nil
}

func copyYAML(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return fs.WalkDir(os.DirFS(from), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || strings.HasPrefix(path, "kustomiz") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(from, path))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o644)
	})
}
