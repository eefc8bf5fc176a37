package updateplan

import (
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Fields are parts of a node: path to value. A value is a version, a digest or
// a state; a part that is not there has none, or the empty value.
type Fields map[string]string

// Paths of the parts that every bundle with Kubernetes in it wants.
const (
	// PathControlPlane is the static pods, the addons and etcd.
	PathControlPlane = "kubernetes/control-plane"
	// PathNodeConfig is the kubelet's configuration as kubeadm writes it.
	PathNodeConfig = "kubernetes/node-config"
	// PathKubelet is the kubelet's binary.
	PathKubelet = "kubernetes/kubelet"
)

// Prefixes of paths; what follows is a name.
const (
	PrefixKubernetes  = "kubernetes/"  // a version
	PrefixProgram     = "program/"     // the digest of the file
	PrefixFile        = "file/"        // digest and mode; what follows is the path on the node, as in file//etc/motd
	PrefixUnit        = "unit/"        // the state of a unit
	PrefixCertificate = "certificate/" // the first day of its validity, RFC 3339; a later one is as good
	PathCNIPlugins    = "cni/plugins"  // the digest of the payload they are from
	PathSandboxImage  = "runtime/sandbox-image"
	PathKubeletConfig = "kubelet/config" // the hash of the own drop-in
)

// payloadPath is the field that a payload of a bundle changes, "" if none. The versions of
// kubelet and kubeadm are fields of their own, and most files of a bundle are not programs
// of a node.
func payloadPath(name string) string {
	switch {
	case name == bundle.PayloadCNIPlugins:
		return PathCNIPlugins
	case slices.Contains(bundle.Programs(), name):
		return PrefixProgram + name
	}
	return ""
}

// currentFields are the observed fields of a node.
func currentFields(n Node) Fields {
	out := Fields{PathKubelet: n.Kubelet, PathNodeConfig: n.Kubelet}
	if n.ControlPlane {
		out[PathControlPlane] = n.ControlPlaneVersion
	}
	for p, v := range n.Current {
		out[p] = v
	}
	return out
}

// desiredFields are all fields that the bundle and the NodeConfigs set for a node.
func desiredFields(in *Input, n Node) Fields {
	out := Fields{}
	if to := in.Target.Kubernetes; to != "" {
		out[PathKubelet], out[PathNodeConfig] = to, to
		if n.ControlPlane {
			out[PathControlPlane] = to
		}
	}
	for _, p := range in.Payloads {
		p.addDesired(n, out)
	}
	for p, v := range n.Desired {
		out[p] = v
	}
	return out
}

// addDesired adds the field that a payload is for. A program of the bundle is wanted
// where the node has one of that name: nothing is installed by the way.
func (p Payload) addDesired(n Node, out Fields) {
	path := payloadPath(p.Name)
	if path == "" || p.Digest == "" || n.Current[path] == "" || p.Platform != "" && p.Platform != n.Platform {
		return
	}
	if _, both := out[path]; !both || p.Platform != "" { // the one for the platform before the one for any
		out[path] = p.Digest
	}
}

// Equal reports whether a field is as it is wanted. Versions are compared as
// versions; a certificate may be younger than was asked for.
func Equal(path, have, want string) bool {
	switch {
	case strings.HasPrefix(path, PrefixKubernetes):
		return same(have, want)
	case strings.HasPrefix(path, PrefixCertificate):
		return have == want || have != "" && want != "" && have >= want
	}
	return have == want
}

// Differences lists in what current is not as desired, by path. A path that is not desired
// is never a difference; one that is desired empty is to be removed.
func Differences(current, desired Fields) []model.Change {
	var out []model.Change
	for path, want := range desired {
		if have := current[path]; !Equal(path, have, want) {
			out = append(out, model.Change{Path: path, From: have, To: want})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

// NotYet says what of a node's plan is not so on the node, empty if all is. It compares
// the observed fields with the changes of the steps, and does not rely on reports that the
// steps have run.
func NotYet(np model.NodePlan, n Node) string {
	observed := currentFields(n)
	for _, s := range np.Steps {
		for _, c := range s.Changes {
			if have := observed[c.Path]; !Equal(c.Path, have, c.To) {
				return "its " + c.Path + " is " + displayValue(have) + ", not " + displayValue(c.To)
			}
		}
	}
	return ""
}

// MovesKubernetes reports whether a node's plan moves its Kubernetes version.
func MovesKubernetes(np model.NodePlan) bool {
	for _, s := range np.Steps {
		for _, c := range s.Changes {
			if strings.HasPrefix(c.Path, PrefixKubernetes) {
				return true
			}
		}
	}
	return false
}

// displayValue of a field for people.
func displayValue(v string) string {
	if v == "" {
		return "not there"
	}
	return v
}
