package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Lab is one that is up.
type Lab struct {
	Name   string
	Dir    string // its own directory
	Config *supervisor.Config
}

// Status is how a lab is.
type Status struct {
	Name       string
	Version    string // of Kubernetes, when it was made
	Kubeconfig string // path of the administrator's, for use on this machine
	Nodes      []supervisor.NodeStatus
}

// Preflight says why this machine cannot run a lab, nil if it can.
func Preflight() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a lab needs Linux (this is %s): its nodes are made of namespaces; use a Debian 12 virtual machine", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root, to make namespaces, mounts and loop devices: run it with sudo")
	}
	return components.Preflight()
}

// Open finds a lab that was made before. stateDir may be "".
func Open(name, stateDirectory string) (*Lab, error) {
	if name == "" {
		name = DefaultName
	}
	base, err := stateDir(stateDirectory)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, name)
	config, err := supervisor.LoadConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no lab %q in %s: make it with `refit-lab up --name %s`", name, base, name)
	}
	if err != nil {
		return nil, err
	}
	return &Lab{Name: name, Dir: dir, Config: config}, nil
}

// Nodes are the names of the nodes, control planes first.
func (l *Lab) Nodes() []string { return slices.Clone(l.Config.Nodes) }

// Workers are the nodes without a control plane.
func (l *Lab) Workers() []string { return slices.Clone(l.Config.Nodes[len(l.Config.ControlPlanes):]) }

// Runtime is a node's container runtime: RuntimeContainerd or RuntimeCRIO.
func (l *Lab) Runtime(node string) string {
	if slices.Contains(l.Config.CRIO, node) {
		return RuntimeCRIO
	}
	return RuntimeContainerd
}

// Socket is where a node's container runtime listens, as the node sees it.
func (l *Lab) Socket(node string) string {
	if row, ok := distribution.ByName(l.Config.Distribution); ok {
		return row.Places.Socket
	}
	runtime := l.Runtime(node)
	return "/run/" + runtime + "/" + runtime + ".sock"
}

// Kubeconfig is the path of the administrator's kubeconfig, which works on the
// machine itself (in a node it is /etc/kubernetes/admin.conf of a control plane).
func (l *Lab) Kubeconfig() string { return filepath.Join(l.Dir, "admin.conf") }

// RESTConfig is that kubeconfig as a client's settings.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst = 100, 200
	return c, nil
}

// RESTConfig is the client's settings for the lab of that name in the default place.
func RESTConfig(name string) (*rest.Config, error) {
	l, err := Open(name, "")
	if err != nil {
		return nil, err
	}
	return l.RESTConfig()
}

// Status asks the supervisor.
func (l *Lab) Status(ctx context.Context) (*Status, error) {
	r, err := supervisor.Call(ctx, l.Dir, supervisor.Request{Op: supervisor.OpStatus})
	if err != nil {
		return nil, err
	}
	return &Status{Name: l.Name, Version: l.Config.Version, Kubeconfig: l.Kubeconfig(), Nodes: r.Nodes}, nil
}

func (l *Lab) node(ctx context.Context, name string) (supervisor.NodeStatus, error) {
	if err := l.has(name); err != nil {
		return supervisor.NodeStatus{}, err
	}
	s, err := l.Status(ctx)
	if err != nil {
		return supervisor.NodeStatus{}, err
	}
	return s.Nodes[slices.IndexFunc(s.Nodes, func(n supervisor.NodeStatus) bool { return n.Name == name })], nil
}

func (l *Lab) has(node string) error {
	if !slices.Contains(l.Config.Nodes, node) {
		return fmt.Errorf("lab %s has no node %q; it has %v", l.Name, node, l.Config.Nodes)
	}
	return nil
}

func (l *Lab) nodeDir(node string) string { return supervisor.NodeDir(l.Dir, node) }

// RegistryRequests counts what tried to reach a registry, or anything else
// outside the lab, since it is up: 0 packets and 0 questions prove that nothing did.
func (l *Lab) RegistryRequests(ctx context.Context) (supervisor.Outside, error) {
	r, err := supervisor.Call(ctx, l.Dir, supervisor.Request{Op: supervisor.OpOutside})
	if err != nil {
		return supervisor.Outside{}, err
	}
	return r.Outside, nil
}

// Address is a node's address in the lab's network.
func (l *Lab) Address(node string) string {
	return nodeAddress(slices.Index(l.Config.Nodes, node) + 1)
}
