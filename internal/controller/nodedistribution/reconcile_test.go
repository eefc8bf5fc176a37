package nodedistribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func at(minutes int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
}

func dig(s string) string { return "sha256:" + strings.Repeat(s, 64)[:64] }

// fake is a fleet of nodes and bundles; a bundle's images are name=digest.
type fake struct {
	*fleetSnapshot
	// updates are the reports, by node.
	updates map[string]*v1alpha1.NodeUpdate
	headers map[string]*bundle.Header
}

func newFake(nodes ...string) *fake {
	f := &fake{updates: map[string]*v1alpha1.NodeUpdate{}, fleetSnapshot: &fleetSnapshot{now: start, contents: map[string]*v1alpha1.Content{}}, headers: map[string]*bundle.Header{}}
	for _, n := range nodes {
		f.nodes = append(f.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"name": n}},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}}})
		f.updates[n] = &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: n}}
	}
	f.header = func(d string) (*bundle.Header, error) {
		if h := f.headers[d]; h != nil {
			return h, nil
		}
		return nil, errors.New("not here")
	}
	return f
}

// see returns the snapshot that a controller takes right after its start.
func (f *fake) see() *fleetSnapshot { return f.seeWith(&kindIndex{}) }

// seeWith returns the snapshot of a controller that has a kind index.
func (f *fake) seeWith(l *kindIndex) *fleetSnapshot {
	f.reports = f.reports[:0]
	for _, n := range f.nodes {
		f.reports = append(f.reports, f.updates[n.Name])
	}
	f.kinds, f.counted = l, nil
	return f.fleetSnapshot
}

func (f *fake) bundle(digest string, images ...string) {
	m := &bundle.Metadata{Name: "b", Version: "1.0.0"}
	for _, i := range images {
		name, d, _ := strings.Cut(i, "=")
		m.Images = append(m.Images, bundle.Image{Name: name, Digest: d})
	}
	m.Blobs = []bundle.Blob{{Digest: digest + "-kubelet", Size: 7}}
	m.Payloads = []bundle.Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: digest + "-kubelet"}}
	f.headers[digest] = &bundle.Header{Digest: digest, Metadata: m}
}

func (f *fake) set(s v1alpha1.PinnedImageSet) { f.sets = append(f.sets, s) }

func allOf(digest string) v1alpha1.PinnedImageSet {
	return v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: setName(digest), CreationTimestamp: at(0), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController}},
		Spec: v1alpha1.PinnedImageSetSpec{Bundle: digest, AllOfBundle: true}}
}

