package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// RunReader reads the objects that a run must be for.
type RunReader interface {
	ClusterUpdate(ctx context.Context, name string) (*v1alpha1.ClusterUpdate, error)
	ImageTrack(ctx context.Context, name string) (*v1alpha1.ImageTrack, error)
	Content(ctx context.Context, name string) (*v1alpha1.Content, error)
}

// RunningDigests lists the digests of the image that a container of a static pod was last
// created from, none if this node never created it.
type RunningDigests func(ctx context.Context, namespace, pod, container string) ([]string, error)

// errRuntimeUnavailable marks an error of the node's container runtime.
var errRuntimeUnavailable = errors.New("the container runtime does not report which image a container runs")

// CheckRun reports why a node may not start a run that the controller permits, nil if it
// may. It costs one small read, and the plan's Contents if the run is of a ClusterUpdate.
// It asks the runtime only about images that no administrator approved.
func CheckRun(ctx context.Context, api ConfigReader, running RunningDigests, node string, run *v1alpha1.NodeRun) *model.Blocker {
	var why, fix string
	var err error
	object := "ClusterUpdate/" + run.Name
	if name, ofTrack := strings.CutPrefix(run.Name, v1alpha1.TrackRun); ofTrack {
		object = "ImageTrack/" + name
		why, fix, err = checkTrack(ctx, api, running, node, name, run)
	} else {
		why, fix, err = checkUpdate(ctx, api, node, run)
	}
	switch {
	case apierrors.IsNotFound(err):
		why, fix = "there is no "+object, "nothing to do if it was deleted; if no administrator made it, the controller's token may be stolen: revoke the token"
	case errors.Is(err, errRuntimeUnavailable):
		return &model.Blocker{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: object,
			Message: fmt.Sprintf("the run for %s waits: %v", object, err), Fix: "restart the container runtime if crictl ps hangs or fails on the node; or approve the digest (refit tags approve)"}
	case err != nil:
		return &model.Blocker{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: object,
			Message: fmt.Sprintf("the run for %s waits: %v", object, err), Fix: "apply refit's rules for nodes (refit install), which let nodes read ClusterUpdates and ImageTracks"}
	case why == "":
		return nil
	case why == paused:
		return &model.Blocker{Reason: v1alpha1.ReasonPaused, Waiting: true, Object: object, Message: "the run waits: " + object + " is paused", Fix: "refit resume " + run.Name}
	}
	return &model.Blocker{Reason: v1alpha1.ReasonRunNotApproved, Object: object, Message: "the controller permits a run for " + object + ", which is not started: " + why, Fix: fix}
}

const (
	paused          = "paused"
	fixNotRequested = "if no administrator asked for this, the controller's token may be stolen: revoke the token"
)

func checkUpdate(ctx context.Context, api ConfigReader, node string, run *v1alpha1.NodeRun) (why, fix string, err error) {
	u, err := api.ClusterUpdate(ctx, run.Name)
	if err != nil {
		return "", "", err
	}
	if why := refusesUpdate(node, run, u); why != "" {
		return why, fixNotRequested, nil
	}
	plan, err := readPlan(ctx, api, u.Status.Plan)
	if err != nil {
		return "", "", err
	}
	why = refusesSteps(node, run, &plan)
	if why == "" && u.Spec.PlanDigest == "" && !run.Undo {
		why, err = refusesUnapprovedPlan(ctx, api, run)
	}
	return why, fixNotRequested, err
}

// refusesUpdate compares a run with what administrators wrote in the update's spec.
func refusesUpdate(node string, run *v1alpha1.NodeRun, u *v1alpha1.ClusterUpdate) string {
	s, hop := &u.Spec, slices.Index(u.RunUIDs(), run.UID)
	switch {
	case hop < 0:
		return fmt.Sprintf("the update has the UID %s, the run %.80s", u.UID, run.UID)
	case u.Bundles()[hop] != run.Bundle:
		return fmt.Sprintf("the update names the bundle %q, the run %.100q", u.Bundles()[hop], run.Bundle)
	case len(s.Nodes) > 0 && !slices.Contains(s.Nodes, node):
		return "the update does not name node " + node
	case run.Undo:
		return "" // a node returns to what it was, also from an update that is paused
	case s.Start != v1alpha1.StartImmediate:
		return "no administrator started the update (spec.start)"
	case s.PlanDigest != "" && s.PlanDigest != run.PlanDigest:
		return fmt.Sprintf("plan %s was approved, the run is of plan %.100s", s.PlanDigest, run.PlanDigest)
	case s.Paused:
		return paused
	}
	return ""
}

// readPlan reads the plan of an update; each Content is compared with its name.
func readPlan(ctx context.Context, api RunReader, name string) (model.Plan, error) {
	read := func(name string) (string, error) {
		c, err := api.Content(ctx, name)
		if apierrors.IsNotFound(err) {
			return "", errors.New("the plan is missing: " + err.Error()) //nolint:errorlint // unwrapped: it is not the update that is missing
		}
		if err != nil {
			return "", err
		}
		if c.Type != v1alpha1.ContentPlan || v1alpha1.ContentName(v1alpha1.ContentPlan, c.Data) != name {
			return "", fmt.Errorf("content %s does not match the digest in its name", name)
		}
		return c.Data, nil
	}
	text, err := read(name)
	if err != nil {
		return model.Plan{}, err
	}
	p, err := model.LoadPlan(text, read)
	if err != nil {
		return p, fmt.Errorf("plan %s: %w", name, err)
	}
	return p, nil
}

