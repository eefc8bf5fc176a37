package updateplan

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// Which changes can cut a node off.
func TestCutsOff(t *testing.T) {
	config := &model.NodeConfig{Files: []model.ConfigFile{
		{Path: "/etc/sysctl.d/net.conf", Data: []byte("# of the site\n net.ipv4.ip_forward = 0\n")},
		{Path: "/etc/sysctl.d/slash.conf", Data: []byte("-net/ipv4/ip_forward=0")},
		{Path: "/etc/sysctl.d/vm.conf", Data: []byte("# net.ipv4.ip_forward\nvm.swappiness = 1\n")},
		{Path: "/etc/sysctl.d/payload.conf", Payload: "file.sysctl", Digest: "sha256:a"},
		{Path: "/etc/motd", Data: []byte("net.")},
		{Path: "/opt/site/table", Data: []byte("x"), Units: []string{"nftables.service"}},
	}}
	for path, want := range map[string]bool{
		"file//etc/sysctl.d/net.conf":                                   true,
		"file//etc/sysctl.d/slash.conf":                                 true,
		"file//etc/sysctl.d/vm.conf":                                    false,
		"file//etc/sysctl.d/payload.conf":                               true,
		"file//etc/motd":                                                false,
		"file//opt/site/table":                                          true,
		"file//etc/NetworkManager/system-connections/eth0.nmconnection": true,
		"file//usr/lib/NetworkManager/conf.d/10.conf":                   true,
		"file//etc/systemd/network/10-eth0.network":                     true,
		"file//etc/netplan/50-cloud-init.yaml":                          true,
		"file//etc/nftables.conf":                                       true,
		"file//etc/nftables.conf.old":                                   false,
		"file//etc/resolv.conf":                                         true,
		"file//etc/ssh/sshd_config.d/10-site.conf":                      true,
		"file//etc/systemd/system/kubelet.service.d/20-site.conf":       true,
		"file//usr/local/lib/systemd/system/containerd.service":         true,
		"file//etc/systemd/system/edge-probe.service":                   false,
		"file//etc/chrony/sources.d/site.sources":                       false,
		"unit/firewalld.service":                                        true,
		"unit/wpa_supplicant@wlan0.service":                             true,
		"unit/k0sworker.service":                                        true,
		"file//etc/rancher/k3s/config.yaml":                             true,
		"file//etc/rancher/rke2/registries.yaml":                        true,
		"file//etc/k0s/k0s.yaml":                                        true,
		"file//etc/rancher/other":                                       false,
		"unit/edge-probe.service":                                       false,
		"os/kernel-arguments":                                           true,
		"os/image":                                                      true,
		"kubernetes/kubelet":                                            false,
		"kubelet/config":                                                false,
		"certificate/apiserver":                                         false,
	} {
		if got := cutsOff(model.Change{Path: path}, config); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// Every row names where it is from, and is a path as NodeConfigs have it.
func TestCutOffPathsHaveSources(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range cutOffPaths {
		if e.source == "" || seen[e.path] || inEtc(e.path) != e.path || model.ProtectedPath(strings.TrimSuffix(e.path, "/")) != "" {
			t.Errorf("%+v", e)
		}
		seen[e.path] = true
	}
}

// The steps that can cut a node off carry the pool's deadline; no other step does, and a pool
// without a deadline has none.
func TestOnlyStepsThatCutOffAreArmed(t *testing.T) {
	shared := map[string]string{model.ParamConfig: "config-1"}
	plan := func() *model.NodePlan {
		return &model.NodePlan{Steps: []model.Step{
			{ID: "kubelet", By: model.ByAgent, Changes: []model.Change{{Path: PathKubelet}}},
			{ID: "files", By: model.ByAgent, Params: shared, Changes: []model.Change{{Path: "file//etc/motd"}, {Path: "file//etc/resolv.conf"}}},
			{ID: "settle", By: model.ByAgent}}}
	}
	np := plan()
	armUndo(np, nil, 90)
	for _, s := range np.Steps {
		want := ""
		if s.ID == "files" {
			want = "90"
		}
		if got := s.Params[model.ParamUndoDeadline]; got != want {
			t.Errorf("step %s: %q, want %q", s.ID, got, want)
		}
	}
	if np.Steps[1].Params[model.ParamConfig] != "config-1" || len(shared) != 1 {
		t.Errorf("parameters: %v, shared %v", np.Steps[1].Params, shared)
	}
	if len(np.Notes) != 1 || !strings.Contains(np.Notes[0], "1m30s after files") {
		t.Errorf("notes: %q", np.Notes)
	}
	np = plan()
	if armUndo(np, nil, 0); np.Steps[1].Params[model.ParamUndoDeadline] != "" || len(np.Notes) > 0 {
		t.Errorf("armed without a deadline: %+v", np)
	}
}
