package updateplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// Deadlines in seconds: of writing files and restarting services, of a restart of
// the container runtime or the kubelet.
const (
	deadlineFiles   = 600
	deadlineRestart = 900
)

// configStep makes the one step of an updater that brings a node to its rendered
// configuration. The step names the configuration, so that the node applies the planned
// one even if a newer one is rendered meanwhile.
func configStep(q Question, id string, mine []model.Change, deadline int32) Claim {
	if q.Node.Config == nil {
		return Claim{}
	}
	wants := q.Node.Config.Fields()
	s := model.Step{ID: id, Verb: "apply", Disruption: model.DisruptionNone, DeadlineSeconds: deadline,
		Params: map[string]string{model.ParamConfig: q.Node.ConfigName}}
	for _, c := range mine {
		if want, ok := wants[c.Path]; !ok || want != c.To {
			continue // another updater sets that field
		}
		s.Changes = append(s.Changes, c)
		if d := q.Node.Config.DisruptionOf(c.Path); rank[d] > rank[s.Disruption] {
			s.Disruption = d
		}
	}
	if len(s.Changes) == 0 {
		return Claim{}
	}
	return Claim{Steps: []model.Step{s}}
}

// deadlineReboot is for a machine to come up again, in seconds.
const deadlineReboot = 1800

// rebootsFor reports whether files of a configuration are read at boot only. Any
// other updater that needs a reboot sees to it itself, and one after all files were
// written is enough.
func rebootsFor(steps []model.Step) bool {
	if slices.ContainsFunc(steps, restartsForOS) {
		return false
	}
	for _, s := range steps {
		if s.Updater == "files" && s.Disruption == model.DisruptionReboot {
			return true
		}
	}
	return false
}

// fileChanges are the differences of files, of those that only an OS image brings or of
// the others.
func fileChanges(q Question, inImage bool) []model.Change {
	if q.Node.Config == nil {
		return nil
	}
	only := map[string]bool{}
	for _, f := range q.Node.Config.Files {
		only[PrefixFile+f.Path] = f.InImage
	}
	return slices.DeleteFunc(q.ChangesBelow(PrefixFile), func(c model.Change) bool { return only[c.Path] != inImage })
}

// filesUpdater writes files and sets units.
func filesUpdater() Updater {
	return Updater{Name: "files", Claim: func(q Question) Claim {
		out := configStep(q, "files", append(fileChanges(q, false), q.ChangesBelow(PrefixUnit)...), deadlineFiles)
		for _, s := range out.Steps {
			out.Blockers = append(out.Blockers, missingFiles(q, s.Changes)...)
		}
		return out
	}}
}

// missingFiles says which files of a configuration no bundle brings: the node would find
// out when it is cordoned.
func missingFiles(q Question, mine []model.Change) []model.Blocker {
	var out []model.Blocker
	for _, f := range q.Node.Config.Files {
		if f.Payload == "" || q.Input == nil || !slices.ContainsFunc(mine, func(c model.Change) bool { return c.Path == PrefixFile+f.Path }) {
			continue
		}
		v := model.Blocker{Reason: reasonPayloadMissing, Object: "Node/" + q.Node.Name}
		switch p := q.Input.findFile(f.Payload, f.Digest, q.Node.Platform); {
		case p == nil:
			v.Message = "no approved bundle brings " + f.Payload + " with digest " + f.Digest + ", which node " + q.Node.Name + " is to have at " + f.Path
			v.Fix = "make a bundle with payload:" + f.Payload + "=FILE, or correct name and digest in the NodeConfig (refit bundle inspect shows both)"
		case p.Size > model.MaxFile:
			v.Message = fmt.Sprintf("payload %s for %s of node %s has %d bytes, at most %d go into a file", f.Payload, f.Path, q.Node.Name, p.Size, int64(model.MaxFile))
			v.Fix = "bring it with an image or a package instead"
		default:
			continue
		}
		out = append(out, v)
	}
	return out
}

