package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// kubeletUnit is the kubelet's unit on kubeadm nodes.
const kubeletUnit = "kubelet.service"

// apiTime bounds a question to the kubelet or the container runtime.
const apiTime = apiclient.AskTime

// nodeHost is the node as the updaters see it.
type nodeHost struct {
	node       string
	kubeconfig string
	paths      kube.Paths
	binaries   kube.Binaries
	cri        *cri.Client
	// runtime is the unit of the container runtime.
	runtime string
	// self is this program, for commands that outlive it.
	self string
	// config finds a rendered configuration by its name.
	config func(name string) (data string, ok bool)
	// held finds a file of any bundle that this node holds.
	held func(name, digest string) (updaters.Payload, error)
	// restart is for tests; nil restarts the kubelet.
	restart func(ctx context.Context) error
}

func (h *nodeHost) restartKubelet(ctx context.Context) error {
	if h.restart != nil {
		return h.restart(ctx)
	}
	return h.RestartKubelet(ctx)
}

func (h *nodeHost) Node() string { return h.node }

func (h *nodeHost) StaticPods() ([]kube.StaticPod, error) {
	return kube.StaticPods(h.paths.Manifests())
}

func (h *nodeHost) Containers(ctx context.Context) ([]cri.Container, error) {
	return h.cri.Containers(ctx)
}

func (h *nodeHost) ImageID(ctx context.Context, name string) (string, error) {
	return h.cri.ImageID(ctx, name)
}

func (h *nodeHost) KubeletHealthy(ctx context.Context) error { return kube.KubeletHealthy(ctx) }

// get asks an API server with the node's identity. own asks the one on this
// node, if there is one.
func (h *nodeHost) get(ctx context.Context, own bool, path string) ([]byte, error) {
	return apiclient.Get(ctx, h.kubeconfig, h.paths, own, path)
}