// poolOf one node, by name.
func poolOf(node string, keep v1alpha1.LocalCopy) v1alpha1.UpdatePool {
	return v1alpha1.UpdatePool{Spec: v1alpha1.UpdatePoolSpec{LocalCopy: keep, NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": node}}}}
}

// lean is a set that keeps no copy on nodes.
func lean(digest string) v1alpha1.PinnedImageSet {
	s := allOf(digest)
	s.Spec.LocalCopy = v1alpha1.LocalCopyDiscard
	return s
}

// decide makes the hold list of a node and gives it to the node.
func (f *fake) decide(t interface{ Fatal(...any) }, node string, order ...string) []string {
	h := f.newPinSetBuilder(order)
	for i := range f.nodes {
		if f.nodes[i].Name != node {
			continue
		}
		name := h.pinSetOf(f.nodes[i], f.updates[node])
		f.updates[node].Spec.Pins = name
		if name == "" {
			return nil
		}
		var l model.PinSet
		if err := json.Unmarshal([]byte(h.data[name]), &l); err != nil {
			t.Fatal(err)
		}
		f.contents[name] = &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: v1alpha1.ContentPins, Data: h.data[name]}
		f.lists = nil
		var out []string
		for _, i := range l.Images {
			one := i.Name + "=" + i.Digest
			if i.NoCopy {
				one += "(no copy)"
			}
			if i.Overlay != "" {
				one += "(" + i.Overlay + " on " + i.Base + " of " + i.Bundle[:8] + ")"
			}
			out = append(out, one)
		}
		for _, p := range l.Payloads {
			out = append(out, p.Name)
		}
		return out
	}
	t.Fatal("no node " + node)
	return nil
}

func TestPinSet(t *testing.T) {
	old, next := dig("a"), dig("b")
	cases := map[string]struct {
		make  func(*fake)
		order []string
		want  string
	}{
		"no set, nothing to hold": {func(*fake) {}, nil, ""},
		"all of a bundle, with the payloads of the platform": {func(f *fake) {
			f.bundle(old, "app:1=x", "db:1=y")
			f.set(allOf(old))
		}, nil, "app:1=x db:1=y kubelet"},
		"two sets with one image hold it once": {func(f *fake) {
			f.bundle(old, "app:1=x", "db:1=y")
			f.bundle(next, "app:1=x", "db:2=z")
			f.set(allOf(old))
			f.set(allOf(next))
		}, []string{next, old}, "app:1=x db:1=y db:2=z kubelet kubelet"},
		"no copy is kept if the set says so": {func(f *fake) {
			f.bundle(old, "app:1=x")
			f.set(lean(old))
		}, nil, "app:1=x(no copy) kubelet"},
		"no copy is kept in a pool that says so": {func(f *fake) {
			f.bundle(old, "app:1=x")
			f.set(allOf(old))
			f.pools = []v1alpha1.UpdatePool{poolOf("n1", v1alpha1.LocalCopyDiscard), poolOf("n2", v1alpha1.LocalCopyKeep)}
		}, nil, "app:1=x(no copy) kubelet"},
		"a node of two pools keeps": {func(f *fake) {
			f.bundle(old, "app:1=x")
			f.set(allOf(old))
			f.pools = []v1alpha1.UpdatePool{poolOf("n1", v1alpha1.LocalCopyDiscard), poolOf("n1", "")}
		}, nil, "app:1=x kubelet"},
		"a set that says Keep counts more than the pool": {func(f *fake) {
			f.bundle(old, "app:1=x")
			s := allOf(old)
			s.Spec.LocalCopy = v1alpha1.LocalCopyKeep
			f.set(s)
			f.pools = []v1alpha1.UpdatePool{poolOf("n1", v1alpha1.LocalCopyDiscard)}
		}, nil, "app:1=x kubelet"},
		"a set that keeps a copy wins": {func(f *fake) {
			f.bundle(old, "app:1=x", "db:1=y")
			f.set(lean(old))
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.PinnedImageSetSpec{Bundle: old,
				Groups: []v1alpha1.ImageGroup{{Name: "g", Images: []v1alpha1.PinnedImage{{Name: "app:1", Digest: "x"}}}}}})
		}, nil, "app:1=x db:1=y(no copy) kubelet"},
		"an image built on the site names its base, and keeps its copy despite Discard": {func(f *fake) {
			f.bundle(old, "app:1=x")
			f.set(lean(old))
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "os"}, Spec: v1alpha1.PinnedImageSetSpec{Bundle: old, LocalCopy: v1alpha1.LocalCopyDiscard,
				Groups: []v1alpha1.ImageGroup{{Name: "os", Images: []v1alpha1.PinnedImage{{Name: "edge:1", Digest: "m", Base: "x", Parts: "osimage-1"}}}}}})
		}, nil, "app:1=x(no copy) edge:1=m(osimage-1 on x of " + old[:8] + ") kubelet"},
		"a tag that moved belongs to the first in rank": {func(f *fake) {
			f.bundle(old, "app:1=x")
			f.bundle(next, "app:1=y")
			f.set(allOf(old))
			f.set(allOf(next))
		}, []string{next, old}, "app:1=y kubelet kubelet"},
		"a selector for other nodes": {func(f *fake) {
			f.bundle(old, "app:1=x")
			s := allOf(old)
			s.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n2"}}
			f.set(s)
		}, nil, ""},
		"an empty selector is every node": {func(f *fake) {
			f.bundle(old, "app:1=x")
			s := allOf(old)
			s.Spec.NodeSelector = &metav1.LabelSelector{}
			f.set(s)
		}, nil, "app:1=x kubelet"},
		"groups of a user": {func(f *fake) {
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.PinnedImageSetSpec{
				Groups: []v1alpha1.ImageGroup{{Name: "g", Images: []v1alpha1.PinnedImage{{Name: "tool:1", Digest: "t"}}}}}})
		}, nil, "tool:1=t"},
		"a set that is being deleted holds nothing": {func(f *fake) {
			f.bundle(old, "app:1=x")
			s := allOf(old)
			now := at(1)
			s.DeletionTimestamp = &now
			f.set(s)
		}, nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake("n1", "n2")
			tc.make(f)
			if got := strings.Join(f.decide(t, "n1", tc.order...), " "); got != tc.want {
				t.Errorf("holds %q, want %q", got, tc.want)
			}
		})
	}
}

