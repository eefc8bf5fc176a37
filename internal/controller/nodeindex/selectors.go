package nodeindex

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors parses each selector of a reconcile once, not for every node. The zero value
// is empty.
type Selectors struct {
	read map[*metav1.LabelSelector]labels.Selector
}

// Match reports whether a selector matches labels. A missing selector matches all labels,
// an invalid one none.
func (s *Selectors) Match(sel *metav1.LabelSelector, of map[string]string) bool {
	if sel == nil {
		return true
	}
	got, known := s.read[sel]
	if !known {
		var err error
		if got, err = metav1.LabelSelectorAsSelector(sel); err != nil {
			got = labels.Nothing()
		}
		if s.read == nil {
			s.read = map[*metav1.LabelSelector]labels.Selector{}
		}
		s.read[sel] = got
	}
	return got.Matches(labels.Set(of))
}
