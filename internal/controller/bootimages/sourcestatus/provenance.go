package sourcestatus

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/osversion"
)

// most birth images that are shown.
const most = 16

// Node is what matters of one.
type Node struct {
	Name string
	// Born is the OS version of its image, empty if it does not say.
	Born    string
	Labels  labels.Set
	Created time.Time
	// Machine are facts of its machine.
	Machine map[string]string
	// Sources that its Machine comes from, by name; none if no Machine stands for it.
	Sources []string
}

// RecordProvenance counts the images that the nodes of a source were born from, and
// compares those that joined since a declaration with it.
func RecordProvenance(s *v1alpha1.MachineSource, st, old *v1alpha1.MachineSourceStatus, all []Node, now time.Time) {
	nodes := nodesOfSource(s, all)
	st.InstalledImages, st.Nodes, st.Machines = count(nodes), int32(min(len(nodes), math.MaxInt32)), facts(nodes)
	d := s.Spec.Declared
	if d == nil {
		return
	}
	st.DeclaredSeen, st.DeclaredSince = d.Release+" "+d.OS, old.DeclaredSince
	if old.DeclaredSince == nil || old.DeclaredSeen != st.DeclaredSeen {
		at := metav1.NewTime(now.Truncate(time.Second))
		st.DeclaredSince = &at
	}
	st.Contradiction = contradiction(d, st.DeclaredSince.Time, nodes)
}

// nodesOfSource a source: the nodes of its machines, and those that its selector means.
func nodesOfSource(s *v1alpha1.MachineSource, all []Node) []Node {
	selected := labels.Nothing()
	if s.Spec.NodeSelector != nil {
		if m, err := metav1.LabelSelectorAsSelector(s.Spec.NodeSelector); err == nil {
			selected = m
		}
	}
	var out []Node
	for _, n := range all {
		if slices.Contains(n.Sources, s.Name) || len(n.Sources) == 0 && selected.Matches(n.Labels) {
			out = append(out, n)
		}
	}
	return out
}

// facts are the least values, and who does not say them. Facts that no node says
// are not there.
func facts(nodes []Node) []v1alpha1.MachineFact {
	var out []v1alpha1.MachineFact
	for _, name := range []string{skew.FactCPU, skew.FactShim, skew.FactGrub, skew.FactLoader} {
		f := v1alpha1.MachineFact{Name: name}
		for _, n := range nodes {
			v := n.Machine[name]
			if v == "" {
				f.Silent++
				continue
			}
			switch {
			case v == f.Least:
				f.Nodes++
			case less(name, v, f.Least):
				f.Least, f.Nodes, f.Example = v, 1, n.Name
			}
		}
		if f.Least != "" {
			out = append(out, f)
		}
	}
	return out
}

// less of two values. Of two architectures the one with levels counts: rules are
// about those.
func less(name, v, least string) bool {
	if least == "" {
		return true
	}
	c, same, err := skew.CompareFact(name, v, least)
	return err == nil && (same && c < 0 || !same && strings.Contains(v, "-v"))
}

func count(nodes []Node) []v1alpha1.InstalledImage {
	count := map[string]*v1alpha1.InstalledImage{}
	for _, n := range nodes {
		if n.Born == "" {
			continue
		}
		if count[n.Born] == nil {
			count[n.Born] = &v1alpha1.InstalledImage{OS: n.Born, Example: n.Name}
		}
		count[n.Born].Nodes++
	}
	var out []v1alpha1.InstalledImage
	for _, b := range count {
		out = append(out, *b)
	}
	sort.Slice(out, func(i, j int) bool {
		return cmp.Or(cmp.Compare(out[j].Nodes, out[i].Nodes), cmp.Compare(out[i].OS, out[j].OS)) < 0
	})
	return out[:min(len(out), most)]
}

// contradiction: a node that joined after the declaration and says otherwise.
func contradiction(d *v1alpha1.DeclaredImage, since time.Time, nodes []Node) string {
	if d.OS == "" {
		return ""
	}
	for _, n := range nodes {
		if n.Born == "" || n.Created.Before(since) || sameVersion(n.Born, d.OS) {
			continue
		}
		return fmt.Sprintf("declared is OS %s, and node %s, which joined since, was born from %s", d.OS, n.Name, n.Born)
	}
	return ""
}

func sameVersion(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := osversion.Parse(a)
	y, errY := osversion.Parse(b)
	if errX != nil || errY != nil {
		return false
	}
	c, err := x.Compare(y)
	return err == nil && c == 0
}
