package updateplan

import (
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// blockersOf lists "reason object" of an outcome.
func blockersOf(o Outcome) []string {
	out := []string{}
	for _, v := range o.Blockers {
		out = append(out, v.Reason+" "+v.Object)
	}
	return out
}

// A kubelet that stays may be three minors behind the oldest API server, not four;
// each side of the rule with the last good value and the next.
func TestHowFarAKubeletMayStayBehind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kubelet, api string
		tooFar       bool
	}{
		{"v1.36.3", "v1.36.3", false}, {"v1.33.0", "v1.36.3", false}, {"v1.33.9", "v1.36.0", false}, {"v1.32.9", "v1.36.0", true},
		{"v1.40.0", "v1.36.0", false}, {"v1.36.0", "v2.0.0", true}, {"", "v1.36.0", false}, {"v1.32.0", "", false},
	} {
		if got := tooFarBehind(tc.kubelet, tc.api); got != tc.tooFar {
			t.Errorf("kubelet %s under %s: too far %t", tc.kubelet, tc.api, got)
		}
	}
	for name, tc := range map[string]struct {
		left   Node
		change func(*Input)
		want   []string
	}{
		"a worker in no pool, three behind":         {worker("w9", "v1.33.1"), nil, []string{}},
		"a worker in no pool, four behind":          {worker("w9", "v1.32.1"), nil, []string{"VersionSkew Node/w9"}},
		"a worker in no pool that is newer":         {worker("w9", "v1.37.1"), nil, []string{}},
		"a worker of the plan, one behind":          {worker("w9", old, "all"), nil, []string{}},
		"nothing is planned":                        {worker("w9", "v1.32.1"), func(in *Input) { in.Nodes[0], in.KubeadmVersion = cp("n1", "v1.36.3", "all"), "v1.36.3" }, []string{}},
		"a bundle without Kubernetes moves no skew": {worker("w9", "v1.32.1"), func(in *Input) { in.Target.Kubernetes = "" }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(func(in *Input) { in.Pools = pools("all", 0) }, cp("n1", old, "all"), tc.left)
			if tc.change != nil {
				tc.change(&in)
			}
			o := Make(in)
			got := slices.DeleteFunc(blockersOf(o), func(v string) bool { return strings.HasPrefix(v, "OlderThan") })
			if name == "a worker in no pool that is newer" {
				got = slices.DeleteFunc(got, func(v string) bool { return v == "VersionSkew Node/w9" })
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v\n%s", got, tc.want, tell(o))
			}
			if len(tc.want) == 1 && sentence(o.Blockers[0]) != "VersionSkew: node w9 would stay at kubelet v1.32.1 under an API server at v1.36.3: more than three minor versions | put the node into an UpdatePool or remove it from the cluster | Node/w9" {
				t.Error(sentence(o.Blockers[0]))
			}
		})
	}
}

// The oldest API server after the plan, and what of a part of it is refused.
func TestTheEndOfAPlan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes []Node
		only  []string
		want  []string
	}{
		"a worker overtakes a control plane that stays":  {[]Node{cp("n1", old), worker("w1", old, "all")}, nil, []string{"VersionSkew Node/w1"}},
		"of two API servers the older counts":            {[]Node{cp("n1", old), cp("n2", "v1.36.3"), worker("w1", old, "all")}, nil, []string{"VersionSkew Node/w1"}},
		"whichever is the first":                         {[]Node{cp("n1", "v1.36.3"), cp("n2", old), worker("w1", old, "all")}, nil, []string{"VersionSkew Node/w1"}},
		"a patch ahead of the API server is none":        {[]Node{cp("n1", "v1.36.0"), worker("w1", old, "all")}, nil, []string{}},
		"the control plane of a part moves by itself":    {[]Node{cp("n1", old, "all"), cp("n2", old, "all"), worker("w1", old, "all")}, []string{"n1"}, []string{}},
		"a worker of a part waits for the control plane": {[]Node{cp("n1", old, "all"), worker("w1", old, "all")}, []string{"w1"}, []string{"VersionSkew Node/w1"}},
		"one of two is unknown":                          {[]Node{cp("n1", "v1.36.3"), {Name: "n2", ControlPlane: true, Kubelet: "v1.36.3", Platform: "linux/amd64"}, worker("w1", old, "all")}, nil, []string{}},
		"a worker that says a version of an API server":  {[]Node{cp("n1", "v1.36.3"), worker("w1", old, "all"), {Name: "w2", Kubelet: "v1.36.3", ControlPlaneVersion: "v1.30.0", Platform: "linux/amd64"}}, nil, []string{}},
		"an unknown API server is no limit":              {[]Node{{Name: "n1", ControlPlane: true, Kubelet: "v1.36.3", Platform: "linux/amd64"}, worker("w1", old, "all")}, nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Make(input(func(in *Input) { in.Pools, in.Only = pools("all", 0), tc.only; in.KubeadmVersion = "v1.36.3" }, tc.nodes...))
			if got := blockersOf(o); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v\n%s", got, tc.want, tell(o))
			}
			for _, v := range o.Blockers {
				if v.Waiting != (tc.only != nil) {
					t.Errorf("waits %t: %+v", v.Waiting, v)
				}
			}
		})
	}
}

