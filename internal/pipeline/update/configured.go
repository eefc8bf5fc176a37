package update

import (
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// paramConfig names the Content with the node's rendered configuration; the
// updaters on the node know it by that name.
const paramConfig = "config"

// Deadlines in seconds: of writing files and restarting services, of a restart of
// the container runtime or the kubelet.
const (
	deadlineFiles   = 600
	deadlineRestart = 900
)

// configured makes the one step of an updater that brings a node to its rendered
// configuration. The step names the configuration, so that the node does what was
// planned, whatever is rendered meanwhile.
func configured(q Question, id string, mine []model.Change, deadline int32) Claim {
	if q.Node.Config == nil {
		return Claim{}
	}
	wants := q.Node.Config.Fields()
	s := model.Step{ID: id, Verb: "apply", Disruption: model.DisruptionNone, DeadlineSeconds: deadline,
		Params: map[string]string{paramConfig: q.Node.ConfigName}}
	for _, c := range mine {
		if want, ok := wants[c.Path]; !ok || want != c.To {
			continue // somebody else wants that
		}
		s.Changes = append(s.Changes, c)
		if d := q.Node.Config.Disrupts(c.Path); rank[d] > rank[s.Disruption] {
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
// other updater that needs a reboot sees to it itself.
func rebootsFor(steps []model.Step) bool {
	for _, s := range steps {
		if s.Updater == "files" && s.Disruption == model.DisruptionReboot {
			return true
		}
	}
	return false
}

// filesUpdater writes files and sets units.
func filesUpdater() Updater {
	return Updater{Name: "files", Claim: func(q Question) Claim {
		return configured(q, "files", append(q.Of(PrefixFile), q.Of(PrefixUnit)...), deadlineFiles)
	}}
}

// programsUpdater replaces programs and network plugins that the bundle brings.
func programsUpdater() Updater {
	return Updater{Name: "programs", Claim: func(q Question) Claim {
		mine := append(q.Of(PrefixProgram), q.Of(PathCNIPlugins)...)
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
		return configured(q, "sandbox-image", q.Of(PathSandboxImage), deadlineRestart)
	}}
}

// kubeletConfigUpdater lays fields over the kubelet's configuration.
func kubeletConfigUpdater() Updater {
	return Updater{Name: "kubelet-config", Claim: func(q Question) Claim {
		return configured(q, "kubelet-config", q.Of(PathKubeletConfig), deadlineRestart)
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
		for _, c := range q.Of(PrefixCertificate) {
			if c.Path == PrefixCertificate+kubeletClient {
				kubelets = append(kubelets, c)
				continue
			}
			mine = append(mine, c)
		}
		out := configured(q, "certificates", mine, deadlineCertificates)
		if q.Node.Config != nil {
			out.Refusals = append(out.Refusals, refuse(kubelets, "the kubelet renews its own certificate, when most of its life is over (rotateCertificates)",
				"wait, or look at the log of kubelet.service on the node; take kubelet-client out of the NodeConfig until then").Refusals...)
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
