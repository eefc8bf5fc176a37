package ignition

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// CloudInit is the configuration as cloud-init's own format, which is YAML and so may
// be JSON. first is what a person gives such machines, empty for none: it is read before.
func CloudInit(c model.NodeConfig, first string) (text []byte, left []string, err error) {
	files, left := filesOf(c)
	commands := unitCommands(c.Units)
	switch {
	case c.OS == nil:
	case c.OS.Image != "": // it comes last: it restarts the machine
		files = append(append(files, pivotFiles(c.OS)...), model.ConfigFile{Path: "/etc/systemd/system/" + PivotUnit, Mode: 0o644, Data: []byte(pivotUnit())})
		commands = append(commands, []string{"systemctl", "daemon-reload"}, []string{"systemctl", "enable", PivotUnit}, []string{"systemctl", "start", PivotUnit})
	case len(c.OS.KernelArguments) > 0:
		left = append(left, "kernel arguments "+strings.Join(c.OS.KernelArguments, " "))
	}
	var write []map[string]any
	for _, f := range files {
		write = append(write, map[string]any{"path": f.Path, "permissions": fmt.Sprintf("%04o", f.Mode), "owner": nameOr(f.Owner) + ":" + nameOr(f.Group),
			"encoding": "b64", "content": base64.StdEncoding.EncodeToString(f.Data)})
	}
	config := map[string]any{}
	if len(write) > 0 {
		config["write_files"] = write
	}
	if len(commands) > 0 {
		config["runcmd"] = commands
	}
	own, err := json.Marshal(config)
	if err != nil {
		return nil, nil, err
	}
	// Lists of both are kept: cloud-init would take the later one alone.
	part := map[string]string{"type": "text/cloud-config", "content": "#cloud-config\n" + string(own) + "\n", "merge_type": "list(append)+dict(recurse_array)+str()"}
	parts := []map[string]string{part}
	if strings.TrimSpace(first) != "" {
		parts = []map[string]string{{"type": kindOf(first), "content": first}, part}
	}
	list, err := json.Marshal(parts)
	return append([]byte("#cloud-config-archive\n"), append(list, '\n')...), left, err
}

// unitCommands bring units into their states.
func unitCommands(units []model.ConfigUnit) (out [][]string) {
	verbs := map[string]string{model.UnitEnabled: "enable", model.UnitMasked: "mask", model.UnitDisabled: "disable"}
	if len(units) > 0 {
		out = append(out, []string{"systemctl", "daemon-reload"})
	}
	for _, u := range units {
		out = append(out, []string{"systemctl", verbs[u.State], "--now", u.Name})
	}
	return out
}

// kindOf what a person gave, by its first line as cloud-init knows it.
func kindOf(text string) string {
	if strings.HasPrefix(text, "#!") {
		return "text/x-shellscript"
	}
	return "text/cloud-config"
}

func nameOr(s string) string {
	if s == "" {
		return "root"
	}
	return s
}
