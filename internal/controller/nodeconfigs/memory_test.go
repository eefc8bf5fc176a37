package nodeconfigs

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// targetSummary is the result in words: what every node gets, and the state of NodeConfigs.
type targetSummary struct {
	Nodes            []string
	Matched, Current map[string]int32
	Problems         map[string]string
}

func summarize(d *nodeTargets) targetSummary {
	t := targetSummary{Matched: d.matched, Current: d.current, Problems: map[string]string{}}
	for _, r := range d.byNode {
		t.Nodes = append(t.Nodes, fmt.Sprint(r.name, len(r.verdicts)))
	}
	for name, v := range d.problem {
		t.Problems[name] = v.Reason
	}
	return t
}

// The cached values of nodes are those that a comparison of all nodes would give, after any
// change: of labels, observed fields, NodeConfigs, a ConfigMap of one, or the nodes
// themselves.
func TestAnOutcomeFromMemoryIsTheOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &configSnapshot{now: time.Now(), sources: map[string]nodeconfig.Source{}}
		file := func(name, text string) nodeconfig.Source {
			return nodeconfig.Source{Name: name, Files: []model.ConfigFile{{Path: "/etc/" + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "path"), Mode: 0o644, Data: []byte(text)}}}
		}
		for _, name := range []string{"one", "two"} {
			c := v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
			c.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{name: "y"}}
			w.configs, w.sources[name] = append(w.configs, c), file(name, "x")
		}
		add := func(name string) {
			w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"one": "y"}}})
			w.reports = append(w.reports, &v1alpha1.NodeUpdate{})
			w.edition++
		}
		for i := range 4 {
			add(fmt.Sprint("n", i))
		}
		var m matchCache
		for round := range 8 {
			i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				w.nodes[i] = w.nodes[i].DeepCopy()
				w.nodes[i].Labels = map[string]string{rapid.SampledFrom([]string{"one", "two"}).Draw(t, "label"): "y", "two": rapid.SampledFrom([]string{"y", "n"}).Draw(t, "two")}
			case 1:
				if r := w.decide(&matchCache{}).byNode[i]; r != nil { // the node becomes as it is wanted
					w.reports[i] = &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: r.config.Fields()}}}
				}
			case 2:
				w.configs[0].Generation++
				w.configs[0].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{rapid.SampledFrom([]string{"one", "two"}).Draw(t, "selector"): "y"}}
			case 3: // no generation changes
				w.sources["one"] = file("one", fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "text")))
			case 4:
				add(fmt.Sprint("m", round))
			case 5:
				w.nodes, w.reports = append(w.nodes[:i:i], w.nodes[i+1:]...), append(w.reports[:i:i], w.reports[i+1:]...)
				w.edition++
				if len(w.nodes) == 0 {
					add("last")
				}
			}
			if d := cmp.Diff(summarize(w.decide(&matchCache{})), summarize(w.decide(&m))); d != "" {
				t.Fatalf("round %d (-anew +remembered):\n%s", round, d)
			}
		}
	})
}
