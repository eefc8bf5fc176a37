package clusterapi

import (
	"context"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// When Cluster API calls again, in seconds.
const (
	retrySoon    = 2  // a change has just started, or a short failure
	retryMoving  = 10 // a node moves
	retryWaiting = 30 // waits for something else
)

// progress is the state of one machine's update, to answer and to record.
type progress struct {
	done, failed bool
	// moving is true while the machine changes, so Machine health checks must skip it.
	moving  bool
	updater string
	verdict model.Blocker
	retry   int32
}

func waiting(reason, message string, retry int32) progress {
	return progress{verdict: model.Blocker{Reason: reason, Message: message, Waiting: true}, retry: retry}
}

// updateMachine continues the update of one machine from the state in API objects. The body
// only identifies the machine; refit reads what it wants from the API server.
func (s *Server) updateMachine(ctx context.Context, r hooks.Request) hooks.Answer {
	asked := &unstructured.Unstructured{Object: r.Desired[capidiff.Machine]}
	m, err := s.readMachine(ctx, asked.GetNamespace(), asked.GetName())
	switch {
	case apierrors.IsNotFound(err):
		return inProgress("the Machine does not exist any more", retryWaiting)
	case err != nil:
		s.report(ctx, "read the Machine", err)
		return inProgress("the API server of the management cluster failed to read the Machine", retrySoon)
	}
	p := poolOf(m.Unstructured)
	if err := s.lookUpPool(ctx, &p); err != nil {
		s.report(ctx, "read the pool", err)
		return inProgress("the API server of the management cluster failed to read the settings of "+p.String(), retrySoon)
	}
	if why := notCurrent(m, machine{asked}); why != "" {
		return inProgress(why, retrySoon)
	}
	return s.recordProgress(ctx, &p, m, s.advance(ctx, &p, m, r))
}

func inProgress(message string, retry int32) hooks.Answer {
	return hooks.Answer{Message: text.Truncate(message, maxMessage), RetryAfter: retry}
}

// notCurrent returns why a request is not about the Machine's current target, "" if it is.
func notCurrent(m, asked machine) string {
	switch {
	case m.GetDeletionTimestamp() != nil:
		return "the Machine is being deleted"
	case !m.inUpdate():
		return "the Machine is not marked for an in-place update"
	case !updateplan.Same(m.version(), asked.version()):
		return "the Machine has changed since"
	}
	return ""
}

// advance calls the updaters that own a part of the change in their order; each starts when all
// before it are done.
func (s *Server) advance(ctx context.Context, p *pool, m machine, r hooks.Request) progress {
	plan := &v1alpha1.InPlacePlan{}
	if err := s.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.planName()}, plan); client.IgnoreNotFound(err) != nil {
		s.report(ctx, "read the InPlacePlan", err)
		return waiting(v1alpha1.ReasonUpdating, "the API server of the management cluster failed to read the plan of "+p.String(), retrySoon)
	}
	// The plan lists the machine before anything changes, so the sweeper finds it after a crash.
	if err := s.listMachine(ctx, p, plan, m); err != nil {
		s.report(ctx, "list the machine", err)
		return waiting(v1alpha1.ReasonUpdating, "the plan of "+p.String()+" cannot be written", retrySoon)
	}
	external, err := s.externals(ctx)
	if err != nil {
		s.report(ctx, "list Updaters", err)
		return waiting(v1alpha1.ReasonUpdating, "the API server of the management cluster failed to list Updaters", retrySoon)
	}
	// The version is checked even if it was not claimed: done means observed.
	_, claimed := claimOf(plan.Status.Claims, updaterKubernetes)
	if x := s.moveNode(ctx, p, m, claimed); !x.done {
		return x
	}
	if x := s.callExternals(ctx, external, plan.Status.Claims, m, r); !x.done {
		return x
	}
	return s.checkRegistered(plan.Status.Claims, external)
}

