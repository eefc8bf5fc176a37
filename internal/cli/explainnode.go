package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// explainNode prints the effect of a drain on each pod of a node. It requests no
// eviction: the budgets show what the Eviction API would refuse.
func (o *options) explainNode(ctx context.Context, name string) error {
	c, now, err := o.Reader()
	if err != nil {
		return err
	}
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return console.UsageError(fmt.Errorf("node %q not found; see kubectl get nodes", name))
		}
		return inputs.ListError(err)
	}
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return inputs.ListError(err)
	}
	u := rolloutfacts.ChooseUpdate(list.Items)
	var opts *v1alpha1.DrainOptions
	var before []v1alpha1.PodDrain
	if u != nil && u.Status.Phase != v1alpha1.PhaseDone {
		opts = u.Spec.Drain
		for _, d := range u.Status.Drains {
			if d.Node == name {
				before = d.Pods
			}
		}
	}
	rules := clusterfacts.RulesOf(opts)
	pods, err := clusterfacts.PodsOnWithBudgets(ctx, c, name, rules)
	if err != nil {
		return err
	}
	d := drain.DecideWith(pods, rules.Options())
	v := drainView(&n, d, drain.PredictRows(name, d, now), before)
	if opts != nil {
		v.Options = "ClusterUpdate " + u.Name + " " + updatecmd.DrainWords(opts)
	}
	return render.Drain(o.Out, o.output, v)
}

func drainView(n *corev1.Node, d drain.Decision, rows []drain.Row, before []v1alpha1.PodDrain) render.DrainView {
	v := render.DrainView{APIVersion: "refit.dev/drain/v1", Kind: "Drain", Node: n.Name, Pods: rows}
	since := map[string]time.Time{}
	for _, p := range before {
		if p.Since != nil {
			since[p.Pod+" "+p.Fate] = p.Since.Time
		}
	}
	refused := 0
	for i := range v.Pods {
		if v.Pods[i].Since.IsZero() {
			v.Pods[i].Since = since[v.Pods[i].Pod+" "+v.Pods[i].Fate]
		}
		if v.Pods[i].Fate == drain.Refused {
			refused++
		}
	}
	doing := "would be drained"
	if _, started := n.Annotations[v1alpha1.AnnotationUpdating]; started {
		doing = "is being updated"
	}
	v.Headline = fmt.Sprintf("Node %s %s: %s to evict (%d blocked), %s", n.Name, doing, text.Count(d.Left(), "pod"), refused, stays(len(d.Skipped)))
	v.Held = changedSettings(n.Annotations[v1alpha1.AnnotationInterlock])
	return v
}

// stays is the end of the headline: how many pods a drain leaves on the node.
func stays(n int) string {
	if n == 1 {
		return "1 pod stays."
	}
	return fmt.Sprintf("%d pods stay.", n)
}

// changedSettings lists the settings that refit changed on a node for the time of its update.
func changedSettings(record string) []string {
	var held map[string]struct {
		Before *string `json:"before"`
		Set    string  `json:"set"`
	}
	if record == "" || json.Unmarshal([]byte(record), &held) != nil {
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(held)) {
		before := "was not set before"
		if b := held[key].Before; b != nil {
			before = "was " + *b + " before"
		}
		out = append(out, fmt.Sprintf("%s is %s until the node is updated; it %s", key, held[key].Set, before))
	}
	return out
}
