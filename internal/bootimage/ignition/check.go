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
// where the machine puts the program that it runs. Every host can write there, also
// one whose /usr/local is a read-only part of its image.
const (
	Unit  = "refit-first-boot.service"
	Agent = "/var/opt/refit/bin/refit-agent"
)

// agents are where the program may be: fetched, or in the image.
var agents = []string{Agent, "/usr/local/bin/refit-agent", "/usr/bin/refit-agent"}

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

// UnitText is the unit. Without limits it does nothing and the machine joins. Without
// the agent the machine joins too, and the console says that it was not checked. If the
// check refuses, what would join does not start. The agent removes the limits when they
// hold, so later boots are not asked.
func UnitText(limitsAt string) string {
	all := strings.Join(joiners, " ")
	return `[Unit]
Description=refit: is this boot image new enough to join?
Documentation=https://github.com/refit-dev/refit
ConditionPathExists=` + limitsAt + `
After=local-fs.target
Before=` + all + `

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '` + runAgent() + `'
StandardOutput=journal+console
StandardError=journal+console
TimeoutStartSec=180

[Install]
RequiredBy=` + all + `
`
}

// runAgent is the script of the unit. A shell may run a program of /var with any SELinux label,
// which systemd itself may not.
func runAgent() string {
	var out strings.Builder
	for _, a := range agents {
		fmt.Fprintf(&out, "if [ -x %s ]; then exec %[1]s first-boot; fi; ", a)
	}
	return out.String() + "echo \"" + noAgent + "\""
}

// noAgent is what the console says of a machine that joins without the check.
const noAgent = "refit: this machine joins without a check of its boot image: it has no refit-agent. " +
	"Put it into the image, or set refit.dev/first-boot-agent on the Secret of its pool."
