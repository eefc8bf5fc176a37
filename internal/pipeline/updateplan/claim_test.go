package updateplan

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

// simple claims every difference that begins so, in one step.
func simple(name string, d model.Disruption, prefixes ...string) Updater {
	return Updater{Name: name, Claim: func(q Question) Claim {
		var mine []model.Change
		for _, p := range prefixes {
			mine = append(mine, q.ChangesBelow(p)...)
		}
		if len(mine) == 0 {
			return Claim{}
		}
		return Claim{Steps: []model.Step{{ID: name, Verb: "apply", Disruption: d, Changes: mine}}}
	}}
}

// after claims what simple does, but only once a path has its desired value.
func after(u Updater, path string) Updater {
	return Updater{Name: u.Name, Claim: func(q Question) Claim {
		if want, ok := q.Desired[path]; ok && !Equal(path, q.Current[path], want) {
			var refusals []Refusal
			for _, s := range u.Claim(q).Steps {
				for _, c := range s.Changes {
					refusals = append(refusals, Refusal{Path: c.Path, Why: "it waits for " + path})
				}
			}
			return Claim{Refusals: refusals}
		}
		return u.Claim(q)
	}}
}

func with(n Node, current, desired Fields) Node {
	n.Current, n.Desired = current, desired
	return n
}

func init() {
	sysctl := Fields{"file//etc/sysctl.d/90-edge.conf": "sha256:a 0644", "unit/edge.service": "enabled"}
	files := simple("files", model.DisruptionReload, PrefixFile, PrefixUnit)
	same := func(more ...Updater) func(*Input) {
		return func(in *Input) { in.KubeadmVersion, in.Updaters = "v1.36.3", more }
	}
	// Two updaters want one path; the first in the list has it.
	stories["of overlapping claims the first in the list owns the path"] = input(same(
		simple("files", model.DisruptionReload, PrefixFile), simple("greedy", model.DisruptionReboot, PrefixFile, PrefixUnit)),
		cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), nil, sysctl))
	// The second in the list must go first, and is asked again.
	stories["one updater can only act after another"] = input(same(
		after(simple("units", model.DisruptionRestart, PrefixUnit), "file//etc/sysctl.d/90-edge.conf"), simple("files", model.DisruptionReload, PrefixFile)),
		cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), nil, sysctl))
	// A field without an updater is named, with the reason of each updater.
	stories["a field without an updater is named with the reasons"] = input(same(
		after(simple("units", model.DisruptionRestart, PrefixUnit), "firmware/bios"), simple("files", model.DisruptionReload, PrefixFile)),
		cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), Fields{"firmware/bios": "1.0"}, Fields{"firmware/bios": "1.1", "unit/edge.service": "enabled"}))
	// One item more in a list is one field more.
	stories["an item is added to a list of files"] = input(same(files), cp("n1", "v1.36.3"),
		with(worker("n2", "v1.36.3"), Fields{"file//etc/a": "sha256:a 0644", "file//etc/b": "sha256:b 0644"},
			Fields{"file//etc/a": "sha256:a 0644", "file//etc/b": "sha256:b 0644", "file//etc/c": "sha256:c 0600"}))
	stories["what is wanted no more is to go"] = input(same(files), cp("n1", "v1.36.3"),
		with(worker("n2", "v1.36.3"), Fields{"file//etc/a": "sha256:a 0644", "file//etc/b": "foreign"}, Fields{"file//etc/a": ""}))
	stories["a reload alone neither drains nor cordons"] = input(same(files), cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), nil, sysctl))
	stories["a bundle of programs moves who has them"] = input(func(in *Input) {
		in.Target.Kubernetes, in.Updaters = "", []Updater{simple("programs", model.DisruptionRestart, PrefixProgram, PathCNIPlugins)}
		in.Payloads = []Payload{{Name: "containerd", Platform: "linux/amd64", Digest: "sha256:new"}, {Name: "containerd", Platform: "linux/arm64", Digest: "sha256:arm"},
			{Name: "crio", Digest: "sha256:crio"}, {Name: "cni-plugins", Digest: "sha256:cni"}}
	}, with(cp("n1", old), Fields{"program/containerd": "sha256:old", "cni/plugins": "sha256:cni"}, nil), with(worker("n2", old), Fields{"program/crio": "sha256:crio"}, nil))
	// Kubernetes, a program and a file at once; a certificate that is young enough.
	stories["a mixed change"] = input(func(in *Input) {
		in.Updaters = []Updater{simple("programs", model.DisruptionRestart, PrefixProgram), files, simple("certificates", model.DisruptionRestart, PrefixCertificate)}
		in.Payloads = append(slices.Clone(bothPayloads), Payload{Name: "runc", Digest: "sha256:new"})
		in.Pools = []Pool{{Name: "all", StepDeadlineSeconds: 600}}
	}, with(cp("n1", old, "all"), Fields{"certificate/apiserver": "2026-01-05T00:00:00Z"}, Fields{"certificate/apiserver": "2026-01-01T00:00:00Z"}),
		with(worker("n2", old, "all"), Fields{"program/runc": "sha256:old"}, sysctl))
	stories["two control planes without a quorum between them"] = input(nil, cp("c1", old), cp("c2", old))
	stories["two control planes with etcd somewhere else"] = input(func(in *Input) { in.ExternalEtcd = true }, cp("c1", old), cp("c2", old))
	stories["the addons wait for a control plane that is left alone"] = input(func(in *Input) { in.Pools = pools("a", 0) },
		cp("c1", old, "a"), cp("c2", old, "a"), cp("c3", old))
	// An answer that is not the question moves nothing.
	stories["an updater that answers another question is refused"] = input(same(Updater{Name: "wrong", Claim: func(q Question) Claim {
		return Claim{Steps: []model.Step{{ID: "wrong", Changes: []model.Change{{Path: "file//etc/a", From: "sha256:z", To: "sha256:y"}}}}}
	}}), cp("n1", "v1.36.3"), with(worker("n2", "v1.36.3"), nil, Fields{"file//etc/a": "sha256:a 0644"}))
}

