package restartforecast

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// lines compares a table with the text that stands in the test.
func lines(t *testing.T, want string, got []string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); diff != "" {
		t.Error(diff)
	}
}

// All answers each event with the registry up and down, as Ask does, also when the
// pod is a template and from what was asked before.
func TestAllIsEachQuestion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"a pod":      func(*world) {},
		"a template": func(w *world) { w.pod.Node = "" },
		"moved":      (*world).movedUpstream,
	} {
		w := newWorld()
		change(w)
		o := New(w.site)
		for range 2 {
			all := o.All(&w.pod, w.use())
			var got, want []string
			for i, e := range []string{"crash", "recreate", "reboot", "reschedule", "new-node", "scale-up"} {
				for j, r := range []string{"up", "down"} {
					want = append(want, fmt.Sprint(e, r, New(w.site).Ask(&w.pod, w.use(), e, r)))
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
		w := newWorld()
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
			got, want := shared.All(p, &p.Uses[0]), New(w.site).All(p, &p.Uses[0])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// Each answer with its whole reason and the nodes that it is about.
func TestWhy(t *testing.T) {
	t.Parallel()
	node := func(i int, change func(*model.ImageNode)) func(*world) {
		return func(w *world) { change(&w.site.Nodes[i]) }
	}
	image := func(i int, change func(*model.CachedImage)) func(*world) {
		return func(w *world) { change(&w.site.Nodes[i].Images[0]) }
	}
	record := func(i int, r model.PullRecord) func(*world) {
		return image(i, func(c *model.CachedImage) { c.Record = r })
	}
	verification := func(i int, v string) func(*world) {
		return node(i, func(n *model.ImageNode) { n.Verification = v })
	}
	policy := func(p model.PullPolicy) func(*world) { return func(w *world) { w.use().Policy = p } }
	empty := func(i int) func(*world) { return func(w *world) { w.empty(i) } }
	digest := func(w *world) { w.use().Image = repo + "@" + d("a") }
	runs := func(s string) func(*world) { return func(w *world) { w.use().Runs = s } }
	unnamed := func(i int) func(*world) {
		return image(i, func(c *model.CachedImage) { c.Names = []string{name} })
	}
	pressure := func(i int) func(*world) { return node(i, func(n *model.ImageNode) { n.Pressure = true }) }
	cut := func(i int) func(*world) { return node(i, func(n *model.ImageNode) { n.Complete = false }) }
	other := func(change ...func(*model.ImageUse)) func(*world) {
		return func(w *world) {
			p := w.pod
			p.Uses = slices.Clone(p.Uses)
			p.Uses[0].Policy = model.PullAlways
			for _, c := range change {
				c(&p.Uses[0])
			}
			w.site.Pods = append(w.site.Pods, p)
		}
	}
	unpublished := func(w *world) { delete(w.site.Published, name) }
	gone := func(w *world) {
		w.site.Published[name] = model.Published{Gone: true}
		w.site.GoneDigests[repo+"@"+d("a")] = true
	}
	static := func(w *world) { w.pod.Static = true }
	admission := func(w *world) { w.site.AlwaysPull = AdmissionOn }
	owner := func(k string) func(*world) { return func(w *world) { w.pod.OwnerKind = k } }
	template := func(w *world) { w.pod.Node = "" }
	up, moved := (*world).movedUpstream, (*world).movedLocally
	never, always := policy(model.PullNever), policy(model.PullAlways)
	type steps = []func(*world)
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
		{"pulled, all digests known", steps{empty(0), node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" }), func(w *world) {
			w.site.Published[name] = model.Published{Digest: d("b"), Same: []string{d("e")}}
		}}, Crash, Up},
		{"pulled from a mirror, its digests are not known", steps{empty(0), node(0, func(n *model.ImageNode) { n.Runtime = "cri-o" }), func(w *world) {
			w.site.Published[name] = model.Published{Digest: d("b"), Mirror: d("f"), Same: []string{d("e")}}
		}}, Crash, Up},
		{"always", steps{always}, Crash, Up},
		{"always, down", steps{always}, Crash, Down},
		{"always, moved", steps{always, up}, Crash, Up},
		{"never, absent", steps{never, empty(0)}, Crash, Up},
		{"never, new node", steps{never}, NewNode, Up},
		{"new node", nil, NewNode, Up},
		{"new node of a template", steps{template, runs("")}, NewNode, Up},
		{"new node of a template without nodes", steps{template, func(w *world) { w.site.Nodes = nil }}, NewNode, Down},
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
		{"verified, no record, with a secret", steps{verification(1, verifyAlways), func(w *world) { w.pod.Secrets = []string{"key"} }}, Reschedule, Down},
		{"verified, no record, at home", steps{verification(0, verifyAlways)}, Crash, Down},
		{"verified, no record, at home, moved", steps{moved, verification(0, verifyAlways)}, Crash, Down},
		{"other secrets", steps{image(1, func(c *model.CachedImage) { c.Secrets = []string{"pay/a", "pay/b"} })}, Reschedule, Down},
		{"one secret is the same", steps{image(1, func(c *model.CachedImage) { c.Secrets = []string{"pay/a", "shop/key"} }), func(w *world) { w.pod.Secrets = []string{"key"} }}, Reschedule, Down},
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
		{"admission, static pod with Always, moved apart", steps{admission, static, always, moved, func(w *world) {
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
		{"restartPolicy Never, recreate", steps{func(w *world) { w.pod.NotRestarted = true }}, Recreate, Up},
		{"restartPolicy Never, crash", steps{func(w *world) { w.pod.NotRestarted = true }}, Crash, Up},
		{"ephemeral", steps{func(w *world) { w.use().Kind = model.UseEphemeral }}, Recreate, Up},
		{"init, crash", steps{func(w *world) { w.use().Kind = model.UseInit }}, Crash, Up},
		{"illegal name", steps{func(w *world) { w.use().Image = "A" }}, Crash, Up},
		{"unknown node", steps{func(w *world) { w.pod.Node = "n9" }}, Crash, Up},
		{"no other node", steps{node(1, func(n *model.ImageNode) { n.Takes = false })}, Reschedule, Up},
		{"one node fails", steps{empty(1)}, ScaleUp, Down},
		{"the first fails", steps{empty(0)}, ScaleUp, Down},
		{"both fail", steps{empty(0), empty(1)}, ScaleUp, Down},
		{"both are unknown", steps{runs(d("c")), func(w *world) { w.empty(1) }, up}, ScaleUp, Up},
	} {
		w := newWorld()
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
	lines(t, `
cached: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
cached, nothing runs: starts a Cached from - []: node n1 has reg.example/shop/web:1.0
cached, moved: changes b TagMoved from a []: on node n1 the tag reg.example/shop/web:1.0 means another image than the one that runs: another pull or import moved it
cached, not comparable: unknown a NotKnown from c []: node n1 has reg.example/shop/web:1.0, but whether it is the image that runs is not proven: sha256:cccccccccccc and sha256:aaaaaaaaaaaa are digests of different kinds (index, manifest or configuration)
cached without a digest: unknown - NotKnown from a []: node n1 has reg.example/shop/web:1.0, but whether it is the image that runs is not proven: the node does not say the digest behind the name
cached twice under one digest: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
digest, cached: same a Digest from a []: node n1 has the image under its digest
digest, nothing runs: starts a Digest from - []: node n1 has the image under its digest
digest, pulled: same a Digest from a []: node n1 does not have reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; a digest gives the same bytes
digest, gone: fails - Gone from a []: node n1 does not have reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, and the registry does not have this digest any more
digest, down: fails - NotCached from a []: node n1 does not have reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, and the registry does not answer
digest, cut list, up: same a Digest from a []: whether node n1 has reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa is not known: its list of images is not complete; a digest gives the same bytes
digest, cut list, down: unknown - NotKnown from a []: whether node n1 has reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa is not known: its list of images is not complete
digest, cut list, gone: unknown - NotKnown from a []: whether node n1 has reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa is not known: its list of images is not complete
digest, cut list, never: unknown - NotKnown from a []: whether node n1 has reg.example/shop/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa is not known: its list of images is not complete
tag, cut list: unknown - NotKnown from a []: whether node n1 has reg.example/shop/web:1.0 is not known: its list of images is not complete
pulled: same a Pulled from a []: node n1 does not have reg.example/shop/web:1.0; it still answers the image that runs
pulled, nothing runs: starts a Pulled from - []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:aaaaaaaaaaaa
pulled, moved: changes b TagMoved from a []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb now
pulled, gone: fails - Gone from a []: node n1 does not have reg.example/shop/web:1.0, and the registry does not have reg.example/shop/web:1.0 any more
pulled, not asked: unknown - NotKnown from a []: node n1 does not have reg.example/shop/web:1.0; what it answers for reg.example/shop/web:1.0 is not known here
pulled, down: fails - NotCached from a []: node n1 does not have reg.example/shop/web:1.0, and the registry does not answer
pulled, not comparable: unknown b NotKnown from a []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb, and whether that is the image that runs is not proven
pulled, all digests known: changes b TagMoved from a []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb now
pulled from a mirror, its digests are not known: unknown f NotKnown from a []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:ffffffffffff, and whether that is the image that runs is not proven
always: same a Pulled from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node; it still answers the image that runs
always, down: fails - PullAlways from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node, and the registry does not answer
always, moved: changes b TagMoved from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb now
never, absent: fails - NeverPulled from a []: policy Never, and node n1 does not have reg.example/shop/web:1.0
never, new node: fails - NeverPulled from a []: policy Never, and a new node does not have reg.example/shop/web:1.0
new node: same a Pulled from a []: a new node does not have reg.example/shop/web:1.0; it still answers the image that runs
new node of a template: starts a Pulled from - []: a new node does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:aaaaaaaaaaaa
new node of a template without nodes: fails - NotCached from a []: a new node does not have reg.example/shop/web:1.0, and the registry does not answer
new node of another runtime: unknown b NotKnown from a []: a new node does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb, and whether that is the image that runs is not proven
new node of a template, like the first: unknown b NotKnown from a []: a new node does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb, and whether that is the image that runs is not proven
others pulled it: fails - Credentials from a []: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it, and the registry does not answer
others pulled it, never: fails - Credentials from a []: policy Never: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it
others pulled it, up: same a Pulled from a []: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it; it still answers the image that runs
preloaded: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
preloaded, by name of the default: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
preloaded, verified: fails - Credentials from a []: the kubelet of node n1 has the policy AlwaysVerify and no record of a pull of this image, and the registry does not answer
preloaded, not on the list: fails - Credentials from a []: the kubelet of node n1 has the policy NeverVerifyAllowlistedImages and no record of a pull of this image, and the registry does not answer
preloaded, on the list: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
preloaded, a list that is not asked: fails - Credentials from a []: the kubelet of node n1 has the policy AlwaysVerify and no record of a pull of this image, and the registry does not answer
others pulled it, 1.35: fails - Credentials from a []: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it, and the registry does not answer
others pulled it, 1.34: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
others pulled it, 1.34 that verifies: fails - Credentials from a []: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it, and the registry does not answer
others pulled it, a kubelet of unknown version: fails - Credentials from a []: the kubelet of node n1 pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it, and the registry does not answer
two repositories: unknown - Credentials from a []: on node n1 the image has the names of 3 repositories (a.example:5000/b, r.example/z, reg.example/shop/web): if the kubelet pulled it under one, it asks the registry before another is used
verified, no record: unknown - Credentials from a []: the kubelet of node n2 has the policy AlwaysVerify; its record of this image cannot be seen from here
verified, no record, used: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
verified, no record, with a secret: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
verified, no record, at home: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
verified, no record, at home, moved: unknown - Credentials from a []: the kubelet of node n1 has the policy AlwaysVerify; its record of this image cannot be seen from here
other secrets: unknown - Credentials from a []: on node n2 only pods with other pull secrets use this repository (pay/a, pay/b): the kubelet may ask the registry again
one secret is the same: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
may be collected: unknown - Collected from a []: node n2 is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then
may be collected, pulled again: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
may be collected, moved upstream: unknown - Collected from a []: node n2 is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then
may be collected, never: unknown - Collected from a []: node n2 is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then
may be collected, never, without a digest: unknown - Collected from a []: node n2 is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then
may be collected, nothing runs: starts a Cached from - []: node n2 has reg.example/shop/web:1.0
used, not collected: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
pinned, not collected: same a Cached from a []: node n2 has reg.example/shop/web:1.0, and it is the image that runs
at home, nothing runs yet: unknown - Collected from - []: node n1 is short of disk and no container of it uses the image, which is not pinned: the kubelet may have collected it by then
race: unknown - Race from a []: another container of node n1 pulls reg.example/shop/web:1.0 at its start: which of the two starts first decides
race, not asked: unknown - Race from a []: another container of node n1 pulls reg.example/shop/web:1.0 at its start: which of the two starts first decides
race, gone: unknown - Race from a []: another container of node n1 pulls reg.example/shop/web:1.0 at its start: which of the two starts first decides
race without move: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
race, down: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
no race at a crash: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
no race with a digest: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
no race with another tag: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
no race with an illegal name: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
admission, reboot: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
admission, crash: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
admission, reschedule: fails - PullAlways from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node, and the registry does not answer
admission, static pod with Always, down: unknown - NotKnown from a []: AlwaysPullImages writes Always into every pod that the API server shows; what the file of this static pod says, and the kubelet does, cannot be seen from here
admission, static pod with Always, up: same a Pulled from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node; it still answers the image that runs
admission, static pod with Always, moved: unknown - NotKnown from a []: AlwaysPullImages writes Always into every pod that the API server shows; what the file of this static pod says, and the kubelet does, cannot be seen from here
admission, static pod with Always, moved everywhere: changes b TagMoved from a []: policy Always: the kubelet asks the registry at every start, also when the image is on the node; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb now
admission, static pod with Always, moved apart: unknown - NotKnown from a []: AlwaysPullImages writes Always into every pod that the API server shows; what the file of this static pod says, and the kubelet does, cannot be seen from here
admission, static pod with IfNotPresent: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
static pod, recreated: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
static pod, rescheduled: none - NotStarted from a []: a static pod stays on its node
static pod without owner, recreated: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
no owner: none - NotStarted from a []: nobody makes this pod again: it has no owner
no owner, reboot: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
template without owner: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
template, recreate: none - NotStarted from a []: there is no pod of this template yet
template, reboot: none - NotStarted from a []: there is no pod of this template yet
template that runs elsewhere: unknown b NotKnown from a []: node n1 does not have reg.example/shop/web:1.0; for reg.example/shop/web:1.0 it answers sha256:bbbbbbbbbbbb, and whether that is the image that runs is not proven
DaemonSet, reschedule: none - NotStarted from a []: a DaemonSet has one pod on each node: only a new node adds one
DaemonSet, scale-up: none - NotStarted from a []: a DaemonSet has one pod on each node: only a new node adds one
DaemonSet, recreate: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
restartPolicy Never, recreate: same a Cached from a []: node n1 has reg.example/shop/web:1.0, and it is the image that runs
restartPolicy Never, crash: none - NotStarted from a []: restartPolicy Never: the kubelet does not start it again
ephemeral: none - NotStarted from a []: an ephemeral container is never started again
init, crash: none - NotStarted from a []: an init container that ended is not run again when another container crashes
illegal name: fails - IllegalName from a []: image reference "A": "library/A" is no repository: lower case letters and digits, parted by single . _ __ or hyphens
unknown node: unknown - NotKnown from a []: nothing is known of node n9
no other node: none - NoNode from a []: no other node takes this pod now
one node fails: fails - NotCached from a [n2]: node n2 does not have reg.example/shop/web:1.0, and the registry does not answer
the first fails: fails - NotCached from a [n1]: node n1 does not have reg.example/shop/web:1.0, and the registry does not answer
both fail: fails - NotCached from a []: node n1 does not have reg.example/shop/web:1.0, and the registry does not answer
both are unknown: unknown a NotKnown from c []: node n1 has reg.example/shop/web:1.0, but whether it is the image that runs is not proven: sha256:cccccccccccc and sha256:aaaaaaaaaaaa are digests of different kinds (index, manifest or configuration)
`, got)
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