// clusterConfiguration is kubeadm's, as the API server has it; "" if the cluster
// was not made by kubeadm. Nodes may read it: joining needs it.
func (h *nodeHost) clusterConfiguration(ctx context.Context) (string, error) {
	b, err := h.get(ctx, false, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config")
	if errors.Is(err, apiclient.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var cm struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(b, &cm); err != nil {
		return "", fmt.Errorf("kube-system/kubeadm-config: %w", err)
	}
	return cm.Data["ClusterConfiguration"], nil
}

func (h *nodeHost) APIReady(ctx context.Context) error {
	_, err := h.get(ctx, true, "/readyz")
	return err
}

// APIAnswers asks the API server that the node's kubelet uses.
func (h *nodeHost) APIAnswers(ctx context.Context) error {
	_, err := h.get(ctx, false, "/readyz")
	return err
}

func (h *nodeHost) NodeReady(ctx context.Context) (ready bool, kubelet string, err error) {
	n, err := h.nodeSays(ctx)
	return n.ready, n.Kubelet, err
}

// said is what the API server has of this node.
type said struct {
	Kubelet string `json:"kubeletVersion"`
	// Boot of the kernel that its kubelet has told last.
	Boot  string `json:"bootID"`
	ready bool
	// why it is not, in the kubelet's words.
	why string
}

func (h *nodeHost) nodeSays(ctx context.Context) (said, error) {
	b, err := h.get(ctx, true, "/api/v1/nodes/"+h.node)
	if err != nil {
		return said{}, err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
			NodeInfo   said `json:"nodeInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return said{}, fmt.Errorf("this node's Node object: %w", err)
	}
	out := n.Status.NodeInfo
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			out.ready, out.why = c.Status == "True", c.Message
		}
	}
	return out, nil
}

// PodSays is what the API server has of a pod of this node, as its kubelet has
// reported it. A node may read the pods that are bound to it.
func (h *nodeHost) PodSays(ctx context.Context, namespace, name string) (images map[string]string, ready bool, err error) {
	b, err := h.get(ctx, true, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods/"+url.PathEscape(name))
	if err != nil {
		return nil, false, err
	}
	var p struct {
		Spec struct {
			InitContainers, Containers []struct{ Name, Image string }
		}
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, false, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	images = map[string]string{}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		images[c.Name] = c.Image
	}
	for _, c := range p.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True"
	}
	return images, ready, nil
}

// Unsettled is what keeps kubeadm from being started.
func (h *nodeHost) Unsettled(ctx context.Context) ([]string, error) {
	if _, err := h.Containers(ctx); err != nil {
		return []string{"the container runtime does not answer: " + err.Error()}, nil //nolint:nilerr // the error is the answer
	}
	problems, _, err := kubeadm.StaticPods(ctx, h)
	if away := h.APIReady(ctx); away != nil {
		problems = append(problems, away.Error())
	}
	return problems, err
}

func (h *nodeHost) CgroupV1() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type != unix.CGROUP2_SUPER_MAGIC
}

// program finds a program where it is, or says where it is to be put.
func program(name, beside string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return filepath.Join(beside, name)
}

func (h *nodeHost) Kubelet(ctx context.Context) (string, error) {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer m.Close()
	path, err := m.ExecPath(ctx, kubeletUnit)
	if err == nil && !filepath.IsAbs(path) {
		err = fmt.Errorf("%s starts no program", kubeletUnit)
	}
	return path, err
}

func (h *nodeHost) Kubeadm(ctx context.Context) (string, error) {
	kubelet, err := h.Kubelet(ctx)
	if err != nil {
		return "", err
	}
	return program("kubeadm", filepath.Dir(kubelet)), nil
}

// place is where the program of a payload is, "" if refit replaces none.
func (h *nodeHost) place(ctx context.Context, payload string) string {
	var path string
	var err error
	switch payload {
	case bundle.PayloadKubelet:
		path, err = h.Kubelet(ctx)
	case bundle.PayloadKubeadm:
		path, err = h.Kubeadm(ctx)
	case bundle.PayloadKubectl:
		path = h.Kubectl()
	default:
		if slices.Contains(bundle.Programs(), payload) {
			path, err = runtimePart(h).Program(ctx, payload)
		}
	}
	if err != nil {
		return ""
	}
	return path
}

func (h *nodeHost) KubeletService() servicerestart.Host { return kubeletPart(h) }

func (h *nodeHost) ConfigFiles() []string {
	return []string{h.paths.KubeletConfig(), h.paths.KubeletFlags()}
}

func (h *nodeHost) Kubectl() string {
	p, err := exec.LookPath("kubectl")
	if err != nil {
		return ""
	}
	return p
}

func (h *nodeHost) unit(ctx context.Context, do func(*systemd.Manager) error) error {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return do(m)
}

// RestartKubelet gives systemd one job: it ends in a started kubelet also if this
// program is killed while the old one is still stopping.
func (h *nodeHost) RestartKubelet(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Restart(ctx, kubeletUnit) })
}

func (h *nodeHost) Running(ctx context.Context) (version string, replaced bool, err error) {
	var pid int
	err = h.unit(ctx, func(m *systemd.Manager) (err error) {
		pid, err = m.MainPID(ctx, kubeletUnit)
		return err
	})
	if err != nil || pid == 0 {
		return "", false, err
	}
	p, err := kube.ProcessOf(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil // it ended just now
	}
	if err != nil {
		return "", false, err
	}
	version, err = h.binaries.Version(ctx, p.Path(), "--version")
	return version, p.Replaced, err
}

func (h *nodeHost) Log(ctx context.Context) string {
	return systemd.Log(ctx, kubeletUnit)
}

func (h *nodeHost) RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error {
	command := append([]string{h.self, "keep", "--log", log, "--result", result, "--"}, argv...)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8"}
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Run(ctx, unit, description, command, env) })
}

func (h *nodeHost) DetachedRuns(ctx context.Context, unit string) (runs bool, err error) {
	err = h.unit(ctx, func(m *systemd.Manager) (err error) {
		runs, err = m.Runs(ctx, unit)
		return err
	})
	return runs, err
}
