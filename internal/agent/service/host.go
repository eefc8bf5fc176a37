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
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// kubeletUnit is the kubelet's unit on kubeadm nodes.
const kubeletUnit = distribution.KubeletUnit

// apiTime bounds a request to the kubelet or the container runtime.
const apiTime = apiclient.RequestTimeout

// nodeHost is the node as the updaters see it.
type nodeHost struct {
	node       string
	kubeconfig string
	paths      kube.Paths
	binaries   kube.Binaries
	cri        *cri.Client
	// runtime is the unit of the container runtime.
	runtime string
	// socket is that of the container runtime.
	socket string
	// supervised is the detection of a node where one unit starts everything, else nil.
	supervised *kube.Detection
	// self is the path of this program, for commands that outlive it.
	self string
	// config finds a rendered configuration by its name.
	config func(name string) (data string, ok bool)
	// findPinned finds a payload of the pin set, in any bundle.
	findPinned func(name, digest string) (updaters.Payload, error)
	// restart replaces the restart of the kubelet in tests.
	restart func(ctx context.Context) error
}

func (h *nodeHost) restartKubelet(ctx context.Context) error {
	if h.restart != nil {
		return h.restart(ctx)
	}
	if d := h.supervised; d != nil {
		return supervisorPart{h, d}.RestartKubelet(ctx)
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

// getFromAPI sends a request to an API server with the node's identity. own prefers the one on this
// node.
func (h *nodeHost) getFromAPI(ctx context.Context, own bool, path string) ([]byte, error) {
	return apiclient.Get(ctx, h.kubeconfig, h.paths, own, path)
}

// ClusterConfiguration returns kubeadm's from the API server; "" if kubeadm did not create the
// cluster. Nodes may read it, because joining needs it.
func (h *nodeHost) ClusterConfiguration(ctx context.Context) (string, error) {
	b, err := h.getFromAPI(ctx, false, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config")
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
	_, err := h.getFromAPI(ctx, true, "/readyz")
	return err
}

// APIAnswers checks the API server that the node's kubelet uses.
func (h *nodeHost) APIAnswers(ctx context.Context) error {
	_, err := h.getFromAPI(ctx, false, "/readyz")
	return err
}

// APIVersion is the version of this node's own API server.
func (h *nodeHost) APIVersion(ctx context.Context) (string, error) {
	b, err := h.getFromAPI(ctx, true, "/version")
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return "", fmt.Errorf("version of the API server: %w", err)
	}
	return v.GitVersion, nil
}

func (h *nodeHost) NodeReady(ctx context.Context) (ready bool, kubelet string, err error) {
	n, err := h.nodeStatus(ctx)
	if d := h.supervised; d != nil && err == nil {
		n.Kubelet = supervisorPart{h, d}.release(ctx, n.Kubelet)
	}
	return n.ready, n.Kubelet, err
}

// kubeletReport is the status of this node that its kubelet reported to the API server.
type kubeletReport struct {
	Kubelet string `json:"kubeletVersion"`
	// Boot is the kernel's boot ID at the kubelet's last report.
	Boot  string `json:"bootID"`
	ready bool
	// why it is not ready, in the kubelet's words.
	why string
}

func (h *nodeHost) nodeStatus(ctx context.Context) (kubeletReport, error) {
	b, err := h.getFromAPI(ctx, true, "/api/v1/nodes/"+h.node)
	if err != nil {
		return kubeletReport{}, err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
			NodeInfo   kubeletReport `json:"nodeInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return kubeletReport{}, fmt.Errorf("this node's Node object: %w", err)
	}
	out := n.Status.NodeInfo
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			out.ready, out.why = c.Status == "True", c.Message
		}
	}
	return out, nil
}

// PodStatus returns a pod of this node as its kubelet reported it to the API server. A node may
// read the pods that are bound to it.
func (h *nodeHost) PodStatus(ctx context.Context, namespace, name string) (images map[string]string, ready bool, err error) {
	b, err := h.getFromAPI(ctx, true, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods/"+url.PathEscape(name))
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

// Unsettled returns why kubeadm must not start now.
func (h *nodeHost) Unsettled(ctx context.Context) ([]string, error) {
	if _, err := h.Containers(ctx); err != nil {
		return []string{"the container runtime does not answer: " + err.Error()}, nil //nolint:nilerr // the error is the answer
	}
	problems, _, err := kubeadm.StaticPods(ctx, h)
	if unready := h.APIReady(ctx); unready != nil {
		problems = append(problems, unready.Error())
	}
	return problems, err
}

func (h *nodeHost) CgroupV1() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type != unix.CGROUP2_SUPER_MAGIC
}

// program returns the path of a program, or the path at which to install it.
func program(name, dir string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return filepath.Join(dir, name)
}

func (h *nodeHost) Kubelet(ctx context.Context) (string, error) {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer m.Close()
	path, err := m.ExecPath(ctx, kubeletUnit)
	if err == nil && !filepath.IsAbs(path) {
		err = fmt.Errorf("%s has no program in ExecStart", kubeletUnit)
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

// place returns the path of the program that a payload replaces, "" if there is none.
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
		if h.supervised != nil && payload == h.supervised.Distribution {
			return h.supervised.Program
		}
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

func (h *nodeHost) Manifests() string { return h.paths.Manifests() }

func (h *nodeHost) ExchangeCommand(file string) []string {
	return []string{h.self, "--runtime", h.socket, "exchange", file}
}

// podLogLines of a static pod go into a failure.
const podLogLines = 8

// PodLog is the end of the newest log of a static pod's container.
func (h *nodeHost) PodLog(pod string) string {
	files, _ := filepath.Glob(filepath.Join("/var/log/pods", "*_"+pod+"-"+h.node+"_*", pod, "*.log")) // the pattern is well formed
	newest, at := "", time.Time{}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil && st.ModTime().After(at) {
			newest, at = f, st.ModTime()
		}
	}
	if newest == "" {
		return ""
	}
	return systemd.TailLog(newest, podLogLines)
}

// KubeletStarted is when the kubelet's process started.
func (h *nodeHost) KubeletStarted(ctx context.Context) (time.Time, error) {
	return kubeletPart(h).Started(ctx)
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

// RestartKubelet gives systemd a single restart job: the kubelet starts again even if this
// program is killed while the old kubelet stops.
func (h *nodeHost) RestartKubelet(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Restart(ctx, kubeletUnit) })
}

func (h *nodeHost) Running(ctx context.Context) (version string, replaced bool, err error) {
	return h.running(ctx, kubeletUnit, "--version")
}

// running returns the version of a unit's process, asked with arguments, and whether its file
// was replaced.
func (h *nodeHost) running(ctx context.Context, unit string, args ...string) (version string, replaced bool, err error) {
	var pid int
	err = h.unit(ctx, func(m *systemd.Manager) (err error) {
		pid, err = m.MainPID(ctx, unit)
		return err
	})
	if err != nil || pid == 0 {
		return "", false, err
	}
	p, err := kube.ProcessOf(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil // the process has just exited
	}
	if err != nil {
		return "", false, err
	}
	version, err = h.binaries.Version(ctx, p.Path(), args...)
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
