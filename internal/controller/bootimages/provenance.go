package bootimages

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
	"github.com/refit-dev/refit/internal/componentversion"
)

// maxInstalled is how many installed images a status lists.
const maxInstalled = 16

// sourceNode is what a node's agent reports about its machine.
type sourceNode struct {
	Name string
	// InstalledImage is the OS version of the image it was installed from, empty if unknown.
	InstalledImage string
	Labels         labels.Set
	Created        time.Time
	// Machine are facts of its hardware and firmware.
	Machine map[string]string
	// Sources are the MachineSources of its Machine, empty if it has no Machine.
	Sources []string
}

// recordProvenance counts the images that a source's nodes were installed from, and compares
// nodes that joined since a declaration with it.
func recordProvenance(s *v1alpha1.MachineSource, st, old *v1alpha1.MachineSourceStatus, all []sourceNode, now time.Time) {
	nodes := nodesOfSource(s, all)
	st.InstalledImages, st.Nodes, st.Machines = countInstalled(nodes), int32(min(len(nodes), math.MaxInt32)), leastFacts(nodes)
	st.Contradiction, st.OldestInstalled = "", nil
	d := s.Spec.Declared
	if d == nil {
		return
	}
	st.DeclaredSeen, st.DeclaredSince = d.Release+" "+d.OS, old.DeclaredSince
	if old.DeclaredSince == nil || old.DeclaredSeen != st.DeclaredSeen {
		at := metav1.NewTime(now.Truncate(time.Second))
		st.DeclaredSince = &at
	}
	since := slices.DeleteFunc(slices.Clone(nodes), func(n sourceNode) bool { return n.InstalledImage == "" || n.Created.Before(st.DeclaredSince.Time) })
	st.Contradiction, st.OldestInstalled = contradiction(d, since), oldestInstalled(since)
}

// oldestInstalled returns the oldest image that a node was installed from, nil if no version can
// be read.
func oldestInstalled(nodes []sourceNode) *v1alpha1.InstalledImage {
	var out *v1alpha1.InstalledImage
	var oldest componentversion.OSVersion
	for _, n := range nodes {
		v, err := componentversion.ParseOS(n.InstalledImage)
		if err != nil {
			continue
		}
		if c, err := v.Compare(oldest); out == nil || err == nil && c < 0 {
			oldest, out = v, &v1alpha1.InstalledImage{OS: n.InstalledImage, Example: n.Name}
		}
		if n.InstalledImage == out.OS {
			out.Nodes++
		}
	}
	return out
}

// nodesOfSource returns the nodes of a source's machines, and those that its selector matches.
func nodesOfSource(s *v1alpha1.MachineSource, all []sourceNode) []sourceNode {
	selected := labels.Nothing()
	if s.Spec.NodeSelector != nil {
		if m, err := metav1.LabelSelectorAsSelector(s.Spec.NodeSelector); err == nil {
			selected = m
		}
	}
	var out []sourceNode
	for _, n := range all {
		if slices.Contains(n.Sources, s.Name) || len(n.Sources) == 0 && selected.Matches(n.Labels) {
			out = append(out, n)
		}
	}
	return out
}

// leastFacts returns the lowest value of each fact and how many nodes do not report it. Facts
// that no node reports are left out.
func leastFacts(nodes []sourceNode) []v1alpha1.MachineFact {
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
			case isLess(name, v, f.Least):
				f.Least, f.Nodes, f.Example = v, 1, n.Name
			}
		}
		if f.Least != "" {
			out = append(out, f)
		}
	}
	return out
}

// isLess compares two values. Of two architectures the one with levels wins, because rules are
// about levels.
func isLess(name, v, least string) bool {
	if least == "" {
		return true
	}
	c, same, err := skew.CompareFact(name, v, least)
	return err == nil && (same && c < 0 || !same && strings.Contains(v, "-v"))
}

func countInstalled(nodes []sourceNode) []v1alpha1.InstalledImage {
	count := map[string]*v1alpha1.InstalledImage{}
	for _, n := range nodes {
		if n.InstalledImage == "" {
			continue
		}
		if count[n.InstalledImage] == nil {
			count[n.InstalledImage] = &v1alpha1.InstalledImage{OS: n.InstalledImage, Example: n.Name}
		}
		count[n.InstalledImage].Nodes++
	}
	var out []v1alpha1.InstalledImage
	for _, b := range count {
		out = append(out, *b)
	}
	sort.Slice(out, func(i, j int) bool {
		return cmp.Or(cmp.Compare(out[j].Nodes, out[i].Nodes), cmp.Compare(out[i].OS, out[j].OS)) < 0
	})
	return out[:min(len(out), maxInstalled)]
}

// contradiction names a node with another image, of those that joined after the declaration.
func contradiction(d *v1alpha1.DeclaredImage, nodes []sourceNode) string {
	if d.OS == "" {
		return ""
	}
	for _, n := range nodes {
		if sameVersion(n.InstalledImage, d.OS) {
			continue
		}
		return fmt.Sprintf("declared is OS %s, but node %s, which joined later, was installed from %s", d.OS, n.Name, n.InstalledImage)
	}
	return ""
}

func sameVersion(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := componentversion.ParseOS(a)
	y, errY := componentversion.ParseOS(b)
	if errX != nil || errY != nil {
		return false
	}
	c, err := x.Compare(y)
	return err == nil && c == 0
}
