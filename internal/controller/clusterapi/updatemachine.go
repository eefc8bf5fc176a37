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
	"github.com/refit-dev/refit/internal/controller/clusterapi/workloadcluster"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// When Cluster API is to ask again, in seconds.
const (
	soon  = 2  // something was just set going, or will be there any moment
	often = 10 // a node moves
	later = 30 // something is waited for
)

// progress of one machine: what is told, and what is to be written down.
type progress struct {
	done, failed bool
	// moving is true while the machine is changed, so the health checker must wait.
	moving  bool
	updater string
	verdict model.Verdict
	retry   int32
}

func wait(reason, message string, retry int32) progress {
	return progress{verdict: model.Verdict{Reason: reason, Message: message, Waiting: true}, retry: retry}
}

// updateMachine takes the update of one machine a step further, as the API
// objects say it stands. The body only says which machine is meant: what is
// wanted of it is read from the API server.
func (s *Server) updateMachine(ctx context.Context, r hooks.Request) hooks.Answer {
	asked := &unstructured.Unstructured{Object: r.Desired[capidiff.Machine]}
	m, err := s.readMachine(ctx, asked.GetNamespace(), asked.GetName())
	switch {
	case apierrors.IsNotFound(err):
		return inProgress("the Machine is not there any more", later)
	case err != nil:
		s.report(ctx, "read the Machine", err)
		return inProgress("the API server of the management cluster does not tell about the Machine", soon)
	}
	p := poolOf(m.Unstructured)
	if err := s.lookUpPool(ctx, &p); err != nil {
		s.report(ctx, "read the pool", err)
		return inProgress("the API server of the management cluster does not tell the settings of "+p.String(), soon)
	}
	if why := notNow(m, machine{asked}); why != "" {
		return inProgress(why, soon)
	}
	return s.settle(ctx, &p, m, s.advance(ctx, &p, m, r))
}

func inProgress(message string, retry int32) hooks.Answer {
	return hooks.Answer{Message: text.Truncate(message, maxMessage), RetryAfter: retry}
}

// notNow says why a question is not about what the Machine is to become, "" if
// it is.
func notNow(m, asked machine) string {
	switch {
	case m.GetDeletionTimestamp() != nil:
		return "the Machine is being deleted"
	case !m.inUpdate():
		return "the Machine is not marked for an update in place"
	case !updateplan.Same(m.version(), asked.version()):
		return "the Machine was changed meanwhile"
	}
	return ""
}

// advance asks the updaters that own a part of the change, in their order; one
// begins when all before it are done.
func (s *Server) advance(ctx context.Context, p *pool, m machine, r hooks.Request) progress {
	plan := &v1alpha1.InPlacePlan{}
	if err := s.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.planName()}, plan); client.IgnoreNotFound(err) != nil {
		s.report(ctx, "read the InPlacePlan", err)
		return wait(v1alpha1.ReasonUpdating, "the API server of the management cluster does not tell the plan of "+p.String(), soon)
	}
	// It is listed before anything is done to it: so it is found again after a crash.
	if err := s.list(ctx, p, plan, m); err != nil {
		s.report(ctx, "list the machine", err)
		return wait(v1alpha1.ReasonUpdating, "the plan of "+p.String()+" cannot be written", soon)
	}
	external, err := s.externals(ctx)
	if err != nil {
		s.report(ctx, "list Updaters", err)
		return wait(v1alpha1.ReasonUpdating, "the API server of the management cluster does not tell which Updaters there are", soon)
	}
	// The version is looked at whether it was claimed or not: done means observed.
	_, claimed := share(plan.Status.Claims, updaterKubernetes)
	if x := s.moveNode(ctx, p, m, claimed); !x.done {
		return x
	}
	if x := s.callExternals(ctx, external, plan.Status.Claims, m, r); !x.done {
		return x
	}
	return s.orphaned(plan.Status.Claims, external)
}

// callExternals calls the external updaters that own a part of the change, one
// after the other, with the objects that the API server holds.
func (s *Server) callExternals(ctx context.Context, list []external, claims []v1alpha1.InPlaceClaim, m machine, r hooks.Request) progress {
	var desired hooks.Objects
	for _, e := range list {
		paths, ours := share(claims, e.Name)
		if !ours {
			continue
		}
		if desired == nil {
			var err error
			if desired, err = s.storedObjects(ctx, m, r); err != nil {
				return wait(v1alpha1.ReasonUpdating, err.Error(), soon)
			}
		}
		if x := s.callExternal(ctx, e, hooks.Request{Settings: r.Settings, Desired: desired}, paths); !x.done {
			return x
		}
	}
	return progress{done: true}
}

// share of an updater. Without a plan every updater is asked: it was deleted, and
// updaters go by what they find on the machine.
func share(claims []v1alpha1.InPlaceClaim, updater string) (paths []string, ours bool) {
	for _, c := range claims {
		if c.Updater == updater {
			return c.Paths, true
		}
	}
	return nil, len(claims) == 0
}

// orphaned: a part of the change whose updater is registered no longer is not
// done because nobody can be asked.
func (s *Server) orphaned(claims []v1alpha1.InPlaceClaim, external []external) progress {
	for _, c := range claims {
		known := c.Updater == updaterKubernetes || c.Updater == updaterNewMachines
		if !known && !slices.ContainsFunc(external, isNamed(c.Updater)) {
			x := wait(v1alpha1.ReasonUpdaterUnreachable, "Updater "+c.Updater+", which took "+strings.Join(c.Paths[:min(len(c.Paths), maxNamed)], ", ")+", is registered no longer", later)
			x.updater, x.verdict.Fix = c.Updater, "register it again"
			return x
		}
	}
	return progress{done: true}
}

