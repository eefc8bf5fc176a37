package statusreport

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func TestCleanReplacesWhatTheAPIRefuses(t *testing.T) {
	t.Parallel()
	s := &v1alpha1.NodeUpdateStatus{Message: "a\x1b]0;owned\a\nb", Run: &v1alpha1.NodeRunStatus{Message: "x\u202ey"},
		Pins:  &v1alpha1.PinStatus{Missing: []string{"r.example/a:1\x7f"}},
		Media: []v1alpha1.Medium{{Device: "/dev/" + strings.Repeat("d", 300), Name: "n\x00", SignedBy: make([]string, 20)}}}
	Clean(s)
	m := s.Media[0]
	if s.Message != "a?]0;owned?\nb" || s.Run.Message != "x?y" || s.Pins.Missing[0] != "r.example/a:1?" || len(m.Device) != 256 || m.Name != "n?" || len(m.SignedBy) != 16 {
		t.Errorf("%q %q %q %+v", s.Message, s.Run.Message, s.Pins.Missing, m)
	}
}
