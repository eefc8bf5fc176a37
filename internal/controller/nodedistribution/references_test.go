package nodedistribution

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// site is a cluster in which sets, selectors, labels and bundles change at
// random, and nodes do what their hold lists say.
type site struct {
	*fake
	bundles []string
	images  map[string][]string // of a bundle: name=digest
	nodes   map[string]*store
}

// store is a node's runtime: an image by tag, pinned by us or by others, as a
// runtime reports both in one word.
type store struct {
	tags    map[string]string
	ours    map[string]bool
	foreign map[string]bool
	own     pin.OwnPins
}

func (s *store) present() (out []pin.RuntimeImage) {
	for name, digest := range s.tags {
		out = append(out, pin.RuntimeImage{Tags: []string{name}, Digests: []string{pin.Repository(name) + "@" + digest}, Pinned: s.ours[name] || s.foreign[name]})
	}
	return out
}

// pass is what a node's agent does with a hold list.
func (s *store) pass(want []model.PinSetImage) {
	d := pin.Decide(want, s.present(), s.own)
	for _, i := range append(d.Load, d.Pin...) {
		s.tags[i.Name], s.ours[i.Name], s.own[pin.Key(i)] = i.Digest, true, []string{i.Name}
	}
	d = pin.Decide(want, s.present(), s.own)
	for _, n := range d.Unpin {
		delete(s.ours, n)
	}
	for _, key := range d.Release {
		delete(s.own, key)
	}
}

func newSite(t *rapid.T) *site {
	c := &site{fake: newFake("n1", "n2", "n3"), images: map[string][]string{}, nodes: map[string]*store{}}
	for i := range 3 {
		d := dig(string(rune('a' + i)))
		// Each brings an image of its own, one that all bring, and a tag that moves.
		c.images[d] = []string{fmt.Sprintf("only-%d:1=o%d", i, i), "shared:1=s", fmt.Sprintf("moves:1=m%d", i)}
		c.bundle(d, c.images[d]...)
		c.bundles = append(c.bundles, d)
	}
	for _, n := range c.fake.nodes {
		s := &store{tags: map[string]string{}, ours: map[string]bool{}, foreign: map[string]bool{}, own: pin.OwnPins{}}
		if rapid.Bool().Draw(t, "foreign pin on "+n.Name) {
			s.tags["shared:1"], s.foreign["shared:1"] = "s", true
		}
		c.nodes[n.Name] = s
	}
	return c
}

func (c *site) selector(t *rapid.T) *metav1.LabelSelector {
	switch rapid.IntRange(0, 3).Draw(t, "selector") {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"name": rapid.SampledFrom([]string{"n1", "n2", "nobody"}).Draw(t, "name")}}
	}
	e := metav1.LabelSelectorRequirement{Key: "disk", Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn}).Draw(t, "operator")}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = []string{"large", "other"}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
}

// groups of a set: up to three, with images that other groups and sets may have too.
func (c *site) groups(t *rapid.T) (out []v1alpha1.ImageGroup) {
	digests := map[string]string{"shared:1": "s", "tool:1": "t1", "tool:2": "t2"}
	for i := range rapid.IntRange(0, 3).Draw(t, "groups") {
		g := v1alpha1.ImageGroup{Name: fmt.Sprint("g", i)}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(digests))), 0, 3, rapid.ID).Draw(t, "images of the group") {
			g.Images = append(g.Images, v1alpha1.PinnedImage{Name: name, Digest: digests[name]})
		}
		out = append(out, g)
	}
	return out
}

// change does one thing that people do.
func (c *site) change(t *rapid.T, step int) {
	switch what := rapid.IntRange(0, 5).Draw(t, "change"); {
	case what == 0 || len(c.sets) == 0:
		s := v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set-%02d", step)}}
		s.Spec.NodeSelector = c.selector(t)
		if rapid.Bool().Draw(t, "all of a bundle") {
			s.Spec.Bundle, s.Spec.AllOfBundle = rapid.SampledFrom(c.bundles).Draw(t, "bundle"), true
		}
		s.Spec.Groups = c.groups(t)
		c.set(s)
	case what == 1: // deleted, at first with a finalizer
		i := rapid.IntRange(0, len(c.sets)-1).Draw(t, "set")
		if now := at(1); c.sets[i].DeletionTimestamp == nil {
			c.sets[i].DeletionTimestamp = &now
		} else {
			c.sets = slices.Delete(c.sets, i, i+1)
		}
	case what == 2:
		i := rapid.IntRange(0, len(c.sets)-1).Draw(t, "set")
		if rapid.Bool().Draw(t, "its groups") {
			c.sets[i].Spec.Groups = c.groups(t)
		} else {
			c.sets[i].Spec.NodeSelector = c.selector(t)
		}
	case what == 3: // a node's label
		n := rapid.SampledFrom(c.fake.nodes).Draw(t, "node")
		if _, has := n.Labels["disk"]; has {
			delete(n.Labels, "disk")
		} else {
			n.Labels["disk"] = "large"
		}
	case what == 4: // a node loses an image, or its pin
		s := c.nodes[rapid.SampledFrom(c.fake.nodes).Draw(t, "node").Name]
		if len(s.tags) == 0 {
			return
		}
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(s.tags))).Draw(t, "lost")
		if rapid.Bool().Draw(t, "whole image") {
			delete(s.tags, name)
			delete(s.foreign, name)
		}
		delete(s.ours, name)
	case what == 5: // a controller that has just started knows no header of this one
		d := rapid.SampledFrom(c.bundles).Draw(t, "bundle")
		if _, known := c.headers[d]; known {
			delete(c.headers, d)
		} else {
			c.bundle(d, c.images[d]...)
		}
	}
	c.selectors = nodeindex.Selectors{} // sets that are read anew
}