// random updaters: each covers some prefixes, some only after a path has moved,
// some in several steps.
func randomUpdaters(t *rapid.T, paths []string) []Updater {
	var out []Updater
	for i := range rapid.IntRange(0, 4).Draw(t, "updaters") {
		mine := rapid.SliceOfN(rapid.SampledFrom(paths), 1, 4).Draw(t, "covers")
		u := simple(fmt.Sprintf("u%d", i), rapid.SampledFrom([]model.Disruption{"none", "reload", "restart", "drain", "reboot"}).Draw(t, "disruption"), slices.Compact(slices.Sorted(slices.Values(mine)))...)
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			u = after(u, rapid.SampledFrom(paths).Draw(t, "after"))
		case 1:
			u = oneEach(u)
		}
		out = append(out, u)
	}
	return out
}

// oneEach makes a step of every change.
func oneEach(u Updater) Updater {
	return Updater{Name: u.Name, Claim: func(q Question) Claim {
		var c Claim
		for _, s := range u.Claim(q).Steps {
			for _, d := range s.Changes {
				c.Steps = append(c.Steps, model.Step{ID: "one", Disruption: s.Disruption, Changes: []model.Change{d}})
			}
		}
		return c
	}}
}

func randomFields(t *rapid.T, paths []string, what string) Fields {
	out := Fields{}
	for _, p := range paths {
		if rapid.Bool().Draw(t, what) {
			out[p] = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, what)
		}
	}
	return out
}

// Exactly one owner per difference; the changes applied to current
// give desired, or a blocker names what is left; nothing foreign is touched.
func TestEveryDifferenceHasOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := []string{"file/a", "file/b", "unit/a", "unit/b", "program/a", "x"}
		list := randomUpdaters(t, paths)
		q := Question{Node: Node{Name: "n"}, Current: randomFields(t, paths, "current"), Desired: randomFields(t, paths, "desired")}
		ds := Differences(q.Current, q.Desired)
		c := Cover(list, q)
		now, owner, ids := Fields{}, map[string]string{}, map[string]bool{}
		for p, v := range q.Current {
			now[p] = v
		}
		for _, s := range c.Steps {
			if ids[s.ID] || s.Updater == "" || s.By != model.ByAgent {
				t.Fatalf("step %+v", s)
			}
			ids[s.ID] = true
			for _, d := range s.Changes {
				if owner[d.Path] != "" {
					t.Fatalf("%s is claimed by %s and by %s", d.Path, owner[d.Path], s.Updater)
				}
				if now[d.Path] != d.From {
					t.Fatalf("%s is %q before its step, which says %q", d.Path, now[d.Path], d.From)
				}
				owner[d.Path], now[d.Path] = s.Updater, d.To
			}
		}
		if len(owner)+len(c.Left) != len(ds) || len(c.Left) != len(c.Blockers) {
			t.Fatalf("%d differences, %d have an owner, %d are left, %d blockers", len(ds), len(owner), len(c.Left), len(c.Blockers))
		}
		for _, d := range c.Left {
			if !slices.ContainsFunc(c.Blockers, func(v model.Blocker) bool { return strings.Contains(v.Message, d.Path+" of node") }) {
				t.Fatalf("%s is left and not named: %+v", d.Path, c.Blockers)
			}
			delete(q.Desired, d.Path)
		}
		if left := Differences(now, q.Desired); len(left) > 0 {
			t.Fatalf("after all steps: %+v", left)
		}
		for p, v := range q.Current {
			if owner[p] == "" && now[p] != v {
				t.Fatalf("%s was moved by no updater", p)
			}
		}
		if NotYet(model.NodePlan{Steps: c.Steps}, Node{Current: now}) != "" {
			t.Fatal("what all steps lead to is not called done")
		}
		if len(owner) > 0 && NotYet(model.NodePlan{Steps: c.Steps}, Node{Current: q.Current}) == "" {
			t.Fatal("what nothing was done to is called done")
		}
	})
}

