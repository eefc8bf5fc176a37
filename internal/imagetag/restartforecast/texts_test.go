package restartforecast

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/test/results"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// All answers each event with the registry up and down, as Ask does, also when the
// pod is a template and from what was asked before.
func TestAllIsEachQuestion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testSite){
		"a pod":      func(*testSite) {},
		"a template": func(w *testSite) { w.pod.Node = "" },
		"moved":      (*testSite).movedUpstream,
	} {
		w := newSite()
		change(w)
		o := New(w.site)
		for range 2 {
			all := o.ForecastAll(&w.pod, w.use())
			var got, want []string
			for i, e := range []string{"crash", "recreate", "reboot", "reschedule", "new-node", "scale-up"} {
				for j, r := range []string{"up", "down"} {
					want = append(want, fmt.Sprint(e, r, New(w.site).Forecast(&w.pod, w.use(), e, r)))
					if n := 2*i + j; n < len(all) {
						got = append(got, fmt.Sprint(all[n].Event, all[n].Registry, all[n]))
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || len(all) != 12 {
				t.Errorf("%s: %d answers: %s", name, len(all), diff)
			}
		}
	}
}

// One oracle answers two pods that differ in one fact each by itself.
func TestAnswersAreNotMixedUp(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *model.ImagePod){
		"home":         func(p *model.ImagePod) { p.Node = "n2" },
		"what runs":    func(p *model.ImagePod) { p.Uses[0].Runs = repo + "@" + d("b") },
		"image":        func(p *model.ImagePod) { p.Uses[0].Image = repo + ":2.0" },
		"policy":       func(p *model.ImagePod) { p.Uses[0].Policy = model.PullAlways },
		"secrets":      func(p *model.ImagePod) { p.Secrets = []string{"key"} },
		"selector":     func(p *model.ImagePod) { p.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"} },
		"toleration":   func(p *model.ImagePod) { p.Tolerates = []model.Toleration{{Key: "k", Any: true}} },
		"a static pod": func(p *model.ImagePod) { p.Static = true },
		"no home":      func(p *model.ImagePod) { p.Node = "" },
	} {
		w := newSite()
		w.site.AlwaysPull = AdmissionOn
		w.site.Nodes = append(w.site.Nodes, w.site.Nodes[0])
		w.site.Nodes[2].Name, w.site.Nodes[2].Labels, w.site.Nodes[2].Images = "n3", nil, nil
		w.site.Nodes[2].Taints = []model.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}
		w.site.Nodes[1].Images[0].Secrets = []string{"shop/key"}
		other := w.pod
		other.Uses = slices.Clone(w.pod.Uses)
		change(&other)
		shared := New(w.site)
		for _, p := range []*model.ImagePod{&w.pod, &other, &w.pod} {
			got, want := shared.ForecastAll(p, &p.Uses[0]), New(w.site).ForecastAll(p, &p.Uses[0])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// Each answer with its whole reason and the nodes that it is about.
func TestWhy(t *testing.T) {
	t.Parallel()
	node := func(i int, change func(*model.ImageNode)) func(*testSite) {
		return func(w *testSite) { change(&w.site.Nodes[i]) }
	}
	image := func(i int, change func(*model.CachedImage)) func(*testSite) {
		return func(w *testSite) { change(&w.site.Nodes[i].Images[0]) }
	}
	record := func(i int, r model.PullRecord) func(*testSite) {
		return image(i, func(c *model.CachedImage) { c.Record = r })
	}
	verification := func(i int, v string) func(*testSite) {
		return node(i, func(n *model.ImageNode) { n.Verification = v })
	}
	policy := func(p model.PullPolicy) func(*testSite) { return func(w *testSite) { w.use().Policy = p } }
	empty := func(i int) func(*testSite) { return func(w *testSite) { w.empty(i) } }
	digest := func(w *testSite) { w.use().Image = repo + "@" + d("a") }
	runs := func(s string) func(*testSite) { return func(w *testSite) { w.use().Runs = s } }
	unnamed := func(i int) func(*testSite) {
		return image(i, func(c *model.CachedImage) { c.Names = []string{name} })
	}
	pressure := func(i int) func(*testSite) { return node(i, func(n *model.ImageNode) { n.Pressure = true }) }
	cut := func(i int) func(*testSite) { return node(i, func(n *model.ImageNode) { n.Complete = false }) }
	other := func(change ...func(*model.ImageUse)) func(*testSite) {
		return func(w *testSite) {
			p := w.pod
			p.Uses = slices.Clone(p.Uses)
			p.Uses[0].Policy = model.PullAlways
			for _, c := range change {
				c(&p.Uses[0])
			}
			w.site.Pods = append(w.site.Pods, p)
		}
	}
	unpublished := func(w *testSite) { delete(w.site.Published, name) }
	gone := func(w *testSite) {
		w.site.Published[name] = model.Published{Gone: true}
		w.site.GoneDigests[repo+"@"+d("a")] = true
	}
	static := func(w *testSite) { w.pod.Static = true }
	admission := func(w *testSite) { w.site.AlwaysPull = AdmissionOn }
	owner := func(k string) func(*testSite) { return func(w *testSite) { w.pod.OwnerKind = k } }
	template := func(w *testSite) { w.pod.Node = "" }
	up, moved := (*testSite).movedUpstream, (*testSite).movedLocally
	never, always := policy(model.PullNever), policy(model.PullAlways)
	type steps = []func(*testSite)
	var got []string
	for _, c := range []struct {
		name            string
		make            steps
		event, registry string
	}{
		{"cached", nil, Crash, Up},
		{"cached, nothing runs", steps{runs("")}, Crash, Up},
		{"cached, moved", steps{moved}, Crash, Up},
		{"cached, not comparable", steps{runs(d("c"))}, Crash, Up},
		{"cached without a digest", steps{unnamed(0)}, Crash, Up},
		{"cached twice under one digest", steps{image(0, func(c *model.CachedImage) { c.Names = []string{name, repo + "@" + d("a"), repo + "@" + d("a")} })}, Crash, Up},
		{"digest, cached", steps{digest}, Crash, Up},
		{"digest, nothing runs", steps{digest, runs("")}, Crash, Down},
		{"digest, pulled", steps{digest, empty(0)}, Crash, Up},
		{"digest, gone", steps{digest, empty(0), gone}, Crash, Up},
		{"digest, down", steps{digest, empty(0)}, Crash, Down},
		{"digest, cut list, up", steps{digest, empty(0), cut(0)}, Crash, Up},
		{"digest, cut list, down", steps{digest, empty(0), cut(0)}, Crash, Down},
		{"digest, cut list, gone", steps{digest, empty(0), cut(0), gone}, Crash, Up},
		{"digest, cut list, never", steps{digest, empty(0), cut(0), never}, Crash, Up},
		{"tag, cut list", steps{empty(0), cut(0)}, Crash, Up},
		{"pulled", steps{empty(0)}, Crash, Up},
		{"pulled, nothing runs", steps{empty(0), runs("")}, Crash, Up},
		{"pulled, moved", steps{empty(0), up}, Crash, Up},
		{"pulled, gone", steps{empty(0), gone}, Crash, Up},
		{"pulled, not asked", steps{empty(0), unpublished}, Crash, Up},
		{"pulled, down", steps{empty(0)}, Crash, Down},
		{"pulled, not comparable", steps{empty(0), node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" }), up}, Crash, Up},
		{"pulled, all digests known", steps{empty(0), node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" }), func(w *testSite) {
			w.site.Published[name] = model.Published{Digest: d("b"), Same: []string{d("e")}}
		}}, Crash, Up},
		{"pulled from a mirror, its digests are not known", steps{empty(0), node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" }), func(w *testSite) {
			w.site.Published[name] = model.Published{Digest: d("b"), Mirror: d("f"), Same: []string{d("e")}}
		}}, Crash, Up},
		{"always", steps{always}, Crash, Up},
		{"always, down", steps{always}, Crash, Down},
		{"always, moved", steps{always, up}, Crash, Up},
		{"never, absent", steps{never, empty(0)}, Crash, Up},
		{"never, new node", steps{never}, NewNode, Up},
		{"new node", nil, NewNode, Up},
		{"new node of a template", steps{template, runs("")}, NewNode, Up},
		{"new node of a template without nodes", steps{template, func(w *testSite) { w.site.Nodes = nil }}, NewNode, Down},
		{"new node of another runtime", steps{up, node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" })}, NewNode, Up},
		{"new node of a template, like the first", steps{up, template, node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" })}, NewNode, Up},
		{"others pulled it", steps{record(0, model.RecordOthers)}, Crash, Down},
		{"others pulled it, never", steps{never, record(0, model.RecordOthers)}, Crash, Up},
		{"others pulled it, up", steps{record(0, model.RecordOthers)}, Crash, Up},
		{"preloaded", steps{record(0, model.RecordNone)}, Crash, Down},
		{"preloaded, by name of the default", steps{record(0, model.RecordNone), verification(0, verifyPreloadedNo)}, Crash, Down},
		{"preloaded, verified", steps{record(0, model.RecordNone), verification(0, verifyAlways)}, Crash, Down},
		{"preloaded, not on the list", steps{record(0, model.RecordNone), verification(0, verifyListedNo)}, Crash, Down},
		{"preloaded, on the list", steps{record(0, model.RecordNone), verification(0, verifyListedNo), node(0, func(n *model.ImageNode) { n.Allowed = []string{"x", repo} })}, Crash, Down},
		{"preloaded, a list that is not asked", steps{record(0, model.RecordNone), verification(0, verifyAlways), node(0, func(n *model.ImageNode) { n.Allowed = []string{repo} })}, Crash, Down},
		{"others pulled it, 1.35", steps{record(0, model.RecordOthers), node(0, func(n *model.ImageNode) { n.Kubelet = "v1.35.0" })}, Crash, Down},
		{"others pulled it, 1.34", steps{record(0, model.RecordOthers), node(0, func(n *model.ImageNode) { n.Kubelet = "v1.34.9" })}, Crash, Down},
		{"others pulled it, 1.34 that verifies", steps{record(0, model.RecordOthers), verification(0, verifyAlways), node(0, func(n *model.ImageNode) { n.Kubelet = "v1.34.9" })}, Crash, Down},
		{"others pulled it, a kubelet of unknown version", steps{record(0, model.RecordOthers), node(0, func(n *model.ImageNode) { n.Kubelet = "" })}, Crash, Down},
		{"two repositories", steps{image(0, func(c *model.CachedImage) { c.Names = []string{name, "r.example/z@" + d("a"), "a.example:5000/b:1"} })}, Crash, Down},
		{"verified, no record", steps{verification(1, verifyAlways)}, Reschedule, Down},
		{"verified, no record, used", steps{verification(1, verifyAlways), image(1, func(c *model.CachedImage) { c.Used = true })}, Reschedule, Down},
		{"verified, no record, with a secret", steps{verification(1, verifyAlways), func(w *testSite) { w.pod.Secrets = []string{"key"} }}, Reschedule, Down},
		{"verified, no record, at home", steps{verification(0, verifyAlways)}, Crash, Down},
		{"verified, no record, at home, moved", steps{moved, verification(0, verifyAlways)}, Crash, Down},
		{"other secrets", steps{image(1, func(c *model.CachedImage) { c.Secrets = []string{"pay/a", "pay/b"} })}, Reschedule, Down},
		{"one secret is the same", steps{image(1, func(c *model.CachedImage) { c.Secrets = []string{"pay/a", "shop/key"} }), func(w *testSite) { w.pod.Secrets = []string{"key"} }}, Reschedule, Down},
		{"may be collected", steps{pressure(1)}, Reschedule, Down},
		{"may be collected, pulled again", steps{pressure(1)}, Reschedule, Up},
		{"may be collected, moved upstream", steps{pressure(1), up}, Reschedule, Up},
		{"may be collected, never", steps{pressure(1), never}, Reschedule, Up},
		{"may be collected, never, without a digest", steps{pressure(1), never, unnamed(1)}, Reschedule, Down},
		{"may be collected, nothing runs", steps{pressure(1), runs("")}, Reschedule, Up},
		{"used, not collected", steps{pressure(1), image(1, func(c *model.CachedImage) { c.Used = true })}, Reschedule, Down},
		{"pinned, not collected", steps{pressure(1), image(1, func(c *model.CachedImage) { c.Pinned = true })}, Reschedule, Down},
		{"at home, nothing runs yet", steps{pressure(0), runs("")}, Crash, Down},
		{"race", steps{up, other()}, Reboot, Up},
		{"race, not asked", steps{unpublished, other()}, Reboot, Up},
		{"race, gone", steps{gone, other()}, Reboot, Up},
		{"race without move", steps{other()}, Reboot, Up},
		{"race, down", steps{up, other()}, Reboot, Down},
		{"no race at a crash", steps{up, other()}, Crash, Up},
		{"no race with a digest", steps{up, other(func(u *model.ImageUse) { u.Image = repo + "@" + d("a") })}, Reboot, Up},
		{"no race with another tag", steps{up, other(func(u *model.ImageUse) { u.Image = repo + ":2.0" })}, Reboot, Up},
		{"no race with an illegal name", steps{up, other(func(u *model.ImageUse) { u.Image = "A" })}, Reboot, Up},
		{"admission, reboot", steps{admission}, Reboot, Down},
		{"admission, crash", steps{admission}, Crash, Down},
		{"admission, reschedule", steps{admission}, Reschedule, Down},
		{"admission, static pod with Always, down", steps{admission, static, always}, Crash, Down},
		{"admission, static pod with Always, up", steps{admission, static, always}, Crash, Up},
		{"admission, static pod with Always, moved", steps{admission, static, always, up}, Crash, Up},
		{"admission, static pod with Always, moved everywhere", steps{admission, static, always, up, moved}, Crash, Up},
		{"admission, static pod with Always, moved apart", steps{admission, static, always, moved, func(w *testSite) {
			w.site.Published[name] = model.Published{Digest: d("e")}
		}}, Crash, Up},
		{"admission, static pod with IfNotPresent", steps{admission, static}, Crash, Down},
		{"static pod, recreated", steps{static}, Recreate, Up},
		{"static pod, rescheduled", steps{static}, Reschedule, Up},
		{"static pod without owner, recreated", steps{static, owner("")}, Recreate, Up},
		{"no owner", steps{owner("")}, Recreate, Up},
		{"no owner, reboot", steps{owner("")}, Reboot, Up},
		{"template without owner", steps{owner(""), template}, ScaleUp, Up},
		{"template, recreate", steps{template}, Recreate, Up},
		{"template, reboot", steps{template}, Reboot, Up},
		{"template that runs elsewhere", steps{template, up, empty(0), empty(1)}, ScaleUp, Up},
		{"DaemonSet, reschedule", steps{owner(model.OwnerDaemonSet)}, Reschedule, Up},
		{"DaemonSet, scale-up", steps{owner(model.OwnerDaemonSet)}, ScaleUp, Up},
		{"DaemonSet, recreate", steps{owner(model.OwnerDaemonSet)}, Recreate, Up},
		{"restartPolicy Never, recreate", steps{func(w *testSite) { w.pod.NotRestarted = true }}, Recreate, Up},
		{"restartPolicy Never, crash", steps{func(w *testSite) { w.pod.NotRestarted = true }}, Crash, Up},
		{"ephemeral", steps{func(w *testSite) { w.use().Kind = model.UseEphemeral }}, Recreate, Up},
		{"init, crash", steps{func(w *testSite) { w.use().Kind = model.UseInit }}, Crash, Up},
		{"illegal name", steps{func(w *testSite) { w.use().Image = "A" }}, Crash, Up},
		{"unknown node", steps{func(w *testSite) { w.pod.Node = "n9" }}, Crash, Up},
		{"no other node", steps{node(1, func(n *model.ImageNode) { n.Takes = false })}, Reschedule, Up},
		{"one node fails", steps{empty(1)}, ScaleUp, Down},
		{"the first fails", steps{empty(0)}, ScaleUp, Down},
		{"both fail", steps{empty(0), empty(1)}, ScaleUp, Down},
		{"both are unknown", steps{runs(d("c")), func(w *testSite) { w.empty(1) }, up}, ScaleUp, Up},
	} {
		w := newSite()
		for _, f := range c.make {
			f(w)
		}
		a := w.ask(c.event, c.registry)
		from := "-"
		if a.From != "" {
			from = a.From[len("sha256:") : len("sha256:")+1]
		}
		got = append(got, fmt.Sprintf("%s: %s from %s %v: %s", c.name, line(a), from, a.Nodes, a.Why))
	}
	results.CompareGolden(t, "testdata/why.golden", got, *update)
}

// Which kubelets compare credentials, and from which version.
func TestVerifies(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][2]bool{
		"v1.34.9": {false, true}, "v1.35.0": {true, true}, "v1.36.3+k3s1": {true, true}, "1.35": {true, true}, "v1.35+": {true, true}, "v1.34+": {false, true},
		"v2.0.0": {true, true}, "v2.34.0": {true, true}, "v1.34.9.1": {false, true}, "": {true, false}, "v1": {true, false}, "vx.34.0": {true, false}, "v1.x.0": {true, false}, "vx.y": {true, false},
	} {
		if does, known := verifies(version); does != want[0] || known != want[1] {
			t.Errorf("%s: %t, known %t", version, does, known)
		}
	}
}

// An allow list has a repository in full, or all below a directory.
func TestListed(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{
		"": false, repo: true, repo + "/": true, "reg.example/shop/*": true, "reg.example/*": true, "reg.example/sho/*": false, "reg.example/shop": false,
		repo + "/*": false, repo + "2": false, "*": false, "reg.example/pay/*," + repo: true,
	} {
		if got := listed(strings.Split(list, ","), repo); got != want {
			t.Errorf("%q has %s: %t", list, repo, got)
		}
	}
}
