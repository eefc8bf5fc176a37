package scenario

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/model"
)

// otherBuild is put behind a program: it runs as before, and is another file.
const otherBuild = "\nrefit lab: another build of the same program\n"

// PluginsPayload is the name of the payload with network plugins.
const PluginsPayload = "cni-plugins"

// RuntimePayloads creates other builds of the nodes' programs that are not Kubernetes':
// the container runtime, runc, the network plugins. files are the payloads by name,
// digests the expected files of a node afterwards: programs by name, plugins as
// cni-plugins/NAME.
func (s *Scenario) RuntimePayloads(ctx context.Context) (files, digests map[string]string, err error) {
	parts, err := components.ForNodes(ctx, func(line string) { s.report("%s", line) })
	if err != nil {
		return nil, nil, err
	}
	files, digests = map[string]string{}, map[string]string{}
	runc, err := exec.LookPath("runc") // the nodes' /usr is an overlay over this machine's
	if err != nil {
		return nil, nil, err
	}
	programs := map[string]string{"runc": runc}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs[name] = filepath.Join(parts.ContainerdDir, name)
	}
	dir := s.Path("parts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	for name, from := range programs {
		data, err := another(from)
		if err != nil {
			return nil, nil, err
		}
		files[name], digests[name] = filepath.Join(dir, name), model.DigestOf(data)
		if err := os.WriteFile(files[name], data, 0o755); err != nil {
			return nil, nil, err
		}
	}
	files[PluginsPayload] = filepath.Join(dir, PluginsPayload+".tar")
	return files, digests, packPlugins(parts.CNIDir, files[PluginsPayload], digests)
}

// another build of a program.
func another(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	return append(data, otherBuild...), err
}

// packPlugins makes a tar of other builds of all plugins in a directory.
func packPlugins(dir, to string, digests map[string]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		data, err := another(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: e.Name(), Mode: 0o755, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		digests[PluginsPayload+"/"+e.Name()] = model.DigestOf(data)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// AgeCertificate lets a control-plane node's kubeadm issue a certificate again, valid
// for ten days only, like one that was not renewed for a year.
func (s *Scenario) AgeCertificate(ctx context.Context, node, name string) error {
	var cm corev1.ConfigMap
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kubeadm-config"}, &cm); err != nil {
		return err
	}
	conf := map[string]any{}
	if err := yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &conf); err != nil {
		return err
	}
	conf["certificateValidityPeriod"] = "240h0m0s"
	text, err := yaml.Marshal(conf)
	if err != nil {
		return err
	}
	const file = "/root/short-lived.yaml"
	if err := s.Lab.Exec(ctx, node, bytes.NewReader(text), io.Discard, io.Discard, "sh", "-c", "cat > "+file); err != nil {
		return fmt.Errorf("node %s: writing %s: %w", node, file, err)
	}
	return s.Exec(ctx, node, "kubeadm", "certs", "renew", name, "--config", file)
}

// FileDigest is the digest of a file in a node, with sha256: before it.
func (s *Scenario) FileDigest(ctx context.Context, node, path string) (string, error) {
	out, err := s.Output(ctx, node, "sha256sum", path)
	hex, _, _ := strings.Cut(out, " ")
	return "sha256:" + strings.TrimPrefix(hex, "\\"), err
}

// RunningDigest is the digest of the program that a unit's process was started from.
func (s *Scenario) RunningDigest(ctx context.Context, node, unit string) (string, error) {
	pid, err := s.Output(ctx, node, "systemctl", "show", "--property=MainPID", "--value", unit)
	if err != nil {
		return "", err
	}
	return s.FileDigest(ctx, node, "/proc/"+strings.TrimSpace(pid)+"/exe")
}
