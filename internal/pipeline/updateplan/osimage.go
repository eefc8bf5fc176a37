package updateplan

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// prefixOS begins the paths of a node's OS: its image by digest, and refit's own kernel
// arguments. The agent reports in addition how the OS is updated, or why it cannot be.
const (
	prefixOS          = "os/"
	pathOSDriver      = "os/driver"
	pathOSUnsupported = model.FieldOSUnsupported
	driverSysext      = "sysext"
)

// deadlineOS is for fetching, staging, a restart of the machine and its coming up, and for
// a rollback if it does not come up, in seconds.
const deadlineOS = 3600

// deadlineOf is deadlineOS, and more where the node may take longer to be Ready than
// usual: once for the new image, and once for a rollback.
func deadlineOf(c *model.NodeConfig) int32 {
	if c == nil {
		return deadlineOS
	}
	return deadlineOS + 2*max(0, c.OS.ReadyWithin()-model.OSReadySeconds)
}

// osImageUpdater boots a node into an image. It comes last: the files of other updaters
// are there when the machine restarts, and are undone after a rollback. Files below /usr
// come with the image only.
func osImageUpdater() Updater {
	return Updater{Name: "os-image", Claim: func(q Question) Claim {
		mine, brought := q.ChangesBelow(prefixOS), fileChanges(q, true)
		if len(mine) == 0 {
			return refuseChanges(brought, "the node runs the image that brings it, and has it otherwise: an overlay hides it, or it was changed there",
				"`bootc status`, `ostree admin status` and `systemd-sysext status` on the node say what; a restart ends an overlay")
		}
		out := configStep(q, "os-image", append(mine, brought...), deadlineOf(q.Node.Config))
		for i := range out.Steps {
			if q.Current[pathOSDriver] == driverSysext { // it is laid over /usr, and the machine goes on
				out.Steps[i].Disruption = model.DisruptionDrain
			}
		}
		return out
	}}
}

// withoutOS leaves out what is wanted of an OS that cannot be moved, and says so: the
// rest of the node is updated all the same.
func withoutOS(n Node, want Fields) []model.Blocker {
	why := n.Current[pathOSUnsupported]
	if why == "" && n.Current[pathOSDriver] == driverSysext && n.Config != nil && n.Config.OS != nil && len(n.Config.OS.KernelArguments) > 0 {
		why = "its NodeConfigs want kernel arguments, and what systemd-sysext lays over its /usr has none"
	}
	if why == "" {
		return nil
	}
	differs := false
	for path, value := range want {
		if strings.HasPrefix(path, prefixOS) {
			differs = differs || !Equal(path, n.Current[path], value)
			delete(want, path)
		}
	}
	if !differs { // a host that was installed with the image of its pool
		return nil
	}
	return []model.Blocker{{Reason: reasonOSUnsupported, Object: "Node/" + n.Name, Message: "the OS of node " + n.Name + " stays as it is: " + why,
		Fix: "put the node into a pool without an OSImage and kernel arguments, or install it from an image"}}
}

// repeatFiles applies the files and units of a configuration again when the image is
// booted. libostree has merged /etc by then, and units of the image can be started only
// then.
func repeatFiles(n Node, steps []model.Step) []model.Step {
	if n.Config == nil || len(n.Config.Files)+len(n.Config.Units) == 0 || !slices.ContainsFunc(steps, func(s model.Step) bool { return s.Updater == "os-image" }) {
		return steps
	}
	return append(slices.Clone(steps), model.Step{ID: "files-again", Updater: "files", Verb: "apply", By: model.ByAgent, Disruption: model.DisruptionNone,
		Params: map[string]string{model.ParamConfig: n.ConfigName}, DeadlineSeconds: deadlineFiles})
}

// ConfigToBoot is the name of the configuration whose image a node's plan has it boot; empty
// if it boots no other.
func ConfigToBoot(np *model.NodePlan) string {
	for _, s := range np.Steps {
		if s.Updater == "os-image" && slices.ContainsFunc(s.Changes, func(c model.Change) bool { return c.Path == model.FieldOSImage }) {
			return s.Params[model.ParamConfig]
		}
	}
	return ""
}

// restartsForOS reports whether a step restarts the machine after all files were
// written.
func restartsForOS(s model.Step) bool {
	return s.Updater == "os-image" && s.Disruption == model.DisruptionReboot
}
