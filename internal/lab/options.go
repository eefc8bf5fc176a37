package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// DefaultName is the lab that is meant when none is named.
const DefaultName = "default"

// Options say what lab is wanted. The zero value is a cluster of the newest
// release with one control plane and two workers.
type Options struct {
	Name          string // DefaultName
	Nodes         int    // 3; they are called n1, n2, ...
	ControlPlanes int    // 1; the first of the nodes
	Version       string // the newest of components.Versions
	StateDir      string // directory of all labs: DefaultStateDir
	// DiskSize in bytes by node name; "" is for all others. 10 GiB. The file is sparse.
	DiskSize map[string]int64
	// ImageHosts are the hosts a name question for is counted: supervisor.DefaultImageHosts.
	ImageHosts []string
	// AppVersions are the tags of the test application to put on all nodes: v1.
	AppVersions []string
	// Progress gets a line for each action. May be nil.
	Progress func(line string)
	// Later is how many nodes, the last ones, are started and do not join: Join has
	// them join.
	Later int
	// Bare leaves out the cluster: nodes with systemd and a container runtime, no kubeadm.
	Bare bool
	// Runtime of the nodes: RuntimeContainerd (if empty), RuntimeCRIO, or
	// RuntimeMixed: CRI-O on the last worker, containerd on the others.
	Runtime string
	// OSImage is an OCI layout with the one image that the workers, or the only node, are
	// installed with: each boots what libostree has deployed on its disk. Empty: every node's OS is the
	// machine's own. The image's /opt, /root, /home, /srv and /mnt are links into /var, as
	// those of bootc are.
	OSImage string
	// OSImageOnAll has control planes boot the OS image, too.
	OSImageOnAll bool
	// Distribution is one of components.LookAlikes: the nodes run a look-alike of it instead
	// of kubeadm's units. Version may have a build then: v1.35.4+k3s1.
	Distribution string
	// Datastore of the server of a Distribution: DatastoreEtcd (if empty), or
	// DatastoreSQLite on k3s.
	Datastore string
}

// Datastores of a distribution's server.
const (
	DatastoreEtcd   = "etcd"
	DatastoreSQLite = "sqlite"
)

// Datastores are what Options.Datastore may be.
var Datastores = []string{DatastoreEtcd, DatastoreSQLite}

// Container runtimes of nodes.
const (
	RuntimeContainerd = "containerd"
	RuntimeCRIO       = "crio"
	RuntimeMixed      = "mixed"
)

// Runtimes are what Options.Runtime may be.
var Runtimes = []string{RuntimeContainerd, RuntimeCRIO, RuntimeMixed}

const (
	gateway     = "10.88.0.1"
	nodeNetwork = "10.88.0.0/24"
	podNetwork  = "10.244.0.0/16"
	// ServiceNetwork holds the cluster IPs.
	ServiceNetwork = "10.96.0.0/16"
	maxNodes       = 200

	defaultDisk = 10 << 30
	minimalDisk = 512 << 20
)

// NodeAddress is the address of node number 1 and up.
func nodeAddress(number int) string { return fmt.Sprintf("10.88.0.%d", 10+number) }

func podCIDR(number int) string { return fmt.Sprintf("10.244.%d.0/24", number) }

func nodeName(number int) string { return fmt.Sprintf("n%d", number) }