// What a node runs is the newer of its two halves: a bundle between them is a
// step back, an update that stopped half way included.
func TestOlderThanWhatRuns(t *testing.T) {
	t.Parallel()
	half := Node{Name: "n1", ControlPlane: true, Kubelet: "v1.35.4", ControlPlaneVersion: "v1.36.3", Platform: "linux/amd64"}
	other := Node{Name: "n1", ControlPlane: true, Kubelet: "v1.36.3", ControlPlaneVersion: "v1.35.4", Platform: "linux/amd64"}
	done := func(name, version string) *model.Target { return &model.Target{Name: name, Version: version} }
	for name, tc := range map[string]struct {
		nodes  []Node
		change func(*Input)
		want   []string
	}{
		"between kubelet and control plane":   {[]Node{half}, nil, []string{"OlderThanRunning Node/n1"}},
		"between control plane and kubelet":   {[]Node{other}, nil, []string{"OlderThanRunning Node/n1"}},
		"as new as the newer half":            {[]Node{half}, func(in *Input) { in.Target.Kubernetes = "v1.36.3" }, []string{}},
		"meant as a rollback":                 {[]Node{half}, func(in *Input) { in.AllowDowngrade = true }, []string{}},
		"two nodes":                           {[]Node{half, worker("w1", "v1.36.2")}, nil, []string{"OlderThanRunning Node/n1", "OlderThanRunning Node/w1"}},
		"only the other node is to move":      {[]Node{half, worker("w1", "v1.36.2")}, func(in *Input) { in.Only = []string{"w1"} }, []string{"OlderThanRunning Node/w1"}},
		"older than the last bundle":          {[]Node{cp("n1", old)}, func(in *Input) { in.Target.Version, in.LastDone = "1.36.1", done("refit-demo", "1.36.2") }, []string{"OlderThanRunning "}},
		"as new as the last bundle":           {[]Node{cp("n1", old)}, func(in *Input) { in.Target.Version, in.LastDone = "1.36.1", done("refit-demo", "1.36.1") }, []string{}},
		"older than a bundle of another name": {[]Node{cp("n1", old)}, func(in *Input) { in.Target.Version, in.LastDone = "1.36.1", done("other", "1.36.2") }, []string{}},
		"no Kubernetes in it":                 {[]Node{half}, func(in *Input) { in.Target.Kubernetes = "" }, []string{}},
	} {
		in := input(nil, tc.nodes...)
		in.Target.Kubernetes = "v1.36.1"
		if tc.change != nil {
			tc.change(&in)
		}
		got := []string{}
		for _, v := range checkDowngrade(&in) {
			got = append(got, v.Reason+" "+v.Object)
			if v.Fix == "" || v.Waiting {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	in := input(nil, half)
	in.Target.Kubernetes = "v1.36.1"
	if v := checkDowngrade(&in)[0]; v.Message != "node n1 runs Kubernetes v1.36.3, the bundle brings the older v1.36.1" {
		t.Error(v.Message)
	}
}

func TestMinors(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]int{
		{"v1.35.4", "v1.36.3"}: 1, {"v1.36.3", "v1.35.4"}: 1, {"1.36.0", "v1.36.9"}: 0, {"v1.36.3", "v2.0.0"}: 964, {"v2.0.0", "v1.36.3"}: 964,
		{"", "v1.36.3"}: 0, {"v1.36.3", "x"}: 0, {"v1.36.3+k3s1", "v1.34.0+k3s1"}: 2, {"v1.36.3-rc.1", "v3.36.0"}: 2000,
	} {
		if got := minorsBetween(pair[0], pair[1]); got != want {
			t.Errorf("%v: %d, want %d", pair, got, want)
		}
	}
	for v, want := range map[string]string{"v1.35.4": "v1.36", "1.9.0": "v1.10", "x": "the next minor version"} {
		if got := nextMinor(v); got != want {
			t.Errorf("%s: %s", v, got)
		}
	}
}

// skew of one node: every part of it, and every limit.
func TestSkewOfANode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kubelet, api, to string
		want             []string
	}{
		"one minor":             {"v1.35.4", "v1.35.4", "v1.36.3", nil},
		"two minors":            {"v1.34.1", "", "v1.36.3", []string{"the kubelet of node n1 runs v1.34.1; v1.36.3 is 2 minor versions ahead, and one update moves one of them | first update with a bundle of v1.35"}},
		"the control plane too": {"v1.34.1", "v1.33.0", "v1.36.3", []string{"the kubelet of node n1 runs v1.34.1; v1.36.3 is 2 minor versions ahead", "the control plane of node n1 runs v1.33.0; v1.36.3 is 3 minor versions ahead, and one update moves one of them | first update with a bundle of v1.34"}},
		"back over a minor":     {"v1.37.0", "v1.36.0", "v1.36.3", []string{"the kubelet of node n1 runs v1.37.0; it cannot be downgraded to the earlier minor version v1.36.3 | use a bundle of the minor version that runs"}},
		"back within a minor":   {"v1.36.5", "v1.36.5", "v1.36.3", nil},
		"no target":             {"v1.30.0", "v1.30.0", "", nil},
		"nothing is known":      {"", "", "v1.36.3", nil},
	} {
		vs := checkSkew(&Input{Target: model.Target{Kubernetes: tc.to}}, Node{Name: "n1", Kubelet: tc.kubelet, ControlPlaneVersion: tc.api})
		if len(vs) != len(tc.want) {
			t.Errorf("%s: %+v", name, vs)
			continue
		}
		for i, v := range vs {
			if !strings.HasPrefix(v.Message+" | "+v.Fix, tc.want[i]) || v.Object != "Node/n1" || v.Reason != "VersionSkew" {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

// A node of the plan is never reported as left behind: the skew rule reports how far it
// lags.
func TestAPlannedNodeIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	p := &planner{in: &Input{Target: target136}, out: &Outcome{}}
	p.out.Plan.Nodes = []model.NodePlan{{Node: "w1"}}
	if v := p.skewAtEnd(worker("w1", "v1.30.0"), true, "v1.36.3"); v != nil {
		t.Errorf("%+v", v)
	}
	if v := p.skewAtEnd(worker("w2", "v1.30.0"), false, "v1.36.3"); v == nil {
		t.Error("a node that stays")
	}
	p.out.Plan.Nodes = nil
	if v := p.skewAtEnd(worker("w2", "v1.30.0"), false, "v1.36.3"); v != nil {
		t.Errorf("with nothing planned: %+v", v)
	}
}

// claims answers once with these steps.
func claims(steps ...model.Step) Updater {
	return Updater{Name: "u", Claim: func(q Question) Claim {
		if q.Current["file//a"] != "" {
			return Claim{}
		}
		return Claim{Steps: steps}
	}}
}

// A step is taken only if it makes exactly changes that are left, each once; what
// an updater does not say is filled in with the careful answer.
func TestWhatAClaimMustSay(t *testing.T) {
	t.Parallel()
	a := model.Change{Path: "file//a", To: "1"}
	b := model.Change{Path: "file//b", From: "1", To: "2"}
	for name, tc := range map[string]struct {
		step model.Step
		why  string
	}{
		"both":                                {model.Step{Changes: []model.Change{a, b}}, ""},
		"one of them":                         {model.Step{Changes: []model.Change{a}}, ""},
		"nothing":                             {model.Step{ID: "s"}, ""},
		"the same path twice":                 {model.Step{ID: "s", Changes: []model.Change{a, a}}, "its step s claims file//a, which is not left to change"},
		"a path that is not desired":          {model.Step{ID: "s", Changes: []model.Change{a, {Path: "file//c", To: "1"}}}, "its step s claims file//c, which is not left to change"},
		"a path that is as it should":         {model.Step{ID: "s", Changes: []model.Change{a, {Path: "file//d", From: "1", To: "1"}}}, "its step s claims file//d, which is not left to change"},
		"a path that is there and not wanted": {model.Step{ID: "s", Changes: []model.Change{a, {Path: "file//e", From: "1"}}}, "its step s claims file//e, which is not left to change"},
		"from what it is not":                 {model.Step{ID: "s", Changes: []model.Change{a, {Path: "file//b", From: "9", To: "2"}}}, "its step s moves file//b from 9 to 2, and it was asked for 1 to 2"},
		"to what is not wanted":               {model.Step{ID: "s", Changes: []model.Change{a, {Path: "file//b", From: "1", To: "9"}}}, "its step s moves file//b from 1 to 9, and it was asked for 1 to 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := Question{Node: Node{Name: "n1"}, Current: Fields{"file//b": "1", "file//d": "1", "file//e": "1"}, Desired: Fields{"file//a": "1", "file//b": "2", "file//d": "1"}}
			out := Cover([]Updater{claims(tc.step)}, q)
			taken := len(tc.step.Changes) > 0 && tc.why == ""
			if (len(out.Steps) == 1) != taken {
				t.Fatalf("%+v", out)
			}
			if taken {
				if s := out.Steps[0]; s.Disruption != model.DisruptionDrain || s.By != model.ByAgent || s.ID != "u" || s.Updater != "u" {
					t.Errorf("%+v", s)
				}
				if len(out.Left) != 2-len(tc.step.Changes) {
					t.Errorf("left %+v", out.Left)
				}
				return
			}
			if len(out.Left) != 2 || len(out.Blockers) != 2 || tc.why != "" && !strings.Contains(out.Blockers[0].Message, "u: "+tc.why) {
				t.Errorf("%+v", out.Blockers)
			}
		})
	}
}

// Steps of one name get numbers, and more steps than a node is given are refused.
func TestNamesAndNumberOfSteps(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 31, 32} {
		q := Question{Node: Node{Name: "n1"}, Desired: Fields{}}
		var steps []model.Step
		for i := range n {
			path := "file//" + strings.Repeat("x", i+1)
			q.Desired[path] = "1"
			steps = append(steps, model.Step{ID: "s", Changes: []model.Change{{Path: path, To: "1"}}})
		}
		out := Cover([]Updater{{Name: "u", Claim: func(q Question) Claim {
			if len(q.Left) < n {
				return Claim{}
			}
			return Claim{Steps: steps}
		}}}, q)
		if len(out.Steps) != n || out.Steps[0].ID != "s" || out.Steps[1].ID != "s-2" || out.Steps[2].ID != "s-3" {
			t.Errorf("%+v", out.Steps)
		}
		if (len(out.Blockers) == 1) != (n > 31) {
			t.Errorf("%d steps: %+v", n, out.Blockers)
		}
	}
}

// A claim without a disruption is drained for.
func TestASilentUpdaterIsDrainedFor(t *testing.T) {
	t.Parallel()
	silent := simple("files", "", PrefixFile)
	o := Make(input(func(in *Input) { in.KubeadmVersion, in.Updaters = "v1.36.3", []Updater{silent} }, cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), nil, Fields{"file//etc/a": "sha256:a 0644"})))
	var ids []string
	for _, s := range o.Plan.Nodes[0].Steps {
		ids = append(ids, s.ID)
	}
	if strings.Join(ids, " ") != "cordon drain files settle uncordon" {
		t.Errorf("%v", ids)
	}
}