// The run of a node holds at most 32 steps. The plan reports more steps as a blocker, before
// the API server refuses the object.
func TestAPlanWithTooManyStepsIsABlocker(t *testing.T) {
	for n, blockers := range map[int]int{maxSteps: 0, maxSteps + 1: 1} {
		want := Fields{}
		for i := range n {
			want[fmt.Sprint("x", i)] = "1"
		}
		if c := Cover([]Updater{oneEach(simple("u", "reload", "x"))}, Question{Desired: want}); len(c.Blockers) != blockers {
			t.Errorf("%d steps: %+v", n, c.Blockers)
		}
	}
}

// What an updater does to the maps that it is given changes nothing.
func TestAnUpdaterCannotMoveTheQuestion(t *testing.T) {
	rude := Updater{Name: "rude", Claim: func(q Question) Claim {
		q.Current["a"], q.Desired["b"] = "2", "9"
		q.Left = nil
		return Claim{}
	}}
	q := Question{Current: Fields{"a": "1"}, Desired: Fields{"a": "2"}}
	c := Cover([]Updater{rude, simple("u", "reload", "a")}, q)
	if len(c.Steps) != 1 || c.Steps[0].Updater != "u" || len(q.Desired) != 1 || q.Current["a"] != "1" {
		t.Fatalf("%+v %+v", c, q)
	}
}

// Every built-in updater says what it does: a step of its own name with changes
// of the question, from and to known, and the disruption.
func TestBuiltinUpdatersConform(t *testing.T) {
	for _, u := range Builtin() {
		t.Run(u.Name, func(t *testing.T) {
			if c := u.Claim(Question{}); len(c.Steps)+len(c.Blockers) > 0 {
				t.Fatalf("claims a field that was not asked for: %+v", c)
			}
			rapid.Check(t, func(t *rapid.T) {
				in := clusters().Draw(t, "cluster")
				n := rapid.SampledFrom(in.Nodes).Draw(t, "node")
				q := Question{Input: &in, Node: n, Current: currentFields(n), Desired: desiredFields(&in, n)}
				q.Left = Differences(q.Current, q.Desired)
				c := u.Claim(q)
				for _, s := range c.Steps {
					if s.Disruption == "" || s.Verb == "" || s.DeadlineSeconds <= 0 || len(s.Changes) == 0 {
						t.Fatalf("step %+v", s)
					}
					for _, d := range s.Changes {
						if !slices.Contains(q.Left, d) {
							t.Fatalf("%+v is not asked for: %+v", d, q.Left)
						}
					}
				}
				r := rand.New(rand.NewSource(1))
				r.Shuffle(len(in.Nodes), func(i, j int) { in.Nodes[i], in.Nodes[j] = in.Nodes[j], in.Nodes[i] })
				if fmt.Sprint(u.Claim(q)) != fmt.Sprint(c) {
					t.Fatal("the same question, another answer")
				}
			})
		})
	}
}

func TestEqual(t *testing.T) {
	for name, c := range map[string]struct {
		path, have, want string
		equal            bool
	}{
		"a version with and without v":          {"kubernetes/kubelet", "1.36.3", "v1.36.3", true},
		"a certificate that is younger":         {"certificate/x", "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z", true},
		"a certificate that is older":           {"certificate/x", "2025-02-01T00:00:00Z", "2026-01-01T00:00:00Z", false},
		"a certificate that is not there":       {"certificate/x", "", "2026-01-01T00:00:00Z", false},
		"a certificate that is to go":           {"certificate/x", "2026-01-01T00:00:00Z", "", false},
		"a file of another digest":              {"file//a", "sha256:1", "sha256:2", false},
		"a file that is not there and not be":   {"file//a", "", "", true},
		"a digest that looks like a version":    {"file//a", "1.0", "v1.0", false},
		"a version that cannot be read is text": {"kubernetes/kubelet", "x", "x", true},
	} {
		if got := Equal(c.path, c.have, c.want); got != c.equal {
			t.Errorf("%s: %v", name, got)
		}
	}
}
