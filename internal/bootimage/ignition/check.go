package ignition

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
)

// Unit is the name of the unit that checks a machine at its first boot, and Agent
// the program it runs.
const (
	Unit  = "refit-first-boot.service"
	Agent = "/usr/local/bin/refit-agent"
)

// joiners are units that make a machine a node: of kubeadm, of Cluster API's
// Ignition, of OpenShift. The check comes before them, and they need it. One that a
// machine does not have is not missed.
var joiners = []string{distribution.KubeletUnit, "kubeadm.service", "machine-config-daemon-pull.service", "machine-config-daemon-firstboot.service"}

// Program is where a machine fetches the agent from, if its image does not bring
// it.
type Program struct {
	// URL and Hash in Ignition's words: sha512-HEX.
	URL, Hash string
}

// hashed is an address with the hash of what is there.
var hashed = regexp.MustCompile(`^(https://[^\s#]+)#(sha512-[0-9a-f]{128})$`)

// ParseProgram reads URL#sha512-HEX.
func ParseProgram(text string) (*Program, error) {
	if text == "" {
		return nil, nil
	}
	m := hashed.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%q is not https://ADDRESS#sha512-HEX: what a machine runs as root is compared with its hash", text)
	}
	return &Program{URL: m[1], Hash: m[2]}, nil
}

// WithCheck wraps a configuration of version 3 in one that checks the machine before it
// joins: a file with the limits, and a unit ordered before the units that join. The
// configuration itself stays inside, byte for byte.
func WithCheck(config, limits []byte, limitsAt string, agent *Program) ([]byte, error) {
	version, err := Version(config)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(version, "3.") {
		return nil, fmt.Errorf("the check is for configurations of version 3, this one is of version %s", version)
	}
	files := []any{map[string]any{"path": limitsAt, "mode": 0o600, "overwrite": true, "contents": map[string]any{"source": inline("application/json", limits)}}}
	if agent != nil {
		files = append(files, map[string]any{"path": Agent, "mode": 0o755, "overwrite": true,
			"contents": map[string]any{"source": agent.URL, "verification": map[string]any{"hash": agent.Hash}}})
	}
	return json.Marshal(map[string]any{
		"ignition": map[string]any{"version": version, "config": map[string]any{"merge": []any{map[string]any{"source": inline("application/vnd.coreos.ignition+json", config)}}}},
		"storage":  map[string]any{"files": files},
		"systemd":  map[string]any{"units": []any{map[string]any{"name": Unit, "enabled": true, "contents": UnitText(limitsAt)}}},
	})
}

func inline(kind string, data []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// UnitText is the unit. Without limits, or without the agent, it does nothing and
// the machine joins; if the check refuses, what would join does not start. The
// agent takes the limits away when they hold, so later boots are not asked.
func UnitText(limitsAt string) string {
	all := strings.Join(joiners, " ")
	return `[Unit]
Description=refit: is this boot image new enough to join?
Documentation=https://github.com/refit-dev/refit
ConditionPathExists=` + limitsAt + `
ConditionFileIsExecutable=` + Agent + `
After=local-fs.target
Before=` + all + `

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + Agent + ` first-boot
StandardOutput=journal+console
StandardError=journal+console
TimeoutStartSec=180

[Install]
RequiredBy=` + all + `
`
}