// What is not observed yet, of own and of external steps.
func TestNotYet(t *testing.T) {
	t.Parallel()
	own := model.Step{ID: "a", Updater: "files", Changes: []model.Change{{Path: "file//a", To: "1"}}}
	ext := model.Step{ID: "x", Updater: External + "bios", Changes: []model.Change{{Path: "firmware/bios", To: "1.1"}}}
	other := model.Step{ID: "y", Updater: External + "nic", Changes: []model.Change{{Path: "firmware/nic", To: "2"}}}
	plan := model.NodePlan{Steps: []model.Step{own, ext, other}}
	for name, tc := range map[string]struct {
		have   Fields
		notYet string
		step   string
		says   string
		own    bool
	}{
		"nothing is there":    {nil, "its file//a is not there, not 1", "x", "its firmware/bios is not there, not 1.1", true},
		"own steps are done":  {Fields{"file//a": "1"}, "its firmware/bios is not there, not 1.1", "x", "its firmware/bios is not there, not 1.1", false},
		"the first external":  {Fields{"file//a": "1", "firmware/bios": "1.1"}, "its firmware/nic is not there, not 2", "y", "its firmware/nic is not there, not 2", false},
		"only own is missing": {Fields{"file//a": "0", "firmware/bios": "1.1", "firmware/nic": "2"}, "its file//a is 0, not 1", "", "", true},
		"all is there":        {Fields{"file//a": "1", "firmware/bios": "1.1", "firmware/nic": "2"}, "", "", "", false},
	} {
		n := Node{Current: tc.have}
		if got := NotYet(plan, n); got != tc.notYet {
			t.Errorf("%s: %q", name, got)
		}
		step, says, mine := NotYetExternal(plan, n)
		if (step != nil) != (tc.step != "") || step != nil && step.ID != tc.step || says != tc.says || mine != tc.own {
			t.Errorf("%s: %+v %q %t", name, step, says, mine)
		}
	}
	for updater, want := range map[string]string{"external/bios": "bios", "external/": "", "files": "", "externalbios": ""} {
		if got, ok := ExternalUpdater(model.Step{Updater: updater}); got != want || ok != (want != "") {
			t.Errorf("%s: %q %t", updater, got, ok)
		}
	}
}

