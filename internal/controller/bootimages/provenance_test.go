package bootimages

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Of the nodes that joined since the declaration the oldest image counts.
func TestOldestInstalled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	nodes := []sourceNode{
		{Name: "early", InstalledImage: "9.0.20220101-0", Created: now.Add(-time.Second)}, {Name: "silent", Created: now},
		{Name: "unreadable", InstalledImage: "golden", Created: now}, {Name: "a", InstalledImage: "9.6.20251023-0", Created: now},
		{Name: "b", InstalledImage: "9.4.20250101-0", Created: now}, {Name: "c", InstalledImage: "9.4.20250101-0", Created: now.Add(time.Hour)}, {Name: "d", InstalledImage: "9.6.20251023-0", Created: now},
	}
	s := &v1alpha1.MachineSource{Spec: v1alpha1.MachineSourceSpec{Declared: &v1alpha1.DeclaredImage{Release: "4.19.3"}, NodeSelector: &metav1.LabelSelector{}}}
	var st v1alpha1.MachineSourceStatus
	recordProvenance(s, &st, &v1alpha1.MachineSourceStatus{}, nodes, now)
	if diff := cmp.Diff(&v1alpha1.InstalledImage{OS: "9.4.20250101-0", Nodes: 2, Example: "b"}, st.OldestInstalled); diff != "" {
		t.Error(diff)
	}
	s.Spec.Declared, st = nil, v1alpha1.MachineSourceStatus{}
	if recordProvenance(s, &st, &v1alpha1.MachineSourceStatus{}, nodes, now); st.OldestInstalled != nil {
		t.Errorf("nothing is declared: %+v", st.OldestInstalled)
	}
}

// A node of a Machine belongs to that machine's source, with every selector.
func TestRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	rack := labels.Set{"rack": "r1"}
	nodes := []sourceNode{
		{Name: "a", InstalledImage: "9.2.20240101-0", Labels: rack, Sources: []string{"machineset.ns.ms", "machinedeployment.ns.md"}, Machine: map[string]string{"cpu": "x86-64-v3", "loaderBuilt": "2023-01-02"}},
		{Name: "b", InstalledImage: "9.4.20250101-0", Sources: []string{"machinedeployment.ns.md"}, Machine: map[string]string{"cpu": "x86-64-v2", "loaderBuilt": "2022-12-31"}},
		{Name: "c", InstalledImage: "9.6.20251023-0", Labels: rack, Machine: map[string]string{"cpu": "arm64"}},
		{Name: "d", Labels: rack, Machine: map[string]string{"cpu": "x86-64-v4"}},
		{Name: "e"},
	}
	selector := &metav1.LabelSelector{MatchLabels: rack}
	for name, tc := range map[string]struct {
		source   string
		selector *metav1.LabelSelector
		nodes    int32
		facts    []v1alpha1.MachineFact
	}{
		"by machine":                             {"machinedeployment.ns.md", nil, 2, []v1alpha1.MachineFact{{Name: "cpu", Least: "x86-64-v2", Nodes: 1, Example: "b"}, {Name: "loaderBuilt", Least: "2022-12-31", Nodes: 1, Example: "b"}}},
		"by selector, but for nodes of machines": {"pxe", selector, 2, []v1alpha1.MachineFact{{Name: "cpu", Least: "x86-64-v4", Nodes: 1, Example: "d"}}},
		"by both":                                {"machineset.ns.ms", selector, 3, []v1alpha1.MachineFact{{Name: "cpu", Least: "x86-64-v3", Nodes: 1, Example: "a"}, {Name: "loaderBuilt", Least: "2023-01-02", Nodes: 1, Example: "a", Silent: 2}}},
		"a selector of anything":                 {"all", &metav1.LabelSelector{}, 3, []v1alpha1.MachineFact{{Name: "cpu", Least: "x86-64-v4", Nodes: 1, Example: "d", Silent: 1}}},
		"no source":                              {"other", nil, 0, nil},
	} {
		var st v1alpha1.MachineSourceStatus
		recordProvenance(&v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: tc.source}, Spec: v1alpha1.MachineSourceSpec{NodeSelector: tc.selector}}, &st, &v1alpha1.MachineSourceStatus{}, nodes, now)
		if st.Nodes != tc.nodes {
			t.Errorf("%s: %d nodes, want %d", name, st.Nodes, tc.nodes)
		}
		if diff := cmp.Diff(tc.facts, st.Machines); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