// Over any order in which headers appear and disappear, a node keeps the images of a bundle
// that a set still selects. A controller that restarts knows no header at first.
func TestPinsSurviveMissingHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake("n1")
		bundles := []string{dig("a"), dig("b"), dig("c")}
		full := map[string]*bundle.Header{}
		for i, d := range bundles {
			f.bundle(d, fmt.Sprintf("only-%d:1=x%d", i, i), "shared:1=s")
			full[d] = f.headers[d]
			f.set(allOf(d))
		}
		f.headers = map[string]*bundle.Header{}
		had := map[string]bool{}
		for range rapid.IntRange(1, 10).Draw(t, "looks") {
			for _, d := range bundles {
				delete(f.headers, d)
				if rapid.Bool().Draw(t, "known") {
					f.headers[d] = full[d]
				}
			}
			order := rapid.Permutation(bundles).Draw(t, "rank")
			now := f.decide(t, "n1", order...)
			for image := range had {
				if !slices.Contains(now, image) {
					t.Fatalf("%s is lost: %v", image, now)
				}
			}
			for _, image := range now {
				had[image] = true
			}
		}
	})
}

// Which of our own sets may go.
func TestLetGo(t *testing.T) {
	running, older := dig("a"), dig("b")
	done := func(d string, minute int) v1alpha1.ClusterUpdate {
		finished := at(minute)
		return v1alpha1.ClusterUpdate{Spec: v1alpha1.ClusterUpdateSpec{Bundle: d},
			Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone, StartedAt: &finished, FinishedAt: &finished}}
	}
	cases := map[string]struct {
		moves    []v1alpha1.ClusterUpdate
		approved []string
		revoked  []string
		gone     bool
	}{
		"approved, it stays":                                       {nil, []string{older}, nil, false},
		"not approved, and nothing was updated since":              {nil, nil, nil, false},
		"not approved, and a later update has only started":        {[]v1alpha1.ClusterUpdate{done(older, 1), {Spec: v1alpha1.ClusterUpdateSpec{Bundle: running}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseUpdating}}}, nil, nil, false},
		"not approved, and a later update is complete":             {[]v1alpha1.ClusterUpdate{done(older, 1), done(running, 2)}, nil, nil, true},
		"it is what runs":                                          {[]v1alpha1.ClusterUpdate{done(running, 1), done(older, 2)}, nil, nil, false},
		"not approved, and only configurations were changed since": {[]v1alpha1.ClusterUpdate{done(older, 1), done("", 2)}, nil, nil, false},
		"an update wants it":                                       {[]v1alpha1.ClusterUpdate{done(running, 2), {Spec: v1alpha1.ClusterUpdateSpec{Bundle: older}}}, nil, nil, false},
		"revoked before it ever ran":                               {nil, nil, []string{older}, true},
		"revoked while it runs":                                    {[]v1alpha1.ClusterUpdate{done(older, 1)}, nil, []string{older}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake("n1")
			f.set(allOf(older))
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "a-users-own"}, Spec: v1alpha1.PinnedImageSetSpec{Bundle: older, AllOfBundle: true}})
			f.moves = tc.moves
			f.policies = []v1alpha1.TrustPolicy{{Spec: v1alpha1.TrustPolicySpec{RevokedDigests: tc.revoked}}}
			got := f.removableSets(tc.approved)
			if (len(got) == 1) != tc.gone || len(got) > 1 {
				t.Errorf("let go: %d sets, want %v", len(got), tc.gone)
			}
			if len(got) == 1 && got[0].Name != setName(older) {
				t.Errorf("the set of a user is let go")
			}
		})
	}
}