// DefaultStateDir is where labs keep disks and records: refit-lab below
// $XDG_STATE_HOME if that is set, else /var/lib/refit-lab.
func DefaultStateDir() string {
	if base := os.Getenv("XDG_STATE_HOME"); base != "" {
		return filepath.Join(base, "refit-lab")
	}
	return "/var/lib/refit-lab"
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// complete fills in what was left out and refuses what cannot be.
func (o Options) complete() (Options, error) {
	o.fill()
	switch {
	case !validName.MatchString(o.Name):
		return o, fmt.Errorf("lab name %q: use up to 32 lower-case letters, digits and dashes", o.Name)
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return o, fmt.Errorf("%d nodes: a lab has 1 to %d", o.Nodes, maxNodes)
	case o.roles() != nil:
		return o, o.roles()
	}
	if err := components.Check(distribution.SplitVersion(o.Version).Release); err != nil {
		return o, err
	}
	if err := o.checkDistribution(); err != nil {
		return o, err
	}
	if err := o.checkRuntime(); err != nil {
		return o, err
	}
	for node, size := range o.DiskSize {
		if size < minimalDisk {
			return o, fmt.Errorf("disk of %q: %d bytes is too small for a node that starts, use at least %d", node, size, minimalDisk)
		}
	}
	if err := o.checkOSImage(); err != nil {
		return o, err
	}
	var err error
	o.StateDir, err = stateDir(o.StateDir)
	return o, err
}

// roles says what is wrong with how many nodes are what.
func (o Options) roles() error {
	switch {
	case o.ControlPlanes < 1 || o.ControlPlanes > o.Nodes:
		return fmt.Errorf("%d control planes among %d nodes: use 1 to %d", o.ControlPlanes, o.Nodes, o.Nodes)
	case o.Later < 0 || o.Later > o.Nodes-o.ControlPlanes:
		return fmt.Errorf("%d nodes that join later among %d workers", o.Later, o.Nodes-o.ControlPlanes)
	}
	return nil
}

func (o *Options) fill() {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.ControlPlanes == 0 {
		o.ControlPlanes = 1
	}
	if o.Version == "" {
		o.Version = components.Versions()[len(components.Versions())-1]
	}
	if build, ok := firstBuilds[o.Distribution]; ok && !strings.Contains(o.Version, "+") {
		o.Version += build
	}
	if o.ImageHosts == nil {
		o.ImageHosts = supervisor.DefaultImageHosts
	}
	if o.AppVersions == nil {
		o.AppVersions = []string{"v1"}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Runtime == "" {
		o.Runtime = RuntimeContainerd
	}
}

func (o *Options) checkRuntime() error {
	switch {
	case !slices.Contains(Runtimes, o.Runtime):
		return fmt.Errorf("runtime %q: this lab knows %s", o.Runtime, strings.Join(Runtimes, ", "))
	case o.Runtime == RuntimeMixed && o.Nodes == o.ControlPlanes:
		return errors.New("a mixed lab has CRI-O on its last worker: ask for more nodes than control planes")
	}
	return nil
}

// firstBuilds of a release, by distribution.
var firstBuilds = map[string]string{distribution.K3s: "+k3s1", distribution.RKE2: "+rke2r1", distribution.K0s: "+k0s.0"}

func (o *Options) checkDistribution() error {
	build := distribution.SplitVersion(o.Version)
	switch {
	case o.Distribution != "" && !slices.Contains(components.LookAlikes, o.Distribution):
		return fmt.Errorf("distribution %q: this lab has look-alikes of %s", o.Distribution, strings.Join(components.LookAlikes, ", "))
	case build.Text != "" && (o.Distribution == "" || build.Distribution != o.Distribution):
		return fmt.Errorf("version %s is no build of the nodes' distribution %q", o.Version, o.Distribution)
	case o.Distribution != "" && (o.ControlPlanes > 1 || o.Later > 0 || o.Runtime != RuntimeContainerd || o.OSImage != ""):
		return fmt.Errorf("the look-alike of %s has one server, containerd and the machine's own OS, and all nodes join at once", o.Distribution)
	}
	return o.checkDatastore()
}

func (o *Options) checkDatastore() error {
	switch {
	case o.Datastore == "":
	case !slices.Contains(Datastores, o.Datastore):
		return fmt.Errorf("datastore %q: this lab knows %s", o.Datastore, strings.Join(Datastores, ", "))
	case o.Distribution == "" || o.Datastore == DatastoreSQLite && o.Distribution != distribution.K3s:
		return fmt.Errorf("datastore %s: the look-alike of k3s has sqlite and etcd, those of rke2 and k0s etcd, and kubeadm's nodes have no choice", o.Datastore)
	}
	return nil
}

// osImage is that of a node, empty if its OS is the machine's own.
func (o *Options) osImage(number int) string {
	if number > o.ControlPlanes || o.Nodes == 1 || o.OSImageOnAll {
		return o.OSImage
	}
	return ""
}

// checkOSImage makes the path absolute: the supervisor has another directory.
func (o *Options) checkOSImage() (err error) {
	if o.OSImage == "" {
		return nil
	}
	if o.Nodes == o.ControlPlanes && o.Nodes > 1 && !o.OSImageOnAll {
		return errors.New("workers boot the OS image, or the only node: ask for more nodes than control planes, or for one node")
	}
	if o.OSImage, err = filepath.Abs(o.OSImage); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.OSImage, "index.json")); err != nil {
		return fmt.Errorf("OS image %s is no OCI layout: %w", o.OSImage, err)
	}
	return machine.PreflightOSTree()
}

// crioNodes are the numbers of the nodes with CRI-O.
func (o *Options) crioNodes() []int {
	var numbers []int
	for n := 1; n <= o.Nodes; n++ {
		if o.Runtime == RuntimeCRIO || o.Runtime == RuntimeMixed && n == o.Nodes {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// stateDir makes the directory absolute. The nodes' /usr and /etc are layers
// over the machine's, and a layer cannot contain itself.
func stateDir(dir string) (string, error) {
	if dir == "" {
		dir = DefaultStateDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, no := range []string{"/usr", "/etc"} {
		if dir == no || strings.HasPrefix(dir, no+"/") {
			return "", fmt.Errorf("state directory %s is below %s, of which every node's own is made: choose another", dir, no)
		}
	}
	if strings.ContainsAny(dir, ":,\\") {
		return "", errors.New("state directory " + dir + " has a colon, comma or backslash in its name, which mount options cannot hold: choose another")
	}
	return dir, nil
}

func (o Options) diskSize(node string) int64 {
	if size, ok := o.DiskSize[node]; ok {
		return size
	}
	if size, ok := o.DiskSize[""]; ok {
		return size
	}
	return defaultDisk
}
