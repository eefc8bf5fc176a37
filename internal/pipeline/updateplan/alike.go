package updateplan

import (
	"maps"
	"slices"
	"strings"
)

// likeness is everything of a node that its plan depends on, but for its name.
type likeness struct {
	pools, kubelet, platform, config, current, desired string
}

// likeness of a worker that only built-in updaters are asked about: an external one may
// depend on the name. ok is false for any other node.
func (p *planner) likeness(n Node) (l likeness, ok bool) {
	if n.Unobserved || len(n.Offers) > 0 || n.ControlPlane || n.ControlPlaneVersion != "" || len(p.in.Updaters) > 0 {
		return l, false
	}
	return likeness{strings.Join(n.Pools, "\n"), n.Kubelet, n.Platform, n.ConfigName, n.Current.text(), n.Desired.text()}, true
}

// text of fields in the order of their paths.
func (f Fields) text() string {
	if len(f) == 0 {
		return ""
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(f)) {
		b.WriteString(path)
		b.WriteByte(0)
		b.WriteString(f[path])
		b.WriteByte(0)
	}
	return b.String()
}
