package gatefacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxChecked objects of one check are read, in pages of pageSize.
	maxChecked = 500
	pageSize   = 100
	// healthPatience is how long all health checks of a pool may take.
	healthPatience = 10 * time.Second
	// failedFor is how long a failure counts before it is asked again. A check that passes is
	// asked again for each start of a node.
	failedFor = 3 * time.Second
	// maxError is how much of an error a message has.
	maxError = 400
)

// unwell is what the health checks of a pool found, and when.
type unwell struct {
	generation int64
	at         time.Time
	found      []model.Blocker
}

// Unwell evaluates the health checks of a pool for an update that moves its nodes, and returns
// why they do not pass. A risk that is accepted for the gate is accepted here too.
func (g *Gatherer) Unwell(ctx context.Context, p *v1alpha1.UpdatePool, u *v1alpha1.ClusterUpdate, now time.Time) []model.Blocker {
	accepted := func(a v1alpha1.AcceptedRisk) bool { return a.Check == gate.HealthChecks && a.Until.After(now) }
	if len(p.Spec.HealthChecks) == 0 || slices.ContainsFunc(u.Spec.AcceptedRisks, accepted) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := string(p.UID)
	if last, known := g.unwell[key]; known && last.generation == p.Generation && !now.Before(last.at) && now.Sub(last.at) < failedFor {
		return last.found
	}
	delete(g.unwell, key)
	found := EvaluateChecks(ctx, g.Live, p)
	if len(found) > 0 {
		if g.unwell == nil {
			g.unwell = map[string]unwell{}
		}
		g.unwell[key] = unwell{p.Generation, now, found}
	}
	return found
}

// fillHealth asks the health checks of the plan's pools.
func (g *Gatherer) fillHealth(ctx context.Context, w Snapshot, in *gate.Input, age time.Duration) error {
	var pools []*v1alpha1.UpdatePool
	key := ""
	for i := range w.Pools {
		if p := &w.Pools[i]; len(p.Spec.HealthChecks) > 0 {
			pools = append(pools, p.DeepCopy()) // it is read in the background
			key += fmt.Sprintf("%s %d,", p.UID, p.Generation)
		}
	}
	if len(pools) == 0 {
		return nil
	}
	all, err := g.looks.health.get(ctx, w.Now, age, key, func(ctx context.Context) (map[string][]model.Blocker, error) {
		out := map[string][]model.Blocker{}
		for _, p := range pools {
			out[p.Name] = EvaluateChecks(ctx, g.Live, p)
		}
		return out, nil
	})
	for _, p := range pools {
		if w.Moves.pools[p.Name] {
			in.Health = append(in.Health, all[p.Name]...)
		}
	}
	return err
}

// EvaluateChecks returns why health checks of a pool do not pass.
func EvaluateChecks(ctx context.Context, live client.Reader, p *v1alpha1.UpdatePool) []model.Blocker {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	var out []model.Blocker
	for i := range p.Spec.HealthChecks {
		if v := evaluateCheck(ctx, live, &p.Spec.HealthChecks[i]); v != nil {
			v.Object = "UpdatePool/" + p.Name
			v.Message = "pool " + p.Name + ": health check " + p.Spec.HealthChecks[i].Name + ": " + v.Message
			out = append(out, *v)
		}
	}
	return out
}

// Fixes of a health check that does not pass.
const (
	fixFailed    = "repair what the check names, or `refit accept " + gate.HealthChecks + " --reason TEXT --until DURATION`"
	fixInvalid   = "correct spec.healthChecks of the UpdatePool"
	fixForbidden = "create a ClusterRole with the label " + v1alpha1.LabelHealthChecks + `: "true" that grants get and list of the kind`
)

func failed(message string) *model.Blocker {
	return &model.Blocker{Reason: v1alpha1.ReasonHealthCheckFailed, Waiting: true, Message: message, Fix: fixFailed}
}

func invalid(message string) *model.Blocker {
	return &model.Blocker{Reason: v1alpha1.ReasonHealthCheckInvalid, Message: message, Fix: fixInvalid}
}

