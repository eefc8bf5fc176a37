package pin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// "Without the local copy the drill says beforehand that it would not."
func TestPredictStart(t *testing.T) {
	a, b := img("r/a:1", "sha256:a"), img("r/b:1", "sha256:b")
	good := StartFacts{Node: "n2", Known: true, Complete: true, Checked: true, Pinned: []model.PinSetImage{a, b},
		Used:  []UsedImage{{Image: "r/a:1", Pods: []string{"kube-system/x"}, System: true}, {Image: "r/a:1@sha256:a", System: true}, {Image: "r/b@sha256:b", System: true}},
		Peers: []Peer{{Node: "n1", Copies: map[string]bool{Key(a): true}}, {Node: "n3", Copies: map[string]bool{Key(a): true}}}}
	for name, c := range map[string]struct {
		change  func(f *StartFacts)
		reasons []string
		says    []string
	}{
		"everything is held and copied: it comes back": {change: func(*StartFacts) {}},
		"an image without a copy: no cold start, and the message names the peers that have one": {
			func(f *StartFacts) { f.NoCopy = []string{"r/a:1"} }, []string{"NoLocalCopy"}, []string{"r/a:1 (n1, n3 has one)", "localCopy: Keep"}},
		"an image of which no peer has a copy": {func(f *StartFacts) { f.NoCopy = []string{"r/b:1"} }, []string{"NoLocalCopy"}, []string{"no peer is known", "r/b:1"}},
		"both":                                 {func(f *StartFacts) { f.NoCopy = []string{"r/a:1", "r/b:1"} }, []string{"NoLocalCopy", "NoLocalCopy"}, nil},
		"more than are named":                  {func(f *StartFacts) { f.MoreWithoutCopy = true }, []string{"NoLocalCopy"}, nil},
		"not all is held yet":                  {func(f *StartFacts) { f.Complete = false }, []string{"ImagesMissing"}, nil},
		"nothing is held":                      {func(f *StartFacts) { f.Pinned, f.Used = nil, nil }, []string{"ImagesMissing"}, []string{"PinnedImageSet"}},
		"the agent has said nothing":           {func(f *StartFacts) { f.Known = false }, []string{"ImagesMissing"}, []string{"refit-agent"}},
		"no check before the kubelet starts":   {func(f *StartFacts) { f.Checked = false }, []string{"ColdStartCheckMissing"}, []string{"refit-preflight"}},
		"a system pod's image is not held": {func(f *StartFacts) {
			f.Used = append(f.Used, UsedImage{Image: "r/dns:1", Pods: []string{"kube-system/dns"}, System: true})
		}, []string{"ImageNotPinned"}, []string{"r/dns:1 (kube-system/dns)"}},
		"another pod's is named, no more":    {func(f *StartFacts) { f.Used = append(f.Used, UsedImage{Image: "r/toy:1"}) }, nil, nil},
		"the right name with a wrong digest": {func(f *StartFacts) { f.Used = append(f.Used, UsedImage{Image: "r/a:1@sha256:z", System: true}) }, []string{"ImageNotPinned"}, nil},
		"what a registry brings is not counted": {func(f *StartFacts) {
			f.Pinned = append(f.Pinned, model.PinSetImage{Name: "r/c:1", Registry: true})
			f.NoCopy = []string{"r/c:1"}
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := good
			c.change(&f)
			s := PredictStart(f)
			var reasons []string
			all := ""
			for _, v := range s.Blockers {
				reasons = append(reasons, v.Reason)
				all += v.Message + " " + v.Fix + "\n"
			}
			if d := cmp.Diff(c.reasons, reasons); d != "" || s.ComesBack != (len(c.reasons) == 0) {
				t.Errorf("%t %s\n%s", s.ComesBack, d, all)
			}
			for _, want := range c.says {
				if !strings.Contains(all, want) {
					t.Errorf("it does not say %q:\n%s", want, all)
				}
			}
		})
	}
}