// callExternals calls the external updaters that own a part of the change, one after the other,
// with the stored objects.
func (s *Server) callExternals(ctx context.Context, list []external, claims []v1alpha1.InPlaceClaim, m machine, r hooks.Request) progress {
	var desired hooks.Objects
	for _, e := range list {
		paths, ours := claimOf(claims, e.Name)
		if !ours {
			continue
		}
		if desired == nil {
			var err error
			if desired, err = s.storedObjects(ctx, m, r); err != nil {
				return waiting(v1alpha1.ReasonUpdating, err.Error(), retrySoon)
			}
		}
		if x := s.callExternal(ctx, e, hooks.Request{Settings: r.Settings, Desired: desired}, paths); !x.done {
			return x
		}
	}
	return progress{done: true}
}

// claimOf returns the paths that an updater claimed. If the plan was deleted, every updater is
// called, and updaters check the machine themselves.
func claimOf(claims []v1alpha1.InPlaceClaim, updater string) (paths []string, ours bool) {
	for _, c := range claims {
		if c.Updater == updater {
			return c.Paths, true
		}
	}
	return nil, len(claims) == 0
}

// checkRegistered waits if the updater of a part of the change is no longer registered: that
// part is not done.
func (s *Server) checkRegistered(claims []v1alpha1.InPlaceClaim, external []external) progress {
	for _, c := range claims {
		known := c.Updater == updaterKubernetes || c.Updater == updaterNewMachines
		if !known && !slices.ContainsFunc(external, isNamed(c.Updater)) {
			x := waiting(v1alpha1.ReasonUpdaterUnreachable, "Updater "+c.Updater+", which claimed "+strings.Join(c.Paths[:min(len(c.Paths), maxNamed)], ", ")+", is no longer registered", retryWaiting)
			x.updater, x.verdict.Fix = c.Updater, "register it again"
			return x
		}
	}
	return progress{done: true}
}

// moveNode has refit in the machine's own cluster update the node.
func (s *Server) moveNode(ctx context.Context, p *pool, m machine, claimed bool) progress {
	w := workloadNode{Machine: m.key(), UID: string(m.GetUID()), Node: m.node(), Version: m.version(), ControlPlane: m.controlPlane(), Unclaimed: !claimed}
	switch {
	case w.Version == "":
		return progress{done: true} // no version is wanted
	case w.Node == "":
		return withUpdater(waiting(v1alpha1.ReasonNodeNotFound, "the Machine has no Node yet", retryMoving), updaterKubernetes)
	}
	secret, err := s.kubeconfig(ctx, p)
	if err != nil {
		s.report(ctx, "read the kubeconfig of cluster "+p.Cluster, err)
		x := waiting(v1alpha1.ReasonClusterUnreachable, "Secret "+p.Namespace+"/"+p.kubeconfigSecret()+" with the kubeconfig of cluster "+p.Cluster+" cannot be read: "+string(apierrors.ReasonForError(err)), retryMoving)
		x.verdict.Fix = "create it, and a Role with which refit-system/refit-controller may get it"
		return withUpdater(x, updaterKubernetes)
	}
	c, err := s.workloadClient(secret)
	if err != nil {
		return withUpdater(waiting(v1alpha1.ReasonClusterUnreachable, "Secret "+secret.Namespace+"/"+secret.Name+" with the kubeconfig of cluster "+p.Cluster+" cannot be used: "+err.Error(), retryWaiting), updaterKubernetes)
	}
	reply, err := moveInWorkload(ctx, c, w)
	if err != nil {
		s.report(ctx, "ask cluster "+p.Cluster, err)
		reply = unreachableCluster(p.Cluster, err)
		reply.Moving = true // a control plane that moves is unavailable, which is no failure
	}
	x := progress{done: reply.Done, failed: reply.Failed, moving: reply.Moving, verdict: reply.Verdict, retry: retryMoving}
	if !reply.Moving {
		x.retry = retryWaiting
	}
	return withUpdater(x, updaterKubernetes)
}

