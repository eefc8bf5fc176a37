package updateplan

import (
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// configuredNode is a node with a rendered configuration.
func configuredNode(n Node, c model.NodeConfig, current Fields) Node {
	n.Config, n.ConfigName, n.Desired, n.Current = &c, "config-1", Fields(c.Fields()), current
	return n
}

func edge(d model.Disruption) model.NodeConfig {
	return model.NodeConfig{
		Files: []model.ConfigFile{{Path: "/etc/sysctl.d/90-edge.conf", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("x"), Disruption: model.DisruptionReload},
			{Path: "/etc/modules", Mode: 0o644, Owner: "root", Group: "root", Disruption: d}},
		Units: []model.ConfigUnit{{Name: "edge.service", State: model.UnitEnabled, Disruption: model.DisruptionRestart}},
	}
}

func init() {
	only := func(in *Input) { in.Target.Kubernetes = "" }
	stories["a configuration moves the nodes it is for"] = input(only, cp("n1", old), configuredNode(worker("n2", old), edge(model.DisruptionNone), nil))
	stories["a file that asks for a drain drains the node"] = input(only, cp("n1", old),
		configuredNode(worker("n2", old), edge(model.DisruptionDrain), Fields{"file//etc/sysctl.d/90-edge.conf": edge("").Files[0].Value(), "unit/edge.service": "enabled"}))
	stories["a file that is read at boot restarts the machine once"] = input(only, cp("n1", old), configuredNode(worker("n2", old), edge(model.DisruptionReboot), nil))
	stories["only the kubelet renews its own certificate"] = input(only, cp("n1", old),
		configuredNode(cp("n2", old), model.NodeConfig{Certificates: []model.ConfigCertificate{{Name: "apiserver", DaysLeft: 90}, {Name: "kubelet-client", DaysLeft: 90}}},
			Fields{"certificate/apiserver": "2025-12-20 to 2026-12-20", "certificate/kubelet-client": "2025-12-20 to 2026-12-20"}))
	motd := model.NodeConfig{Files: []model.ConfigFile{{Path: "/etc/motd", Mode: 0o644, Owner: "root", Group: "root", Payload: "file.motd", Digest: "sha256:m", Disruption: model.DisruptionNone}}}
	stories["a file of a bundle that the nodes hold"] = input(func(in *Input) {
		only(in)
		in.OtherPayloads = []Payload{{Name: "file.motd", Digest: "sha256:m", Size: 5}}
	}, cp("n1", old), configuredNode(worker("n2", old), motd, nil))
	stories["a file that no bundle brings"] = input(func(in *Input) {
		only(in)
		in.OtherPayloads = []Payload{{Name: "file.motd", Digest: "sha256:other", Size: 5}}
	}, cp("n1", old), configuredNode(worker("n2", old), motd, nil))
	stories["a file of a bundle that is too large"] = input(func(in *Input) {
		only(in)
		in.OtherPayloads = []Payload{{Name: "file.motd", Digest: "sha256:m", Size: model.MaxFile + 1}}
	}, cp("n1", old), configuredNode(worker("n2", old), motd, nil))
	bios := model.NodeConfig{External: []model.ConfigField{{Path: "bios/main", Value: "1.2", File: "/sys/b"}, {Path: "nic/eth0", Value: "8", File: "/run/n"}},
		Files: []model.ConfigFile{{Path: "/etc/motd", Mode: 0o644, Owner: "root", Group: "root", Disruption: model.DisruptionNone}}}
	offers := func(os ...Offer) Node {
		n := configuredNode(worker("n2", old), bios, Fields{"bios/main": "1.0", "nic/eth0": "7"})
		n.Offers = os
		return n
	}
	both := []string{"bios/main", "nic/eth0"}
	stories["two external updaters share what is left, after the node's own steps"] = input(only, cp("n1", old),
		offers(Offer{Updater: "bios", Asked: both, Moves: []string{"bios/main"}, Harmless: true}, Offer{Updater: "nic", Asked: []string{"nic/eth0"}, Moves: []string{"nic/eth0"}}))
	stories["two external updaters want the same field, and the first has it"] = input(only, cp("n1", old),
		offers(Offer{Updater: "a", Asked: both, Moves: both, Harmless: true}, Offer{Updater: "b", Asked: both, Moves: both, Harmless: true}))
	stories["an external updater that refuses, and one that is silent"] = input(only, cp("n1", old),
		offers(Offer{Updater: "a", Asked: both, Refused: "not this board"}, Offer{Updater: "b", Asked: []string{"nic/eth0"}, Silent: "it does not answer in time"}))
	stories["an external updater that has not answered yet"] = input(only, cp("n1", old), offers(Offer{Updater: "a", Asked: both, Pending: true}))
	unseen := configuredNode(worker("n2", old), edge(model.DisruptionNone), nil)
	unseen.Unobserved = true
	stories["a node whose configuration was not observed yet"] = input(only, cp("n1", old), unseen)
	stories["Kubernetes and a configuration go in one move"] = input(nil, cp("n1", old), configuredNode(worker("n2", old), edge(model.DisruptionReload), nil))
}

// The step names the configuration that was planned.
func TestTheStepNamesItsConfiguration(t *testing.T) {
	in := stories["a configuration moves the nodes it is for"]
	for _, n := range Make(in).Plan.Nodes {
		for _, s := range n.Steps {
			if s.Updater == "files" && s.Params[model.ParamConfig] == "config-1" {
				return
			}
		}
	}
	t.Fatal("no step names it")
}
