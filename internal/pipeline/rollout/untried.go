package rollout

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// BootedImages are the OS images and kernel arguments that the nodes of a plan boot, in its
// order, "" for a node that boots no other. Nil if no node does.
func BootedImages(plan *model.Plan) (out []string) {
	for i := range plan.Nodes {
		image := bootedImage(&plan.Nodes[i])
		if image == "" {
			continue
		}
		if out == nil {
			out = make([]string, len(plan.Nodes))
		}
		out[i] = image
	}
	return out
}

func bootedImage(np *model.NodePlan) (what string) {
	for i := range np.Steps {
		s := &np.Steps[i]
		if s.Updater != updaterOSImage {
			continue
		}
		for _, c := range s.Changes {
			if c.Path == model.FieldOSImage || c.Path == model.FieldKernelArguments {
				what += c.Path + "=" + c.To + " "
			}
		}
	}
	return what
}

// imageFailures counts, for each image, the nodes of all pools that failed to boot it.
func imageFailures(in *Input) map[string]int {
	out := map[string]int{}
	for i := range in.boots {
		if image := bootedAt(in, i); image != "" && isFailure(in.stages[i]) {
			out[image]++
		}
	}
	return out
}

// bootedAt is the image that the i-th node of the plan was to boot in the step that it reported
// last, "" if that step boots none.
func bootedAt(in *Input, i int) string {
	run := in.row[i].Run
	if in.boots == nil || run == nil {
		return ""
	}
	steps := in.Plan.Nodes[i].Steps
	if at := slices.IndexFunc(steps, func(s model.Step) bool { return s.ID == run.Step }); at < 0 || steps[at].Updater != updaterOSImage {
		return ""
	}
	return in.boots[i]
}

// updaterOSImage boots nodes into images.
const updaterOSImage = "os-image"

// pickUntried makes one worker the canary of each image that no node of the plan has booted
// yet, for all pools together: an image that does not start takes one node. Pools that say
// their own canary keep it.
func pickUntried(in *Input, lines map[string]*line) {
	first := untriedImages(in, lines)
	if len(first) == 0 {
		return
	}
	for i, image := range in.boots {
		if c, untried := first[image]; untried && in.stages[i] != StageGone {
			if l := lines[in.Plan.Nodes[i].Pool]; l.Canary.Value == 0 {
				l.canary[in.row[c].Name] = true
			}
		}
	}
}

// mayGoFirst: a worker of a pool without a canary of its own, not one that a person holds.
func mayGoFirst(in *Input, i int, l *line) bool {
	held := in.stages[i] == StageWaiting && in.row[i].OnHold
	return in.Plan.Nodes[i].Role == model.RoleWorker && l.Canary.Value == 0 && !held
}

// untriedImages are the images that no node has booted, each with the node that goes first: one
// that has started, else the first that is not held.
func untriedImages(in *Input, lines map[string]*line) map[string]int {
	booted, first := map[string]bool{}, map[string]int{}
	for i, image := range in.boots {
		np, stage := &in.Plan.Nodes[i], in.stages[i]
		switch {
		case image == "" || stage == StageGone:
		case stage == StageDone:
			booted[image] = true
		case mayGoFirst(in, i, lines[np.Pool]):
			if before, known := first[image]; !known || in.stages[before] == StageWaiting && stage != StageWaiting {
				first[image] = i
			}
		}
	}
	for image := range booted {
		delete(first, image)
	}
	return first
}
