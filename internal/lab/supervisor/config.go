package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of files in a lab's directory.
const (
	ConfigName = "lab.json"
	SocketName = "control.sock"
	LogName    = "supervisor.log"
	PIDName    = "pid.json" // of the supervisor here, of a node in its own directory
)

// Config is what does not change while a lab exists.
type Config struct {
	Name    string
	Version string // of Kubernetes, when it was made
	Group   string // control group of all
	Nodes   []string
	// ControlPlanes are those of Nodes that run the API server.
	ControlPlanes []string
	// CRIO are those of Nodes whose container runtime is CRI-O; the others have containerd.
	CRIO []string
	// Distribution of which all nodes run a look-alike; empty for kubeadm.
	Distribution string `json:",omitempty"`
	// Later are those of Nodes that have not joined yet.
	Later      []string
	Gateway    string   // the switch's address, with prefix length
	Endpoint   string   // address and port of the API server, as nodes know it
	Listen     string   // where the machine reaches the API server
	Inside     []string // networks that packets may go to: nodes, pods, services
	ImageHosts []string // a question for one of these, or a name below it, is counted
}

// NodeDir is where a node's files are.
func NodeDir(dir, node string) string { return filepath.Join(dir, "nodes", node) }

// Process identifies a process, even if a later one has its number.
type Process struct {
	PID   int
	Start string // in clock ticks since the machine's start
}

// Self is this process.
func Self() (Process, error) { return process(os.Getpid()) }

func process(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	start, err := startTime(string(data))
	return Process{PID: pid, Start: start}, err
}

// startTime is field 22 of /proc/PID/stat; the name in field 2 may hold blanks.
func startTime(stat string) (string, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 20 {
		return "", errors.New("unreadable process status: " + strconv.Quote(stat))
	}
	return fields[19], nil
}

// Alive tells whether it is still that process.
func (p Process) Alive() bool {
	now, err := process(p.PID)
	return err == nil && p.PID > 0 && now == p
}

// LoadProcess reads dir/pid.json.
func LoadProcess(dir string) (Process, error) {
	var p Process
	return p, load(filepath.Join(dir, PIDName), &p)
}

// LoadConfig reads dir/lab.json.
func LoadConfig(dir string) (*Config, error) {
	c := &Config{}
	return c, load(filepath.Join(dir, ConfigName), c)
}

// Save writes dir/lab.json.
func (c *Config) Save(dir string) error { return save(filepath.Join(dir, ConfigName), c) }

func load(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func save(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".part"
	if err := os.WriteFile(temp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// Descriptors a supervisor is started with.
const (
	ListenerFD = 3 // TCP listener in the machine's network, for the API server
	ReadyFD    = 4 // write end: closed when all is ready, or takes the sentence why not
)

// NodeProcess is the name, as argument zero, under which the supervisor starts
// this program again to become a node; the lab's directory of the node follows.
const NodeProcess = "refit-lab-node"

// DefaultImageHosts are the hosts of well-known registries, and the domain that
// image names in tests are made of.
var DefaultImageHosts = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io", "pkg.dev", "docker.io", "docker.com", "quay.io", "ghcr.io",
	"mcr.microsoft.com", "public.ecr.aws", "registry.gitlab.com", "test"}