// refusesSteps compares a run's steps with the plan's steps for the node in the run's hop.
func refusesSteps(node string, run *v1alpha1.NodeRun, plan *model.Plan) string {
	if got := plan.Digest(); got != run.PlanDigest {
		return fmt.Sprintf("the update's plan has the digest %s, the run %.100s", got, run.PlanDigest)
	}
	hop, _ := plan.Hop(run.Bundle)
	at := slices.IndexFunc(hop.Nodes, func(n model.NodePlan) bool { return n.Node == node })
	if at < 0 {
		return "the plan has no steps for node " + node
	}
	want := slices.DeleteFunc(slices.Clone(hop.Nodes[at].Steps), func(s model.Step) bool { return s.By != model.ByAgent })
	if !slices.EqualFunc(want, run.Steps, sameStep) {
		return "its steps are not those of the plan"
	}
	return ""
}

func sameStep(a model.Step, b v1alpha1.UpdateStep) bool {
	return a.ID == b.ID && a.Updater == b.Updater && a.Verb == b.Verb && a.From == b.From && a.To == b.To &&
		a.DeadlineSeconds == b.DeadlineSeconds && maps.Equal(a.Params, b.Params)
}

func checkTrack(ctx context.Context, api RunReader, running RunningDigests, node, name string, run *v1alpha1.NodeRun) (why, fix string, err error) {
	t, err := api.ImageTrack(ctx, name)
	if err != nil {
		return "", "", err
	}
	p := model.StaticPodImages{}
	unapproved, why := refusesTrack(run, t, &p)
	if why != "" || len(unapproved) == 0 {
		return why, fixNotRequested, nil
	}
	runs := map[string][]string{}
	for _, c := range unapproved {
		if runs[c], err = running(ctx, p.Namespace, p.Pod+"-"+node, c); err != nil {
			return "", "", fmt.Errorf("%w: container %s of pod %s/%s: %w", errRuntimeUnavailable, c, p.Namespace, p.Pod, err)
		}
	}
	return refusesAdoption(&p, unapproved, runs), fixNotRequested, nil
}

// refusesTrack compares a run with what administrators wrote in the track's spec, and reads
// the run's images into p. If the track moves by itself, administrators have fixed only its
// repository. unapproved are the containers whose image no administrator approved: they may
// only get another name for what they run.
func refusesTrack(run *v1alpha1.NodeRun, t *v1alpha1.ImageTrack, p *model.StaticPodImages) (unapproved []string, why string) {
	switch {
	case !strings.HasPrefix(run.UID, string(t.UID)+"-"):
		return nil, "the run has the UID of another track"
	case len(run.Steps) != 1 || run.Steps[0].Updater != model.UpdaterStaticPod:
		return nil, "a track's run writes one static pod and nothing else"
	case run.Undo:
		return nil, ""
	case t.Spec.Freeze:
		return nil, "the track is frozen"
	case t.Spec.Mode != "Write":
		return nil, "the track only proposes (spec.mode)"
	}
	if err := p.Read(run.Steps[0].Params); err != nil {
		return nil, err.Error()
	}
	return refusesImages(p, &t.Spec)
}

// refusesImages compares each container's image with a track's spec.
func refusesImages(p *model.StaticPodImages, s *v1alpha1.ImageTrackSpec) (unapproved []string, why string) {
	for _, c := range slices.Sorted(maps.Keys(p.To)) {
		approved, why := refusesImage(p.To[c], s)
		if why == "" {
			why = refusesCurrentImage(p.Was[c], s)
		}
		if why != "" {
			return nil, why
		}
		if !approved {
			unapproved = append(unapproved, c)
		}
	}
	return unapproved, ""
}

// refusesAdoption reports why containers may not get unapproved images. The bytes that a
// container runs need no approval to get a name that cannot move; all others do. runs are
// the digests of each container's image.
func refusesAdoption(p *model.StaticPodImages, unapproved []string, runs map[string][]string) string {
	for _, c := range unapproved {
		if _, digest, ok := strings.Cut(p.To[c], "@"); ok && slices.Contains(runs[c], digest) {
			continue
		}
		what := "was never created here"
		if len(runs[c]) > 0 {
			what = "runs " + strings.Join(runs[c], ", ")
		}
		return fmt.Sprintf("no administrator approved %.200s, and container %.100s %s", p.To[c], c, what)
	}
	return ""
}

// refusesCurrentImage keeps a track from replacing an image of another repository. The
// updater compares the container's image in the pod.
func refusesCurrentImage(image string, s *v1alpha1.ImageTrackSpec) string {
	ref, err := imagetag.ParseRef(image)
	if err == nil && (ref.Repository == s.Repository || slices.Contains(s.Mirrors, ref.Repository)) {
		return ""
	}
	return fmt.Sprintf("the container has %.200q, which is not of the track's repository", image)
}

// refusesImage reports why a track never writes an image to a container, and whether
// administrators approved the image.
func refusesImage(image string, s *v1alpha1.ImageTrackSpec) (approved bool, why string) {
	ref, err := imagetag.ParseRef(image)
	switch {
	case err != nil:
		return false, err.Error()
	case ref.Repository != s.Repository && !slices.Contains(s.Mirrors, ref.Repository):
		return false, fmt.Sprintf("%.200s is of another repository than the track's", image)
	case slices.ContainsFunc(s.Refused, func(r v1alpha1.TrackRefusal) bool { return r.Digest == ref.Digest }):
		return false, fmt.Sprintf("%.200s is refused by the track", image)
	}
	return len(s.Automatic) > 0 || slices.ContainsFunc(s.Approvals, func(a v1alpha1.TrackApproval) bool { return a.Digest == ref.Digest }), ""
}

// RunKey names a run by its whole content: any change makes another run.
func RunKey(run *v1alpha1.NodeRun) string {
	b, err := json.Marshal(run)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return model.DigestOf(b)
}
