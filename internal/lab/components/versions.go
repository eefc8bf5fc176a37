package components

import (
	"embed"
	"fmt"
	"strings"
)

// Versions of everything that does not move with Kubernetes.
const (
	containerdVersion = "2.2.9"
	cniVersion        = "1.9.1"
	corednsVersion    = "1.14.2"
	crioVersion       = "1.34.0"
	kineVersion       = "0.17.5"
)

// registry is the host kubeadm asks for by default.
const registry = "registry.k8s.io"

// AppRepository is the name, without a tag, of the lab's test application.
const AppRepository = "example.test/app"

//go:embed modules
var modules embed.FS

//go:embed source wrapper _lookalike
var sources embed.FS

// kubernetes is one line of the table of releases: what kubeadm of that version
// asks for by name.
type kubernetes struct {
	version    string
	module     string // file name in modules, without its ending
	etcdTag    string
	corednsTag string // the binary is always corednsVersion: kubeadm cares for the tag only
	pauseTag   string
	// older: only clusters that move over several minor versions begin with it.
	older bool
}

var releases = []kubernetes{
	{version: "v1.34.4", module: "kubernetes-1.34", etcdTag: "3.6.5-0", corednsTag: "v1.12.1", pauseTag: "3.10.1", older: true},
	{version: "v1.35.4", module: "kubernetes-1.35", etcdTag: "3.6.6-0", corednsTag: "v1.13.1", pauseTag: "3.10.1"},
	{version: "v1.36.3", module: "kubernetes-1.36", etcdTag: "3.6.8-0", corednsTag: "v1.14.2", pauseTag: "3.10.2"},
}

// Versions lists the Kubernetes versions of a lab, oldest first. Another one that is older can be built, too.
func Versions() []string { return versions(false) }

func versions(older bool) []string {
	var all []string
	for _, r := range releases {
		if older || !r.older {
			all = append(all, r.version)
		}
	}
	return all
}

// Check returns an error if the version cannot be built. The error lists those that can.
func Check(version string) error {
	_, err := find(version)
	return err
}

func find(version string) (kubernetes, error) {
	for _, r := range releases {
		if r.version == version {
			return r, nil
		}
	}
	return kubernetes{}, fmt.Errorf("version %q of Kubernetes is not among the releases this lab can build: choose one of %s", version, strings.Join(versions(true), ", "))
}

func (k kubernetes) minor() string { return strings.Split(k.version, ".")[1] }

// set is a group of binaries built from one module.
type set struct {
	name    string // directory in the cache, before the key
	module  string
	sources string // without a module: directory in this package's sources, "source" if empty
	ldflags string
	// tags and cgo: what links against libraries of this machine.
	tags     string
	cgo      bool
	binaries []binary
}

// binary is built from a Go package, or from C files of a module.
type binary struct {
	name, pkg string
	// c are C files below the directory of the module pkg.
	c []string
}

func kubernetesSet(k kubernetes) set {
	// Without these every component calls itself v0.0.0-master and kubeadm's version checks misbehave.
	const v = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=%[2]s",
		v, k.version, k.minor())
	s := set{name: "kubernetes-" + k.version, module: k.module, ldflags: flags}
	// The API server first: it compiles most of what the others share.
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm", "kube-proxy", "kubectl"} {
		s.binaries = append(s.binaries, binary{name: name, pkg: "k8s.io/kubernetes/cmd/" + name})
	}
	s.binaries = append(s.binaries, binary{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"})
	return s
}

func containerdSet() set {
	const pkg = "github.com/containerd/containerd/v2"
	s := set{name: "containerd-" + containerdVersion, module: "containerd", ldflags: "-s -w -X " + pkg + "/version.Version=" + containerdVersion}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		s.binaries = append(s.binaries, binary{name: name, pkg: pkg + "/cmd/" + name})
	}
	return s
}

func cniSet() set {
	s := set{name: "cni-" + cniVersion, module: "cni", ldflags: "-s -w"}
	for _, p := range []string{"ipam/host-local", "main/bridge", "main/loopback", "meta/portmap"} {
		s.binaries = append(s.binaries, binary{name: p[strings.Index(p, "/")+1:], pkg: "github.com/containernetworking/plugins/plugins/" + p})
	}
	return s
}

func corednsSet() set {
	return set{name: "coredns-" + corednsVersion, module: "coredns", ldflags: "-s -w",
		binaries: []binary{{name: "coredns", pkg: "github.com/coredns/coredns"}}}
}

// kineSet is the translation of etcd's protocol to SQL that k3s has in it. Without cgo its
// SQLite is the same code in Go, so no C compiler is needed.
func kineSet() set {
	return set{name: "kine-" + kineVersion, module: "kine", ldflags: "-s -w -X github.com/k3s-io/kine/pkg/version.Version=v" + kineVersion,
		binaries: []binary{{name: "kine", pkg: "github.com/k3s-io/kine"}}}
}

// ownSet is the pause program and the test application, whose sources are in this package.
func ownSet() set {
	return set{name: "own", ldflags: "-s -w", binaries: []binary{{name: "pause", pkg: "./pause"}, {name: "app", pkg: "./app"}}}
}
