package distribution

import (
	"path"
	"slices"
	"strings"
)

// Owned is a path that belongs to one part of a node, and whose it is, for people.
type Owned struct{ Path, Why string }

// NetworkConfig is where most container runtimes read the configuration of network plugins.
const NetworkConfig = "/etc/cni/net.d"

// nodePassword proves a node of k3s and RKE2 to its server. A node without it cannot join again.
func nodePassword() []Owned {
	return []Owned{{"/etc/rancher/node", "k3s's and RKE2's: the password of the node"}}
}

// owned are the paths of a node to which only the distribution and refit's updaters write. Its
// configuration is not among them: people write that.
func (r Row) owned() []Owned {
	p := r.Places
	out := slices.Clone(r.Own)
	add := func(why string, paths ...string) {
		for _, at := range paths {
			if at != "" {
				out = append(out, Owned{at, why})
			}
		}
	}
	add(r.Title+"'s: its identity, images, static pods and data are changed by itself and by its updater",
		p.DataDir, p.Kubeconfig, p.AdminConfig, p.Images, p.StaticPods, p.PKI)
	add("the kubelet's state; its configuration is spec.kubelet", p.KubeletDir, p.KubeletPKI)
	add("the container runtime's state", p.RuntimeRoot, path.Dir(p.Socket))
	add("network plugins come from the bundle's payload cni-plugins", p.CNI)
	add("a mark of "+r.Title+": only its nodes have it", r.Marks...)
	add("the program that starts nodes of "+r.Title+": it is replaced from a bundle", r.Programs...)
	return out
}

// allOwned are those of all rows: a NodeConfig is checked without the node.
var allOwned = func() []Owned {
	out := []Owned{{path.Dir(CRIOSocket), "the container runtime's state"}}
	for _, r := range Rows() {
		out = append(out, r.owned()...)
	}
	return out
}()

// allEditable are the directories below those in which people keep files of their own.
var allEditable = func() (out []string) {
	for _, r := range Rows() {
		out = append(out, r.Editable...)
	}
	return out
}()

// Protected says why only a distribution, the container runtime or refit's updaters write to a
// clean path, on nodes of any row; "" if a person may.
func Protected(p string) string {
	if slices.ContainsFunc(allEditable, func(d string) bool { return strings.HasPrefix(p, d+"/") }) {
		return ""
	}
	for _, o := range allOwned {
		if p == o.Path || strings.HasPrefix(p, o.Path+"/") {
			return o.Path + " is " + o.Why
		}
	}
	return ""
}

// Units are the units that start a node, of all rows.
func Units() (out []string) {
	for _, r := range Rows() {
		out = append(out, slices.Concat(r.Servers, r.Agents)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