func TestOrder(t *testing.T) {
	a, b, c, old := dig("a"), dig("b"), dig("c"), dig("d")
	f := newFake("n1")
	ok := map[string]approval{}
	for i, d := range []string{a, b, c, old} {
		ok[d] = approval{ok: true}
		f.bundles = append(f.bundles, v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: d[7:9], CreationTimestamp: at(i)}, Spec: v1alpha1.BundleSpec{Digest: d}})
	}
	finished := at(1)
	f.moves = []v1alpha1.ClusterUpdate{
		{Spec: v1alpha1.ClusterUpdateSpec{Bundle: b}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone, FinishedAt: &finished}},
		{Spec: v1alpha1.ClusterUpdateSpec{Bundle: old}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseBlocked, PlanDigest: "p", Blockers: []v1alpha1.Blocker{{Reason: v1alpha1.ReasonOlderThanRunning}}}},
		{Spec: v1alpha1.ClusterUpdateSpec{Bundle: c}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhasePreparing, PlanDigest: "p"}},
		{Spec: v1alpha1.ClusterUpdateSpec{Bundle: a}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhasePlanning}}, // may yet be refused
	}
	if got, want := f.order(ok), []string{c, b, old, a}; !slices.Equal(got, want) {
		t.Errorf("wanted, then what runs, then the newest objects:\n got %v\nwant %v", got, want)
	}
	delete(ok, b)
	if got := f.order(ok); !slices.Contains(got, b) {
		t.Error("the running release lost its place after its approval was withdrawn")
	}
	ok[b] = approval{reason: v1alpha1.ReasonBundleRevoked}
	if got := f.order(ok); slices.Contains(got, b) {
		t.Error("a revoked bundle is in the order of the desired state")
	}
}

