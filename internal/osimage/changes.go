package osimage

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Changes lists the new, changed and removed parts of a configuration, files by path first. A
// new or changed file or unit has the actions that the wanted configuration declares; a removed
// one has none.
func Changes(old, wanted model.NodeConfig) []Change {
	var out []Change
	out = append(out, changedFiles(old, wanted)...)
	out = append(out, changedUnits(old, wanted)...)
	if old.OS.ArgumentsValue() != wanted.OS.ArgumentsValue() {
		out = append(out, Change{Kind: ChangeArguments})
	}
	if !slices.Equal(old.Packages, wanted.Packages) {
		out = append(out, Change{Kind: ChangePackages})
	}
	return out
}

// isSSHKeys reports whether a file has a user's ssh keys.
func isSSHKeys(f model.ConfigFile) bool {
	return strings.HasSuffix(f.Path, "/.ssh/authorized_keys")
}

func fileChange(f model.ConfigFile, says []Action) Change {
	if isSSHKeys(f) {
		return Change{Kind: ChangeSSHKey, Name: f.Path}
	}
	if f.InImage || strings.HasPrefix(f.Path, "/usr/") && !strings.HasPrefix(f.Path, "/usr/local/") {
		return Change{Kind: ChangeImage, Name: f.Path}
	}
	return Change{Kind: ChangeFile, Name: f.Path, Declared: says}
}

func changedFiles(old, wanted model.NodeConfig) []Change {
	had := map[string]model.ConfigFile{}
	for _, f := range old.Files {
		had[f.Path] = f
	}
	var out []Change
	for _, f := range wanted.Files {
		before, ok := had[f.Path]
		delete(had, f.Path)
		if !ok || before.Value() != f.Value() {
			out = append(out, fileChange(f, ActionsOf(f.Disruption, f.Units)))
		}
	}
	for _, f := range old.Files {
		if _, gone := had[f.Path]; gone && !f.Absent {
			out = append(out, fileChange(f, nil))
		}
	}
	return out
}

func changedUnits(old, wanted model.NodeConfig) []Change {
	had := map[string]string{}
	for _, u := range old.Units {
		had[u.Name] = u.State
	}
	var out []Change
	for _, u := range wanted.Units {
		state := had[u.Name]
		delete(had, u.Name)
		if state != u.State {
			out = append(out, Change{Kind: ChangeUnit, Name: u.Name, Declared: ActionsOf(u.Disruption, []string{u.Name})})
		}
	}
	for _, u := range old.Units {
		if _, gone := had[u.Name]; gone {
			out = append(out, Change{Kind: ChangeUnit, Name: u.Name})
		}
	}
	return out
}