func withUpdater(x progress, updater string) progress {
	x.updater = updater
	return x
}

// settingPaths is the setting with the paths that an external updater claimed.
const settingPaths = "refit.dev/paths"

// callExternal calls an external updater. Without an answer its part is not done.
func (s *Server) callExternal(ctx context.Context, e external, r hooks.Request, paths []string) progress {
	settings := map[string]string{settingPaths: strings.Join(paths, ",")}
	for k, v := range r.Settings {
		settings[k] = v
	}
	a, silent := e.Ask(ctx, hooks.UpdateMachine, hooks.Request{Settings: settings, Desired: r.Desired})
	switch {
	case silent != "":
		x := withUpdater(waiting(v1alpha1.ReasonUpdaterUnreachable, silent, retryMoving), e.Name)
		x.moving = true // it may still change the machine
		return x
	case a.Failed:
		return progress{failed: true, updater: e.Name, verdict: model.Blocker{Reason: v1alpha1.ReasonStepFailed, Message: "Updater " + e.Name + ": " + a.Message}}
	case a.RetryAfter > 0:
		x := withUpdater(waiting(v1alpha1.ReasonUpdating, "Updater "+e.Name+": "+a.Message, min(a.RetryAfter, retryWaiting)), e.Name)
		x.moving = true
		return x
	}
	return progress{done: true}
}

// listMachine adds the machine to the plan's list.
func (s *Server) listMachine(ctx context.Context, p *pool, plan *v1alpha1.InPlacePlan, m machine) error {
	for _, x := range plan.Status.Machines {
		if x.Name == m.GetName() && x.UID == string(m.GetUID()) {
			return nil
		}
	}
	now := metav1.NewTime(s.Now())
	return s.recordMachine(ctx, p, m.GetName(), &v1alpha1.InPlaceMachine{Name: m.GetName(), UID: string(m.GetUID()), Node: m.node(),
		Reason: v1alpha1.ReasonUpdating, Message: "Cluster API has requested its update", Since: &now})
}

// recordProgress records the machine's progress, sets or removes the hold for Machine health
// checks, and answers. Done comes last, when no hold and no entry is left.
func (s *Server) recordProgress(ctx context.Context, p *pool, m machine, x progress) hooks.Answer {
	if err := s.setRemediationHold(ctx, m, x.moving); err != nil {
		s.report(ctx, "annotate the Machine for Machine health checks", err)
		return inProgress("the Machine cannot be annotated for Machine health checks", retrySoon)
	}
	var listed *v1alpha1.InPlaceMachine
	if !x.done {
		now := metav1.NewTime(s.Now())
		listed = &v1alpha1.InPlaceMachine{Name: m.GetName(), UID: string(m.GetUID()), Node: m.node(), Updater: x.updater,
			Reason: x.verdict.Reason, Message: text.Truncate(sentence(x.verdict), maxMessage), Failed: x.failed, Since: &now}
	}
	if err := s.recordMachine(ctx, p, m.GetName(), listed); err != nil {
		s.report(ctx, "write the InPlacePlan", err)
		if x.done {
			return inProgress("the plan of "+p.String()+" cannot be written", retrySoon)
		}
	}
	switch {
	case x.done:
		return hooks.Answer{Message: "observed at its target"}
	case x.failed:
		return refusal(text.Truncate("refit: "+sentence(x.verdict), maxMessage))
	}
	return inProgress(sentence(x.verdict), max(x.retry, retrySoon))
}

// sentence returns a verdict as one line.
func sentence(v model.Blocker) string {
	text := v.Message
	if v.Reason != "" {
		text = v.Reason + ": " + text
	}
	if v.Fix != "" {
		text += " (" + v.Fix + ")"
	}
	return text
}

// isNamed returns a predicate for lists of external updaters.
func isNamed(name string) func(external) bool {
	return func(e external) bool { return e.Name == name }
}