func TestObjectName(t *testing.T) {
	for name, tc := range map[string]struct {
		f    mediaBundle
		want string
	}{
		"name and version":        {mediaBundle{name: "refit-demo", version: "1.36.3"}, "refit-demo-1.36.3"},
		"not of DNS":              {mediaBundle{name: "Refit Demo!", version: "1.0.0+a_b"}, "refit-demo-1.0.0-a-b"},
		"nothing left":            {mediaBundle{name: "", version: ""}, "bundle"},
		"taken by another digest": {mediaBundle{name: "taken", version: "1", digest: dig("e")}, "taken-1-eeeeeeee"},
	} {
		if got := tc.f.objectName(map[string]bool{"taken-1": true}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A bundle in every situation: the one sentence that people read about it.
func TestBundleSentence(t *testing.T) {
	expected, other := dig("a"), dig("b")
	medium := func(d, state, message string) v1alpha1.Medium {
		return v1alpha1.Medium{Device: "/dev/sdb", Digest: d, Name: "b", Version: "1.0.0", State: state, Message: message}
	}
	cases := map[string]struct {
		media  []v1alpha1.Medium
		header bool
		reason string
		says   []string
	}{
		"nothing is plugged in":  {nil, false, v1alpha1.ReasonNoSource, []string{"no medium with it is plugged in"}},
		"another one is":         {[]v1alpha1.Medium{medium(other, v1alpha1.MediumFound, "")}, false, v1alpha1.ReasonDigestMismatch, []string{expected, other, "n1 /dev/sdb"}},
		"one that is broken":     {[]v1alpha1.Medium{medium("", v1alpha1.MediumUnreadable, "chunk 7 differs")}, false, v1alpha1.ReasonBundleUnreadable, []string{"n1 /dev/sdb", "chunk 7 differs"}},
		"it, with altered bytes": {[]v1alpha1.Medium{medium(expected, v1alpha1.MediumUnreadable, "blob x at 4096 differs")}, true, v1alpha1.ReasonBundleCorrupt, []string{"blob x at 4096 differs"}},
		"it is":                  {[]v1alpha1.Medium{medium(expected, v1alpha1.MediumCopying, "")}, false, v1alpha1.ReasonCopying, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake("n1")
			if tc.header {
				f.bundle(expected, "app:1=x")
			}
			f.set(allOf(expected))
			f.bundles = []v1alpha1.Bundle{{ObjectMeta: metav1.ObjectMeta{Name: "expected"}, Spec: v1alpha1.BundleSpec{Digest: expected}}}
			f.updates["n1"].Status.Media = tc.media
			media := f.see().foundBundles()
			approvals := map[string]approval{expected: f.approvalOf(expected, f.peopleApproved(), f.trust(), media[expected])}
			st := f.bundleStatus(&f.bundles[0], approvals, media)
			var ready *metav1.Condition
			for i := range st.Conditions {
				if st.Conditions[i].Type == v1alpha1.ConditionReady {
					ready = &st.Conditions[i]
				}
			}
			if ready == nil || ready.Reason != tc.reason || ready.Status != metav1.ConditionFalse {
				t.Fatalf("%+v", ready)
			}
			for _, s := range tc.says {
				if !strings.Contains(ready.Message, s) {
					t.Errorf("%q does not say %q", ready.Message, s)
				}
			}
		})
	}
}

// BenchmarkReconcile computes one reconcile of a large fleet without the API server. It runs
// on every event and must stay below 50 ms at 30,000 nodes. In "first" every node is new, in
// "again" no node has changed.
func BenchmarkReconcile(b *testing.B) {
	var names []string
	for i := range 30000 {
		names = append(names, fmt.Sprintf("node-%05d", i))
	}
	f := newFake(names...)
	images := func(release string) (out []string) {
		for i := range 200 {
			out = append(out, fmt.Sprintf("registry.example/app-%03d:%s=%s", i, release, dig(release+fmt.Sprint(i))))
		}
		return out
	}
	old, next := dig("a"), dig("b")
	f.bundle(old, images("1")...)
	f.bundle(next, images("2")...)
	f.set(allOf(old))
	f.set(allOf(next))
	f.bundles = []v1alpha1.Bundle{{Spec: v1alpha1.BundleSpec{Digest: old}}, {Spec: v1alpha1.BundleSpec{Digest: next}}}
	for _, nu := range f.updates {
		nu.Status.Agent = &v1alpha1.AgentInfo{Address: "10.0.0.1:18740", PublicKey: "key"}
	}
	approvals := map[string]approval{old: {ok: true}, next: {ok: true}}
	compute := func(r *Reconciler) []staleNode {
		f.kinds = &r.kinds
		f.selectors, f.lists, f.counted = nodeindex.Selectors{}, nil, nil
		want := &desiredState{w: f.fleetSnapshot, order: []string{next, old}, approvals: approvals, names: f.bundleNames(), holds: f.newPinSetBuilder([]string{next, old}),
			trust: "trust-x", peers: r.peers.refresh(f.fleetSnapshot, "key")}
		stale, _ := r.stale(f.fleetSnapshot, want)
		for name, data := range want.holds.data {
			f.contents[name] = &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(0)}, Type: v1alpha1.ContentPins, Data: data}
		}
		media := f.foundBundles()
		for i := range f.bundles {
			f.bundleStatus(&f.bundles[i], approvals, media)
		}
		for i := range f.sets {
			f.setStatus(i)
		}
		if err := r.sweep(context.Background(), f.fleetSnapshot, nil); err != nil {
			b.Fatal(err)
		}
		return stale
	}
	f.see()
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if n := len(compute(&Reconciler{})); n != maxWritesPerReconcile {
				b.Fatal(n)
			}
		}
	})
	r := &Reconciler{}
	for {
		all := compute(r)
		if len(all) == 0 {
			break
		}
		for _, s := range all {
			nu := f.updates[s.name].DeepCopy()
			nu.Spec = s.spec
			nu.Status.Pins = &v1alpha1.PinStatus{Content: s.spec.Pins, ImagesTotal: 200, ImagesReady: 200, ImagesPinned: 200, PayloadsTotal: 1, PayloadsReady: 2}
			f.updates[s.name] = nu
		}
		f.see()
	}
	i := 0
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 60 { // new objects with the same content, as from a cache
				i = (i + 7919) % len(f.nodes)
				nu := f.reports[i].DeepCopy()
				f.reports[i], f.updates[nu.Name] = nu, nu
			}
			if n := len(compute(r)); n != 0 {
				b.Fatal(n)
			}
		}
	})
}