// moveNode lets refit in the machine's own cluster move its node.
func (s *Server) moveNode(ctx context.Context, p *pool, m machine, claimed bool) progress {
	w := workloadcluster.Wish{Machine: m.key(), UID: string(m.GetUID()), Node: m.node(), Version: m.version(), ControlPlane: m.controlPlane(), Unclaimed: !claimed}
	switch {
	case w.Version == "":
		return progress{done: true} // it names none, so it wants none
	case w.Node == "":
		return from(wait(v1alpha1.ReasonNodeNotFound, "the Machine has no Node yet", often), updaterKubernetes)
	}
	secret, err := s.kubeconfig(ctx, p)
	if err != nil {
		s.report(ctx, "read the kubeconfig of cluster "+p.Cluster, err)
		x := wait(v1alpha1.ReasonClusterUnreachable, "Secret "+p.Namespace+"/"+p.kubeconfigSecret()+" with the kubeconfig of cluster "+p.Cluster+" cannot be read: "+string(apierrors.ReasonForError(err)), often)
		x.verdict.Fix = "make it, and a Role with which refit-system/refit-controller may get it"
		return from(x, updaterKubernetes)
	}
	c, err := s.site(secret)
	if err != nil {
		return from(wait(v1alpha1.ReasonClusterUnreachable, "Secret "+secret.Namespace+"/"+secret.Name+" with the kubeconfig of cluster "+p.Cluster+" cannot be used: "+err.Error(), later), updaterKubernetes)
	}
	reply, err := workloadcluster.Move(ctx, c, w)
	if err != nil {
		s.report(ctx, "ask cluster "+p.Cluster, err)
		reply = workloadcluster.Unreachable(p.Cluster, err)
		reply.Moving = true // a control plane that moves is away, and is not ill
	}
	x := progress{done: reply.Done, failed: reply.Failed, moving: reply.Moving, verdict: reply.Verdict, retry: often}
	if !reply.Moving {
		x.retry = later
	}
	return from(x, updaterKubernetes)
}

func from(x progress, updater string) progress {
	x.updater = updater
	return x
}

// settingPaths tells an external updater which part of the change is its own.
const settingPaths = "refit.dev/paths"

// callExternal calls an external updater. What is not an answer is not done.
func (s *Server) callExternal(ctx context.Context, e external, r hooks.Request, paths []string) progress {
	settings := map[string]string{settingPaths: strings.Join(paths, ",")}
	for k, v := range r.Settings {
		settings[k] = v
	}
	a, silent := e.Ask(ctx, hooks.UpdateMachine, hooks.Request{Settings: settings, Desired: r.Desired})
	switch {
	case silent != "":
		x := from(wait(v1alpha1.ReasonUpdaterUnreachable, silent, often), e.Name)
		x.moving = true // it may be at work
		return x
	case a.Failed:
		return progress{failed: true, updater: e.Name, verdict: model.Verdict{Reason: v1alpha1.ReasonStepFailed, Message: "Updater " + e.Name + ": " + a.Message}}
	case a.RetryAfter > 0:
		x := from(wait(v1alpha1.ReasonUpdating, "Updater "+e.Name+": "+a.Message, min(a.RetryAfter, later)), e.Name)
		x.moving = true
		return x
	}
	return progress{done: true}
}

// list puts the machine on the plan's list, if it is not there.
func (s *Server) list(ctx context.Context, p *pool, plan *v1alpha1.InPlacePlan, m machine) error {
	for _, x := range plan.Status.Machines {
		if x.Name == m.GetName() && x.UID == string(m.GetUID()) {
			return nil
		}
	}
	now := metav1.NewTime(s.Now())
	return s.recordMachine(ctx, p, m.GetName(), &v1alpha1.InPlaceMachine{Name: m.GetName(), UID: string(m.GetUID()), Node: m.node(),
		Reason: v1alpha1.ReasonUpdating, Message: "Cluster API asked to update it", Since: &now})
}

// settle writes down how far the machine is, holds the health checker back or
// lets it go, and answers. Done is said last, when nothing of ours is left.
func (s *Server) settle(ctx context.Context, p *pool, m machine, x progress) hooks.Answer {
	if err := s.remediation(ctx, m, x.moving); err != nil {
		s.report(ctx, "mark the Machine for the health checker", err)
		return inProgress("the Machine cannot be marked for the health checker", soon)
	}
	var note *v1alpha1.InPlaceMachine
	if !x.done {
		now := metav1.NewTime(s.Now())
		note = &v1alpha1.InPlaceMachine{Name: m.GetName(), UID: string(m.GetUID()), Node: m.node(), Updater: x.updater,
			Reason: x.verdict.Reason, Message: text.Truncate(sentence(x.verdict), maxMessage), Failed: x.failed, Since: &now}
	}
	if err := s.recordMachine(ctx, p, m.GetName(), note); err != nil {
		s.report(ctx, "write the InPlacePlan", err)
		if x.done {
			return inProgress("the plan of "+p.String()+" cannot be written", soon)
		}
	}
	switch {
	case x.done:
		return hooks.Answer{Message: "observed at its target"}
	case x.failed:
		return refusal(text.Truncate("refit: "+sentence(x.verdict), maxMessage))
	}
	return inProgress(sentence(x.verdict), max(x.retry, soon))
}

// sentence is a verdict in one line.
func sentence(v model.Verdict) string {
	text := v.Message
	if v.Reason != "" {
		text = v.Reason + ": " + text
	}
	if v.Fix != "" {
		text += " (" + v.Fix + ")"
	}
	return text
}

// isNamed is for lists of external updaters.
func isNamed(name string) func(external) bool {
	return func(e external) bool { return e.Name == name }
}
