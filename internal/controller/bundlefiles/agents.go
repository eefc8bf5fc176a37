package bundlefiles

import (
	"iter"
	"slices"
	"sort"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/peerapi"
)

// AgentsWith returns the agents that serve a bundle's header, from their store or from a
// medium.
func AgentsWith(updates iter.Seq[*v1alpha1.NodeUpdate], digest string) []peerapi.Peer {
	var out []peerapi.Peer
	for nu := range updates {
		a := nu.Status.Agent
		if a == nil {
			continue
		}
		if slices.Contains(nu.Status.Bundles, digest) || slices.ContainsFunc(nu.Status.Media, func(m v1alpha1.Medium) bool { return m.Digest == digest }) {
			out = append(out, peerapi.Peer{Name: nu.Name, Address: a.Address, PublicKey: a.PublicKey})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// AgentsIn are the same agents of a list.
func AgentsIn(list *v1alpha1.NodeUpdateList, digest string) []peerapi.Peer {
	return AgentsWith(func(yield func(*v1alpha1.NodeUpdate) bool) {
		for i := range list.Items {
			if !yield(&list.Items[i]) {
				return
			}
		}
	}, digest)
}