// findFile finds a payload of any bundle, nil if there is none.
func (in *Input) findFile(name, digest, platform string) *Payload {
	for _, list := range [][]Payload{in.Payloads, in.OtherPayloads} {
		for i := range list {
			if p := &list[i]; p.Name == name && p.Digest == digest && (p.Platform == "" || p.Platform == platform) {
				return p
			}
		}
	}
	return nil
}

// programsUpdater replaces programs and network plugins that the bundle brings.
func programsUpdater() Updater {
	return Updater{Name: "programs", Claim: func(q Question) Claim {
		mine := append(q.ChangesBelow(PrefixProgram), q.ChangesBelow(PathCNIPlugins)...)
		s := model.Step{ID: "programs", Verb: "swap", Disruption: model.DisruptionRestart, DeadlineSeconds: deadlineRestart, Params: map[string]string{}}
		for _, c := range mine {
			if c.From == "" || c.To == "" { // nothing is installed by the way, and nothing removed
				continue
			}
			s.Changes = append(s.Changes, c)
			s.Params[c.Path] = c.To
		}
		if len(s.Changes) == 0 {
			return Claim{}
		}
		return Claim{Steps: []model.Step{s}}
	}}
}

// sandboxUpdater tells the container runtime its sandbox image.
func sandboxUpdater() Updater {
	return Updater{Name: "sandbox-image", Claim: func(q Question) Claim {
		mine := q.ChangesBelow(PathSandboxImage)
		if c := ofOneUnit(q, mine, "the sandbox image"); c != nil {
			return *c
		}
		return configStep(q, "sandbox-image", mine, deadlineRestart)
	}}
}

// ofOneUnit refuses changes to parts that have no unit of their own on a node of k3s, RKE2 or k0s:
// nothing there reads refit's drop-ins, and there is no unit to restart. Nil on other nodes.
func ofOneUnit(q Question, mine []model.Change, what string) *Claim {
	row, ok := supervised(q.Node)
	if !ok || len(mine) == 0 {
		return nil
	}
	c := refuseChanges(mine, "it runs "+row.Title+", of which one unit starts kubelet and container runtime: refit does not set "+what+" there",
		"set it in the configuration of "+row.Title+" ("+row.Places.Config+"), for example by a file of another NodeConfig")
	return &c
}

// kubeletConfigUpdater lays fields over the kubelet's configuration.
func kubeletConfigUpdater() Updater {
	return Updater{Name: "kubelet-config", Claim: func(q Question) Claim {
		mine := q.ChangesBelow(PathKubeletConfig)
		if c := ofOneUnit(q, mine, "fields of the kubelet"); c != nil {
			return *c
		}
		return configStep(q, "kubelet-config", mine, deadlineRestart)
	}}
}

// paramCertificates lists the certificates of a step, with commas.
const paramCertificates = "certificates"

// deadlineCertificates is for renewing them and restarting the static pods that
// use them, one after another, in seconds.
const deadlineCertificates = 2400

// kubeletClient is the certificate that the kubelet renews by itself.
const kubeletClient = "kubelet-client"

// certificatesUpdater renews certificates through kubeadm.
func certificatesUpdater() Updater {
	return Updater{Name: "certificates", Claim: func(q Question) Claim {
		var mine, kubelets []model.Change
		for _, c := range q.ChangesBelow(PrefixCertificate) {
			if c.Path == PrefixCertificate+kubeletClient {
				kubelets = append(kubelets, c)
				continue
			}
			mine = append(mine, c)
		}
		out := configStep(q, "certificates", mine, deadlineCertificates)
		if q.Node.Config != nil {
			out.Refusals = append(out.Refusals, refuseChanges(kubelets, "the kubelet renews its own certificate, when most of its life is over (rotateCertificates)",
				"wait, or check the log of "+distribution.KubeletUnit+" on the node; take kubelet-client out of the NodeConfig until then").Refusals...)
		}
		for i := range out.Steps {
			s := &out.Steps[i]
			var names []string
			for _, c := range s.Changes {
				names = append(names, strings.TrimPrefix(c.Path, PrefixCertificate))
			}
			s.Params[paramCertificates] = strings.Join(names, ",")
			s.NotReversible = "the old certificates and keys are not kept, and the new ones serve as well"
		}
		return out
	}}
}
