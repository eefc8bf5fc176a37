package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// nodeLines are the sandbox image and the operating system of the nodes.
func (m *auditor) nodeLines() []Line {
	return append(m.sandboxLines(), m.osLines()...)
}

// sandboxLines: without its sandbox image a node starts no pod at all.
func (m *auditor) sandboxLines() []Line {
	byRef := map[string][]*model.ImageNode{}
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Sandbox != "" {
			byRef[n.Sandbox] = append(byRef[n.Sandbox], n)
		}
	}
	var out []Line
	for _, ref := range slices.Sorted(maps.Keys(byRef)) {
		out = append(out, m.sandboxLine(ref, byRef[ref], byRef))
	}
	return out
}

// sandboxFacts has the facts about the nodes that use one sandbox image.
type sandboxFacts struct {
	digests           map[string][]string
	missing, unpinned []string
}

func (m *auditor) inspectSandbox(ref string, nodes []*model.ImageNode) sandboxFacts {
	f := sandboxFacts{digests: map[string][]string{}}
	for _, n := range nodes {
		i := slices.IndexFunc(n.Images, func(c model.CachedImage) bool { return slices.Contains(c.Names, ref) })
		if i < 0 {
			if n.Complete {
				f.missing = append(f.missing, n.Name)
			}
			continue
		}
		if d := digestOf(&n.Images[i]); d != "" {
			f.digests[d] = append(f.digests[d], n.Name)
		}
		if m.Offline && n.PinnedKnown && !n.Images[i].Pinned {
			f.unpinned = append(f.unpinned, n.Name)
		}
	}
	return f
}

func (m *auditor) sandboxLine(ref string, nodes []*model.ImageNode, all map[string][]*model.ImageNode) Line {
	l := Line{Where: "nodes", Kind: KindSandbox, Image: ref, Pods: len(nodes)}
	f := m.inspectSandbox(ref, nodes)
	for _, d := range slices.Sorted(maps.Keys(f.digests)) {
		l.Running = append(l.Running, Running{Digest: d, Pods: len(f.digests[d]), Nodes: f.digests[d]})
	}
	var states []stateReason
	if len(f.missing) > 0 {
		states = append(states, stateReason{Unrestartable, "no pod starts without it, and it is not on " + firstNames(f.missing)})
	}
	if len(f.digests) > 1 {
		states = append(states, stateReason{Skewed, "nodes have different images under this name: " + listRunning(l.Running)})
	}
	if len(all) > 1 {
		states = append(states, stateReason{Skewed, fmt.Sprintf("nodes use %d sandbox images: %s", len(all), strings.Join(slices.Sorted(maps.Keys(all)), ", "))})
	}
	if len(f.unpinned) > 0 {
		states = append(states, stateReason{Unpinned, "refit does not pin it on " + firstNames(f.unpinned)})
	}
	setStates(&l, states)
	if l.State == Skewed {
		l.Fix = "name one sandbox image for all nodes (spec.sandboxImage of a NodeConfig), and bring it in a bundle"
	}
	return l
}

func digestOf(c *model.CachedImage) string {
	for _, name := range c.Names {
		if _, d, ok := strings.Cut(name, "@"); ok {
			return d
		}
	}
	return ""
}

// osLines: the operating system of each role, by the name that its nodes give.
func (m *auditor) osLines() []Line {
	roles := map[string]map[string][]string{}
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.OS == "" {
			continue
		}
		if roles[n.Role] == nil {
			roles[n.Role] = map[string][]string{}
		}
		name := strings.TrimSpace(n.OS + ", kernel " + n.Kernel)
		roles[n.Role][name] = append(roles[n.Role][name], n.Name)
	}
	var out []Line
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		var states []stateReason
		if len(roles[role]) > 1 {
			var parts []string
			for _, name := range slices.Sorted(maps.Keys(roles[role])) {
				parts = append(parts, name+" on "+firstNames(roles[role][name]))
			}
			states = append(states, stateReason{Skewed, "its nodes run different systems: " + strings.Join(parts, "; ")})
		}
		for _, name := range slices.Sorted(maps.Keys(roles[role])) {
			l := Line{Where: role + " nodes", Kind: KindOS, Image: name, Pods: len(roles[role][name])}
			setStates(&l, slices.Clone(states))
			if l.State == Skewed {
				l.Fix = "bring the nodes of a pool to one system, or part them into pools"
			}
			out = append(out, l)
		}
	}
	return out
}
