package track

import (
	"strings"
	"testing"
)

// A refused signature blocks also what is approved; the label of a security rebuild counts only
// with a valid one.
func TestSignaturesOfCandidates(t *testing.T) {
	t.Parallel()
	a, b := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2")
	approved := rev()
	approved.Approvals = []Approval{{Digest: d("b"), Serial: 9}}
	for name, tc := range map[string]struct {
		track     Track
		labelled  bool
		signature map[string]Signature
		taken     bool
		decision  Decision
		says      string
	}{
		"no rule":                               {rev(Rebuild), false, nil, true, "", ""},
		"signed":                                {rev(Rebuild), false, map[string]Signature{d("b"): {Signer: "release"}}, true, "", ""},
		"refused":                               {rev(Rebuild), false, map[string]Signature{d("b"): {Refused: "refused, Missing: none"}}, false, Blocked, "refused, Missing"},
		"refused and approved":                  {approved, false, map[string]Signature{d("b"): {Refused: "refused, WrongKey: other"}}, false, Blocked, "refused, WrongKey"},
		"a verdict about another image":         {rev(Rebuild), false, map[string]Signature{d("a"): {Refused: "refused, Missing: none"}}, true, "", ""},
		"a label of its publisher, signed":      {rev(Security), true, map[string]Signature{d("b"): {Signer: "release"}}, true, "", ""},
		"a forged label":                        {rev(Security), true, map[string]Signature{d("b"): {Refused: "refused, Missing: none"}}, false, Blocked, "refused, Missing"},
		"a label without a rule and a bundle":   {rev(Security), true, nil, false, NeedsApproval, "a label alone"},
		"no label, signed, where security only": {rev(Security), false, map[string]Signature{d("b"): {Signer: "release"}}, false, NeedsApproval, "Rebuild does not move"},
	} {
		i := b
		i.Security = tc.labelled
		s := runs(a)
		s.Serial, s.Pointers = 2, []Pointer{{Image: i, Serial: 2}}
		s, cs := Decide(tc.track, s, Found{Signatures: tc.signature}, noon)
		switch {
		case s.Approved.Is(d("b")) != tc.taken:
			t.Errorf("%s: approved %s, %+v", name, s.Approved.Name(), cs)
		case !tc.taken && (len(cs) != 1 || cs[0].Decision != tc.decision || !strings.Contains(cs[0].Why, tc.says)):
			t.Errorf("%s: %+v", name, cs)
		}
	}
}