func evaluateCheck(ctx context.Context, live client.Reader, c *v1alpha1.HealthCheck) *model.Blocker {
	cond, err := compile(c.Expression)
	if err != nil {
		return invalid(text.Truncate(err.Error(), maxError))
	}
	if why := refused(&c.Objects); why != "" {
		return invalid(why)
	}
	objects, v := readChecked(ctx, live, &c.Objects)
	if v != nil {
		return v
	}
	bad, why, err := failing(ctx, cond, objects, c.Message)
	switch {
	case err != nil:
		return invalid(text.Truncate(err.Error(), maxError))
	case len(bad) == 0:
		return nil
	case why == "":
		why = "the expression is not true: " + text.Truncate(c.Expression, maxError)
	}
	return failed(c.Objects.Kind + " " + text.FirstOf(bad, 3, ", ") + ": " + why)
}

// failing names the objects for which a condition does not hold, with the check's message and
// the first error about an object. err is about the expression itself.
func failing(ctx context.Context, cond *condition, objects []unstructured.Unstructured, message string) (bad []string, why string, err error) {
	why = message
	for i := range objects {
		ok, err := cond.holds(ctx, objects[i].Object)
		switch {
		case errors.Is(err, errInvalid):
			return nil, "", err
		case ok:
			continue
		case err != nil && len(bad) == 0:
			why = strings.TrimPrefix(message+" ("+text.Truncate(err.Error(), maxError)+")", " ")
		}
		bad = append(bad, nameOf(&objects[i]))
	}
	return bad, why, nil
}

// refused says why objects may not be checked. The API refuses the same. A check that fails and
// passes tells its author about an object, so what only the controller may read is not for it.
func refused(o *v1alpha1.CheckedObjects) string {
	switch {
	case o.Kind == "Secret":
		return "a health check reads no Secret"
	case o.Kind == "ConfigMap" && (o.Namespace == "" || strings.HasPrefix(o.Namespace, "refit-")):
		return "a health check reads no ConfigMap of refit's namespaces: name another namespace"
	}
	return ""
}

// readChecked reads the objects of a check.
func readChecked(ctx context.Context, live client.Reader, o *v1alpha1.CheckedObjects) ([]unstructured.Unstructured, *model.Blocker) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return nil, invalid(err.Error())
	}
	kind := gv.WithKind(o.Kind)
	if o.Name != "" {
		var one unstructured.Unstructured
		one.SetGroupVersionKind(kind)
		if err := live.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, &one); err != nil {
			return nil, unread(o, err)
		}
		return []unstructured.Unstructured{one}, nil
	}
	opts := []client.ListOption{client.InNamespace(o.Namespace), client.Limit(pageSize)}
	if o.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(o.Selector)
		if err != nil {
			return nil, invalid(err.Error())
		}
		opts = append(opts, client.MatchingLabelsSelector{Selector: selector})
	}
	all, more, err := listChecked(ctx, live, gv.WithKind(o.Kind+"List"), opts)
	switch {
	case err != nil:
		return nil, unread(o, err)
	case more:
		return nil, invalid(fmt.Sprintf("it selects more than %d objects; select fewer, or name one", maxChecked))
	case len(all) == 0:
		return nil, failed("there is no " + o.Kind + " that it selects")
	}
	return all, nil
}

// listChecked lists objects page by page; more is true if there are too many.
func listChecked(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, opts []client.ListOption) (all []unstructured.Unstructured, more bool, err error) {
	for next := ""; ; {
		var page unstructured.UnstructuredList
		page.SetGroupVersionKind(kind)
		if err := live.List(ctx, &page, append(opts, client.Continue(next))...); err != nil {
			return nil, false, err
		}
		all = append(all, page.Items...)
		next = page.GetContinue()
		if more = len(all) > maxChecked || len(all) == maxChecked && next != ""; more || next == "" {
			return all, more, nil
		}
	}
}

// unread says why objects cannot be read.
func unread(o *v1alpha1.CheckedObjects, err error) *model.Blocker {
	says := text.Truncate(err.Error(), maxError)
	switch {
	case apierrors.IsForbidden(err):
		return &model.Blocker{Reason: v1alpha1.ReasonHealthCheckForbidden, Message: "the controller may not read " + o.Kind + " of " + o.APIVersion + ": " + says, Fix: fixForbidden}
	case meta.IsNoMatchError(err), o.Name == "" && apierrors.IsNotFound(err):
		return invalid("the API server has no kind " + o.Kind + " in " + o.APIVersion)
	case apierrors.IsNotFound(err):
		return failed("there is no " + o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
	}
	return failed(o.Kind + " cannot be read: " + says)
}

func nameOf(o *unstructured.Unstructured) string {
	return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