// wanted is what the sets want on a node, said independently of how it is
// computed: every image of every set that selects it.
func (c *site) wanted(labels map[string]string) map[string][]string {
	out := map[string][]string{}
	for _, s := range c.sets {
		if s.DeletionTimestamp != nil || !selectsBySpec(s.Spec.NodeSelector, labels) {
			continue
		}
		var images []string
		for _, g := range s.Spec.Groups {
			for _, i := range g.Images {
				images = append(images, i.Name+"="+i.Digest)
			}
		}
		if _, known := c.headers[s.Spec.Bundle]; known {
			images = append(images, c.images[s.Spec.Bundle]...)
		}
		for _, i := range images {
			name, digest, _ := strings.Cut(i, "=")
			out[name] = append(out[name], digest)
		}
	}
	return out
}

func selectsBySpec(sel *metav1.LabelSelector, labels map[string]string) bool {
	if sel == nil {
		return true
	}
	for k, v := range sel.MatchLabels {
		if labels[k] != v {
			return false
		}
	}
	for _, e := range sel.MatchExpressions {
		value, has := labels[e.Key]
		listed := has && slices.Contains(e.Values, value)
		if !map[metav1.LabelSelectorOperator]bool{metav1.LabelSelectorOpExists: has, metav1.LabelSelectorOpDoesNotExist: !has,
			metav1.LabelSelectorOpIn: listed, metav1.LabelSelectorOpNotIn: !listed}[e.Operator] {
			return false
		}
	}
	return true
}

// Over any history of sets, selectors, labels, lost images and headers, three rules hold
// after a pass of the agent. An image that a set selects for a node is there and pinned. One
// that no set selects has no pin of refit. Foreign pins are never removed.
func TestReferencesAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newSite(t)
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			c.change(t, step)
			order := rapid.Permutation(c.bundles).Draw(t, "rank")
			for _, n := range c.fake.nodes {
				s := c.nodes[n.Name]
				foreign := len(s.foreign)
				c.decide(t, n.Name, order...)
				var list model.PinSet
				if content := c.contents[c.updates[n.Name].Spec.Pins]; content != nil {
					if err := json.Unmarshal([]byte(content.Data), &list); err != nil {
						t.Fatal(err)
					}
				}
				s.pass(list.Images)
				// Without the header of a bundle, its images stay pinned, selected or not.
				all := len(c.headers) == len(c.bundles)
				wanted := c.wanted(n.Labels)
				for name, digests := range wanted {
					if all && !slices.Contains(digests, s.tags[name]) {
						t.Fatalf("node %s wants %s as one of %v and has %q", n.Name, name, digests, s.tags[name])
					}
					if s.tags[name] == "" || !s.ours[name] && !s.foreign[name] {
						t.Fatalf("node %s wants %s: there %q, pinned by us %v", n.Name, name, s.tags[name], s.ours[name])
					}
				}
				for name := range s.ours {
					held := slices.ContainsFunc(list.Images, func(i model.PinSetImage) bool { return i.Name == name })
					if _, is := wanted[name]; !is && (all || !held) {
						t.Fatalf("node %s: nothing wants %s and our pin is on it", n.Name, name)
					}
				}
				if len(s.foreign) != foreign {
					t.Fatalf("node %s: a pin of others is gone", n.Name)
				}
			}
		}
	})
}

// Over any history of updates, the set of a release becomes removable only after a later
// update of the whole cluster is complete. The sets of the running release, of a pending
// update and of an approved bundle are never removable.
func TestOnlyACompleteSuccessorReleasesSets(t *testing.T) {
	phases := []string{v1alpha1.PhaseUpdating, v1alpha1.PhaseBlocked, v1alpha1.PhaseDone}
	rapid.Check(t, func(t *rapid.T) {
		f := newFake("n1")
		bundles := []string{dig("a"), dig("b"), dig("c"), dig("d")}
		for _, d := range bundles {
			f.set(allOf(d))
		}
		approved := rapid.SliceOfDistinct(rapid.SampledFrom(bundles), rapid.ID).Draw(t, "approved")
		type run struct {
			bundle string
			done   int // minute, 0 for not yet
			whole  bool
		}
		var runs []run
		for i := range rapid.IntRange(0, 6).Draw(t, "updates") {
			m := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("u", i)}}
			m.Spec.Bundle = rapid.SampledFrom(bundles).Draw(t, "bundle")
			m.Status.Phase = rapid.SampledFrom(phases).Draw(t, "phase")
			r := run{bundle: m.Spec.Bundle, whole: true}
			if rapid.IntRange(0, 3).Draw(t, "part of the cluster") == 0 {
				m.Spec.Nodes, r.whole = []string{"n1"}, false
			}
			if m.Status.Phase == v1alpha1.PhaseDone {
				r.done = i + 1
				began, ended := at(i), at(i+1)
				m.Status.StartedAt, m.Status.FinishedAt = &began, &ended
			}
			f.moves = append(f.moves, m)
			runs = append(runs, r)
		}
		last := run{}
		for _, r := range runs {
			if r.whole && r.done > last.done {
				last = r
			}
		}
		for _, s := range f.removableSets(approved) {
			d := s.Spec.Bundle
			switch {
			case slices.Contains(approved, d):
				t.Fatalf("%s is approved", d)
			case last.done == 0:
				t.Fatalf("%s goes, and no update of the whole cluster was ever complete", d)
			case last.bundle == d:
				t.Fatalf("%s runs", d)
			}
			for _, r := range runs {
				if r.bundle == d && r.done == 0 {
					t.Fatalf("an update wants %s", d)
				}
			}
		}
	})
}
