// Package births compares what people declare with what nodes were born from.
//
// Promise: pure. Only nodes that joined after a declaration was first seen can
// contradict it; a node that says nothing contradicts nothing.
//
// Inputs: a MachineSource, nodes with what their agents say. Output: part of its
// status. Caller: controller/bootimages.
package births

import (
	"cmp"
	"fmt"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
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
}

// Record counts the images that the nodes of a source were born from, and
// compares those that joined since a declaration with it.
func Record(s *v1alpha1.MachineSource, st, old *v1alpha1.MachineSourceStatus, all []Node, now time.Time) {
	nodes := of(s, all)
	st.Born = count(nodes)
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

// of a source: the nodes that its selector means.
func of(s *v1alpha1.MachineSource, all []Node) []Node {
	if s.Spec.NodeSelector == nil {
		return nil
	}
	m, err := metav1.LabelSelectorAsSelector(s.Spec.NodeSelector)
	if err != nil {
		return nil
	}
	var out []Node
	for _, n := range all {
		if m.Matches(n.Labels) {
			out = append(out, n)
		}
	}
	return out
}

func count(nodes []Node) []v1alpha1.BirthImage {
	count := map[string]*v1alpha1.BirthImage{}
	for _, n := range nodes {
		if n.Born == "" {
			continue
		}
		if count[n.Born] == nil {
			count[n.Born] = &v1alpha1.BirthImage{OS: n.Born, Example: n.Name}
		}
		count[n.Born].Nodes++
	}
	var out []v1alpha1.BirthImage
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
