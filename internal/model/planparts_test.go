package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// somePlan draws plans of up to three hops.
func somePlan(t *rapid.T) Plan {
	p := someHop(t)
	for range rapid.IntRange(0, 2).Draw(t, "then") {
		p.Then = append(p.Then, someHop(t))
	}
	return p
}

// someHop draws plans whose nodes share steps, have equal ones, or their own.
func someHop(t *rapid.T) Plan {
	text := rapid.StringMatching(`[a-z0-9."<\\]{0,12}`)
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []Step {
		var out []Step
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			s := Step{ID: text.Draw(t, "id"), By: ByAgent, To: text.Draw(t, "to")}
			if rapid.Bool().Draw(t, "params") {
				s.Params = map[string]string{"path": text.Draw(t, "path")}
				s.Changes = []Change{{Path: text.Draw(t, "change"), To: "x"}}
			}
			out = append(out, s)
		}
		return out
	}), 1, 4).Draw(t, "shapes")
	p := Plan{Version: PlanVersion, Target: Target{Bundle: text.Draw(t, "bundle"), Version: "1.0.0"}, Nodes: []NodePlan{}}
	for i := range rapid.IntRange(0, 40).Draw(t, "nodes") {
		s := steps[rapid.IntRange(0, len(steps)-1).Draw(t, "shape")]
		if rapid.Bool().Draw(t, "copy") {
			s = append([]Step(nil), s...)
		}
		p.Nodes = append(p.Nodes, NodePlan{Node: fmt.Sprintf("%s%d", text.Draw(t, "name"), i), Pool: text.Draw(t, "pool"), Wave: rapid.IntRange(0, 2).Draw(t, "wave"), From: "v1", To: "v2", Steps: s})
	}
	return p
}

func name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "plan-" + hex.EncodeToString(sum[:])[:40]
}

// The text of a plan is its JSON, however it was put together: a digest that a
// person approved before stays the digest of that plan.
func TestPlanTextIsItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := somePlan(t)
		want, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(p.JSON())); d != "" {
			t.Fatal(d)
		}
		sum := sha256.Sum256(want)
		if got := p.Digest(); got != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Fatalf("digest %s of another text", got)
		}
	})
	if got := string((Plan{}).JSON()); got != `{"version":"","target":{"bundle":"","name":"","version":""},"nodes":null}` {
		t.Errorf("the empty plan: %s", got)
	}
}

// read(write(x)) = x, and no text is longer than it may be.
func TestStoredPlanIsThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := somePlan(t)
		limit := rapid.IntRange(300, 4000).Draw(t, "limit")
		text, parts := p.Store(limit, name)
		if len(p.JSON()) <= limit && (text != string(p.JSON()) || len(parts) != 0) {
			t.Fatalf("a plan that fits is not stored as it is")
		}
		named := map[string]bool{}
		for _, n := range PlanParts(text) {
			named[n] = true
		}
		for n, part := range parts {
			if !named[n] {
				t.Fatalf("part %s is not named", n)
			}
			if len(part) > max(limit, 800) { // one node's share may be longer than the limit
				t.Fatalf("a part of %d bytes, %d are allowed", len(part), limit)
			}
		}
		got, err := LoadPlan(text, func(n string) (string, error) { return parts[n], nil })
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest() != p.Digest() {
			t.Fatalf("another plan:\n%s\n%s", got.JSON(), p.JSON())
		}
	})
}

func thousands(n int) Plan {
	steps := make([]Step, 6)
	for i := range steps {
		steps[i] = Step{ID: fmt.Sprint("step-", i), Updater: "kubeadm", Verb: "node", By: ByAgent, From: "v1.35.4", To: "v1.36.3", Disruption: DisruptionRestart,
			Changes: []Change{{Path: "kubernetes/kubelet", From: "v1.35.4", To: "v1.36.3"}}}
	}
	p := Plan{Version: PlanVersion, Target: Target{Bundle: "sha256:0"}}
	for i := range n {
		p.Nodes = append(p.Nodes, NodePlan{Node: fmt.Sprintf("node-%05d", i), Pool: "workers", Role: RoleWorker, From: "v1.35.4", To: "v1.36.3", Steps: steps})
	}
	return p
}

// The plan of thirty thousand nodes fits few objects, because what nodes share is
// said once.
func TestPlanOfThirtyThousandNodes(t *testing.T) {
	p := thousands(30000)
	text, parts := p.Store(PartLimit, name)
	if len(parts) != 2 || len(text) > 1000 {
		t.Errorf("%d parts, named in %d bytes", len(parts), len(text))
	}
	for _, part := range parts {
		if len(part) > PartLimit {
			t.Errorf("a part of %d bytes", len(part))
		}
	}
}

func TestBrokenPartsAreRefused(t *testing.T) {
	p := thousands(100)
	text, parts := p.Store(3000, name)
	for what, read := range map[string]func(string) (string, error){
		"a part that is not there":            func(string) (string, error) { return "", errors.New("not found") },
		"a part that is no JSON":              func(string) (string, error) { return "{", nil },
		"a part without nodes":                func(string) (string, error) { return "{}", nil },
		"a part with a shape that is nowhere": func(string) (string, error) { return `{"runs":[{"shape":1,"nodes":["a"]}]}`, nil },
	} {
		if _, err := LoadPlan(text, read); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if len(parts) < 2 {
		t.Errorf("only %d parts", len(parts))
	}
}

// The hops of a plan are found by their bundles, and none has hops of its own.
func TestHopsOfAPlan(t *testing.T) {
	hop := func(bundle string) Plan {
		return Plan{Version: PlanVersion, Target: Target{Bundle: bundle}, Nodes: []NodePlan{{Node: "n", To: bundle}}}
	}
	p := hop("a")
	p.Then = []Plan{hop("b"), hop("c")}
	var order []string
	for _, h := range p.Hops() {
		order = append(order, h.Target.Bundle)
		if len(h.Then) > 0 {
			t.Errorf("hop %s has hops", h.Target.Bundle)
		}
		if got, ok := p.Hop(h.Target.Bundle); !ok || got.Nodes[0].To != h.Target.Bundle {
			t.Errorf("hop %s: %v %v", h.Target.Bundle, ok, got)
		}
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, order); d != "" {
		t.Error(d)
	}
	if _, ok := p.Hop("d"); ok {
		t.Error("a hop that the plan does not have")
	}
	if one := hop("a"); one.Digest() == p.Digest() {
		t.Error("the digest does not cover the further hops")
	}
}

func BenchmarkDigestOf30000(b *testing.B) {
	p := thousands(30000)
	for b.Loop() {
		p.Digest()
	}
}