// Which payload of a bundle a node's program or file is from.
func TestPayloadsOfANode(t *testing.T) {
	t.Parallel()
	n := Node{Platform: "linux/amd64", Current: Fields{"program/containerd": "old"}}
	for name, tc := range map[string]struct {
		payloads []Payload
		want     string
	}{
		"for its platform":                {[]Payload{{Name: "containerd", Platform: "linux/amd64", Digest: "amd"}}, "amd"},
		"for any":                         {[]Payload{{Name: "containerd", Digest: "any"}}, "any"},
		"for another":                     {[]Payload{{Name: "containerd", Platform: "linux/arm64", Digest: "arm"}}, ""},
		"its platform's before any's":     {[]Payload{{Name: "containerd", Platform: "linux/amd64", Digest: "amd"}, {Name: "containerd", Digest: "any"}}, "amd"},
		"also when any's comes first":     {[]Payload{{Name: "containerd", Digest: "any"}, {Name: "containerd", Platform: "linux/amd64", Digest: "amd"}}, "amd"},
		"a program that it does not have": {[]Payload{{Name: "crio", Digest: "any"}}, ""},
		"a payload that is no program":    {[]Payload{{Name: "manual.pdf", Digest: "any"}}, ""},
		"a payload without a digest":      {[]Payload{{Name: "containerd"}}, ""},
	} {
		got := desiredFields(&Input{Payloads: tc.payloads}, n)
		if len(got) > 1 || got["program/containerd"] != tc.want || tc.want == "" && len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	in := &Input{Payloads: []Payload{{Name: "file.a", Digest: "1", Platform: "linux/arm64"}, {Name: "file.b", Digest: "2"}}, OtherPayloads: []Payload{{Name: "file.a", Digest: "1", Platform: "linux/amd64", Size: 7}, {Name: "file.c", Digest: "2"}}}
	if p := in.findFile("file.a", "1", "linux/amd64"); p == nil || p.Size != 7 {
		t.Errorf("%+v", p)
	}
	if p := in.findFile("file.b", "2", "linux/amd64"); p == nil {
		t.Error("one for any platform")
	}
	for _, miss := range [][3]string{{"file.a", "1", "linux/s390x"}, {"file.a", "2", "linux/amd64"}, {"file.z", "2", "linux/amd64"}} {
		if p := in.findFile(miss[0], miss[1], miss[2]); p != nil {
			t.Errorf("%v: %+v", miss, p)
		}
	}
	if Same("v1.2.3", "1.2.3") != true || Same("v1.2.3", "v1.2.4") || !Same("v1.2.3+k3s1", "1.2.3+k3s1") || Same("v1.2.3+k3s1", "v1.2.3+k3s2") {
		t.Error("Same")
	}
	if !Equal("certificate/a", "2026-02-01", "2026-01-01") || Equal("certificate/a", "2025-12-31", "2026-01-01") || Equal("certificate/a", "", "2026-01-01") || Equal("file//a", "2", "1") || !Equal("kubernetes/kubelet", "v1.2.3", "1.2.3") {
		t.Error("Equal")
	}
}

// What no built-in updater covers is left for external ones, with the node as the
// others leave it.
func TestLeft(t *testing.T) {
	t.Parallel()
	n := with(worker("w1", "v1.36.3"), Fields{"firmware/bios": "1.0"}, Fields{"firmware/bios": "1.1"})
	in := input(nil, cp("n1", "v1.36.3"), n)
	left, is, want := UncoveredChanges(&in, n)
	if len(left) != 1 || left[0].Path != "firmware/bios" || is["firmware/bios"] != "1.0" || want["firmware/bios"] != "1.1" {
		t.Errorf("%+v %v %v", left, is, want)
	}
	in = input(nil, cp("n1", "v1.36.3"), worker("w1", old))
	in.KubeadmVersion = "v1.36.3"
	left, is, _ = UncoveredChanges(&in, worker("w1", old))
	if len(left) != 0 || is[PathKubelet] != "v1.36.3" {
		t.Errorf("what the others move has moved: %+v %v", left, is)
	}
}
