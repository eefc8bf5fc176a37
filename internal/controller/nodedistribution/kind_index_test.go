package nodedistribution

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// progressOneByOne asks every node by itself what progress counts by kinds.
func progressOneByOne(w *fleetSnapshot, digest string) progress {
	var p progress
	h, err := w.header(digest)
	known := map[listKey]bool{}
	for i, n := range w.nodes {
		wanted := false
		for j := range w.sets {
			s := &w.sets[j]
			wanted = wanted || s.Spec.Bundle == digest && s.Spec.AllOfBundle && w.selectors.Match(s.Spec.NodeSelector, n.Labels)
		}
		if !wanted {
			continue
		}
		p.want++
		nu := w.reports[i]
		if nu == nil || err != nil {
			continue
		}
		if key := (listKey{nu.Spec.Pins, pin.Needs{Platform: platform(n), ControlPlane: rolloutfacts.RunsControlPlane(n, nu)}}); !known[key] {
			known[key] = true
			p.conflict = w.conflict(nu.Spec.Pins, h)
		}
		need, hd := w.needOf(nu.Spec.Pins), nu.Status.Pins
		if pin.Covers(w.readPinSet(nu.Spec.Pins), h, pin.Needs{Platform: platform(n), ControlPlane: rolloutfacts.RunsControlPlane(n, nu)}) && need.there && hd != nil && hd.Content == nu.Spec.Pins &&
			hd.ImagesReady >= need.images && hd.ImagesPinned >= need.images && hd.PayloadsReady >= need.payloads {
			p.loaded++
			continue
		}
		p.copying = p.copying || hd != nil && hd.BytesDone < hd.BytesTotal
		c := meta.FindStatusCondition(nu.Status.Conditions, v1alpha1.ConditionStalled)
		switch {
		case c == nil || c.Status != metav1.ConditionTrue:
		case p.reason != "":
			p.more++
		default:
			p.reason, p.message = c.Reason, "node "+nu.Name+": "+c.Message
		}
	}
	return p
}

// The counts by kind, cached between reconciles, equal the counts of a full scan of all nodes.
func TestCountsByKindAreTheSumOfTheNodes(t *testing.T) {
	t.Parallel()
	one, two := dig("a"), dig("b")
	rapid.Check(t, func(t *rapid.T) {
		f, l := newFake("n1", "n2", "n3", "n4", "n5", "n6"), &kindIndex{}
		f.bundle(one, "app:1=x", "db:1=y")
		f.bundle(two, "app:1=z")
		f.set(allOf(one))
		half := allOf(two)
		half.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: []string{"n2", "n3", "n5"}}}}
		f.set(half)
		var holds []string
		for _, order := range [][]string{{one, two}, {two, one}} {
			for _, n := range f.nodes {
				f.decide(t, n.Name, order...)
				holds = append(holds, f.updates[n.Name].Spec.Pins)
			}
		}
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				i := rapid.IntRange(0, len(f.nodes)-1).Draw(t, "node")
				shake(t, f, i, holds)
			}
			w := f.seeWith(l)
			for _, d := range []string{one, two} {
				if diff := cmp.Diff(progressOneByOne(w, d), w.progress(d), cmp.AllowUnexported(progress{})); diff != "" {
					t.Fatal(diff)
				}
			}
			versions, changing := usesOneByOne(w)
			if diff := cmp.Diff(versions, w.runningVersions()); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(changing, w.changingNodes()); diff != "" {
				t.Fatal(diff)
			}
			for i := range f.sets {
				got := w.setStatus(i).Nodes
				if want := f.see().setStatus(i).Nodes; got != want {
					t.Fatalf("from memory %s, from scratch %s", got, want)
				}
				f.seeWith(l)
			}
		}
	})
}

// usesOneByOne are the first nodes of each version and of each bundle with an unfinished run.
func usesOneByOne(w *fleetSnapshot) (versions, changing map[string]string) {
	versions, changing = map[string]string{}, map[string]string{}
	for i, n := range w.nodes {
		if v := n.Status.NodeInfo.KubeletVersion; v != "" && versions[v] == "" {
			versions[v] = n.Name
		}
		nu := w.reports[i]
		if nu == nil || nu.Spec.Run == nil {
			continue
		}
		done := nu.Status.Run != nil && nu.Status.Run.UID == nu.Spec.Run.UID && nu.Status.Run.State == v1alpha1.RunSucceeded
		if d := nu.Spec.Run.Bundle; !done && d != "" && changing[d] == "" {
			changing[d] = n.Name
		}
	}
	return versions, changing
}

// shake changes a node or its report as a cache shows it: another object.
func shake(t *rapid.T, f *fake, i int, holds []string) {
	n := f.nodes[i].DeepCopy()
	f.nodes[i] = n
	n.Status.NodeInfo.KubeletVersion = rapid.SampledFrom([]string{"", "v1.35.4", "v1.36.3"}).Draw(t, "version")
	switch rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		n.Labels = map[string]string{"name": rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "label")}
		return
	case 1:
		delete(f.updates, n.Name)
		return
	}
	hold := rapid.SampledFrom(holds).Draw(t, "hold")
	k := rapid.Int32Range(0, 3)
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: v1alpha1.NodeUpdateSpec{Pins: hold}}
	if rapid.Bool().Draw(t, "holding") {
		nu.Status.Pins = &v1alpha1.PinStatus{Content: rapid.SampledFrom(holds).Draw(t, "content"), ImagesReady: k.Draw(t, "held"), ImagesPinned: k.Draw(t, "pinned"),
			PayloadsReady: k.Draw(t, "payloads"), FetchedReady: k.Draw(t, "fetched"), BytesDone: int64(k.Draw(t, "done")), BytesTotal: 2}
	}
	if rapid.Bool().Draw(t, "stalled") {
		nu.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "PinsIgnored", Message: "pins"}}
	}
	if rapid.Bool().Draw(t, "run") {
		nu.Spec.Run = &v1alpha1.NodeRun{UID: "1", Bundle: rapid.SampledFrom([]string{"", dig("a"), dig("b")}).Draw(t, "bundle")}
		if rapid.Bool().Draw(t, "started") {
			state := rapid.SampledFrom([]v1alpha1.RunState{v1alpha1.RunRunning, v1alpha1.RunSucceeded}).Draw(t, "state")
			nu.Status.Run = &v1alpha1.NodeRunStatus{UID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"), State: state}
		}
	}
	f.updates[n.Name] = nu
}

// Media are found on the nodes that report them, and no longer once they are gone.
func TestMediaAreFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	f, l := newFake("n1", "n2"), &kindIndex{}
	if got := f.seeWith(l).foundBundles(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	f.updates["n2"] = f.updates["n2"].DeepCopy()
	f.updates["n2"].Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: dig("a")}, {Device: "/dev/sdc", State: v1alpha1.MediumUnreadable, Message: "no"}}
	w := f.seeWith(l)
	if got := w.foundBundles()[dig("a")]; got == nil || len(got.at) != 1 || got.at[0].Node != "n2" || len(w.unreadable()) != 1 {
		t.Fatalf("%+v, %v", got, w.unreadable())
	}
	f.updates["n2"] = &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	if got := f.seeWith(l).foundBundles(); len(got) != 0 {
		t.Fatalf("a medium that was removed is found: %v", got)
	}
}
