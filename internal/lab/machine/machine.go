package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Machine describes one node. It does not change while the lab exists, but for
// Sticks.
type Machine struct {
	Name    string
	Number  int    // 1 and up; decides the addresses
	Dir     string // on the machine: this file, console log, mount point
	Disk    string // file that is the node's disk, ext4
	Group   string // control group
	Address string // of the node, with prefix length
	Gateway string // address of the switch: route out, name server
	PodCIDR string
	// Peers are the other nodes, for routes to their pods.
	Peers []Peer
	// Programs is a directory laid out like /usr, mounted between the machine's /usr and
	// the node's changes: kubelet, kubeadm, containerd.
	Programs string
	CNIDir   string // network plugins, copied to /opt/cni/bin
	Pause    string // sandbox image
	Runtime  string // container runtime: "containerd" or "crio"
	// Supervised nodes have neither a runtime's nor a kubelet's unit: another one starts both.
	Supervised bool
	// OSImage is an OCI layout, on the machine, with the image that this node's disk
	// is installed with; empty for a node whose OS is the machine's own.
	OSImage string
	// Media are the block devices that are plugged into this node only.
	Media []Medium
}

// Peer is another node and the network of its pods.
type Peer struct{ Name, Address, PodCIDR string }

// Medium is a file that is attached as a loop device and shown to one node.
type Medium struct {
	Loop int
	File string
}

// FileName is the name of the file in Dir that holds a Machine.
const FileName = "machine.json"

// Load reads what Save wrote.
func Load(dir string) (*Machine, error) {
	data, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, FileName), err)
	}
	return m, nil
}

// Save writes m to its directory, whole or not at all.
func (m *Machine) Save() error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(m.Dir, FileName), data, 0o644)
}

// Descriptors that the process which becomes a node is started with.
const (
	Powered = 3 // read end: one byte says that the network is there, the end that it never will be
	Fault   = 4 // write end: takes the sentence why the node cannot start; closed by exec
)

// SearchPath is the PATH of everything that is started in a node.
const SearchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
