package plans

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Offers are the nodes with what external updaters would move of them. A node that did
// not change is the same pointer as before, if memo knows it.
func (c *ExternalUpdaters) Offers(ctx context.Context, in *updateplan.Input, nodes []*updateplan.Node, memo map[string]*updateplan.Node) ([]*updateplan.Node, error) {
	list, err := c.updaters(ctx)
	if err != nil || len(list) == 0 {
		return nodes, err
	}
	out := make([]*updateplan.Node, len(nodes))
	for i, n := range nodes {
		out[i] = n
		offers := c.offersFor(ctx, in, *n, list)
		if len(offers) == 0 {
			delete(memo, n.Name)
			continue
		}
		with := *n
		with.Offers = offers
		out[i] = Reuse(memo[n.Name], with)
		memo[n.Name] = out[i]
	}
	return out, nil
}

// offersFor asks one updater after the other about what is left of a node; each is shown
// the node as those before it leave it.
func (c *ExternalUpdaters) offersFor(ctx context.Context, in *updateplan.Input, n updateplan.Node, list []*hooks.Registered) []updateplan.Offer {
	left, is, want := updateplan.UncoveredChanges(in, n)
	var out []updateplan.Offer
	for _, r := range list {
		asked := concerning(r.Spec.Paths, left)
		if len(asked) == 0 {
			continue
		}
		o := c.offer(ctx, r, n.Name, asked, is, want)
		for _, path := range o.Moves {
			is[path] = want[path]
		}
		left = updateplan.Differences(is, want)
		out = append(out, o)
	}
	return out
}

// concerning are the paths that an updater is asked about.
func concerning(paths []string, left []model.Change) []string {
	var out []string
	for _, d := range left {
		if len(paths) == 0 || hooks.Below(d.Path, paths) {
			out = append(out, d.Path)
		}
	}
	return out
}

// offer asks an updater what it would move. It is shown the paths that it is asked
// about, and no others.
func (c *ExternalUpdaters) offer(ctx context.Context, r *hooks.Registered, node string, asked []string, is, want updateplan.Fields) updateplan.Offer {
	now, then := pick(is, asked), pick(want, asked)
	req := hooks.Request{Current: machine(Object(node, now)), Desired: machine(Object(node, then))}
	k := question{r.ID(), node, "offer " + text(now) + text(then)}
	x := c.lastAnswer(ctx, r, k, hooks.CanUpdateMachine, req, func(x *cachedAnswer) time.Duration {
		if x.silent != "" {
			return silenceLifetime
		}
		return offerLifetime
	})
	o := updateplan.Offer{Updater: r.Name, Asked: asked, Harmless: x.answer.Harmless, Silent: x.silent, Pending: !x.asked}
	switch {
	case o.Pending || o.Silent != "":
	case x.answer.Failed:
		o.Refused = x.answer.Message
	default:
		o.Moves, o.Silent = movedPaths(x.answer, node, now, then)
	}
	return o
}

// movedPaths are the fields that an answer's patch brings to what is wanted. A patch that
// touches anything else is no answer.
func movedPaths(a hooks.Answer, node string, now, then map[string]string) (paths []string, wrong string) {
	p, ok := a.Patches[capidiff.Machine]
	if !ok {
		return nil, ""
	}
	after, err := p.Apply(Object(node, now))
	if err != nil {
		return nil, "its answer has " + err.Error()
	}
	spec, _ := after["spec"].(map[string]any)
	fields, _ := spec["fields"].(map[string]any)
	for path := range maps.All(then) {
		if have, _ := fields[path].(string); !updateplan.Equal(path, now[path], then[path]) && updateplan.Equal(path, have, then[path]) {
			paths = append(paths, path)
		}
	}
	return sorted(paths), ""
}

func pick(from updateplan.Fields, paths []string) map[string]string {
	out := map[string]string{}
	for _, p := range paths {
		out[p] = from[p]
	}
	return out
}

// text of fields, the same for the same fields.
func text(fields map[string]string) string {
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // strings can be written
	}
	return string(b)
}
