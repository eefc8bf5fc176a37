package service

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/model"
)

// nodeFacts observes the node with its own programs.
type nodeFacts struct {
	paths    kube.Paths
	binaries kube.Binaries
	host     *nodeHost
	// fields are the updaters that read fields of the node.
	fields []fielder
	// machine are facts that only a reboot changes, read once.
	machine func() map[string]string
}

// fielder reads fields of the node, by path. It omits fields that it cannot read.
type fielder interface {
	Fields(ctx context.Context, asked agent.Asked) map[string]string
}

// asFields is a function as a fielder.
type asFields func(ctx context.Context, asked agent.Asked) map[string]string

func (f asFields) Fields(ctx context.Context, asked agent.Asked) map[string]string {
	return f(ctx, asked)
}

// ofConfig reads the fields of every configuration; the first value of a field counts.
func ofConfig(f func(context.Context, *model.NodeConfig) map[string]string) fielder {
	return asFields(func(ctx context.Context, asked agent.Asked) map[string]string {
		out := map[string]string{}
		for _, c := range asked.Configs {
			for path, value := range f(ctx, c) {
				if _, found := out[path]; !found {
					out[path] = value
				}
			}
		}
		return out
	})
}

// maxFields is how many fields a status may hold.
const maxFields = 512

// Observe returns the facts that it could read; others are empty.
func (f *nodeFacts) Observe(ctx context.Context, asked agent.Asked) v1alpha1.Observed {
	o := v1alpha1.Observed{Architecture: runtime.GOARCH, InstalledImage: bootimagecheck.InstalledVersion("/"), Machine: f.machine()}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		o.BootID = strings.TrimSpace(string(b))
	}
	o.KubeletVersion = f.kubelet(ctx)
	if path, err := exec.LookPath("kubeadm"); err == nil {
		o.KubeadmVersion, _ = f.binaries.Version(ctx, path, "version", "-o", "short")
	}
	if pods, err := kube.StaticPods(f.paths.Manifests()); err == nil {
		if p := kube.Find(pods, kube.APIServer); p != nil {
			o.ControlPlane = kube.Tag(p.Containers[0].Image)
		}
	}
	if d := f.host.supervised; d != nil {
		o.KubeletVersion, o.ControlPlane = supervisorPart{f.host, d}.observe(ctx)
	}
	for _, u := range f.fields {
		for path, value := range u.Fields(ctx, asked) {
			if o.Fields == nil {
				o.Fields = map[string]string{}
			}
			if value != "" && len(o.Fields) < maxFields {
				o.Fields[path] = value
			}
		}
	}
	return o
}

// kubelet returns the version of the running process, not of the file, which may be newer.
func (f *nodeFacts) kubelet(ctx context.Context) string {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return ""
	}
	defer m.Close()
	pid, err := m.MainPID(ctx, kubeletUnit)
	if err != nil || pid == 0 {
		return ""
	}
	p, err := kube.ProcessOf(pid)
	if err != nil {
		return ""
	}
	v, _ := f.binaries.Version(ctx, p.Path(), "--version")
	return v
}

// ReleaseImages asks kubeadm, with the cluster's own configuration.
func (f *nodeFacts) ReleaseImages(ctx context.Context, kubeadm, version, dir string) ([]string, error) {
	pods, err := kube.StaticPods(f.paths.Manifests())
	if err != nil || kube.Find(pods, kube.APIServer) == nil {
		return nil, err
	}
	conf, err := f.host.ClusterConfiguration(ctx)
	if err != nil || conf == "" {
		return nil, err
	}
	return kube.KubeadmImages(ctx, kubeadm, conf, version, dir)
}
