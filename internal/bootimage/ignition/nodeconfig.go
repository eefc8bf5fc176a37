package ignition

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/refit-dev/refit/internal/model"
)

// Versions of Ignition's configurations that are written: the least that has what is
// in it.
const (
	plainVersion = "3.2.0"
	kargsVersion = "3.3.0"
)

// configFile of Ignition.
type configFile struct {
	Path      string         `json:"path"`
	Mode      uint32         `json:"mode"`
	Overwrite bool           `json:"overwrite"`
	User      *fileOwner     `json:"user,omitempty"`
	Group     *fileOwner     `json:"group,omitempty"`
	Contents  configContents `json:"contents"`
}

type configContents struct {
	Source string `json:"source"`
}

type fileOwner struct {
	Name string `json:"name,omitempty"`
	ID   *int   `json:"id,omitempty"`
}

type configUnit struct {
	Name     string  `json:"name"`
	Enabled  *bool   `json:"enabled,omitempty"`
	Mask     bool    `json:"mask,omitempty"`
	Contents *string `json:"contents,omitempty"`
}

// FromNodeConfig is the configuration as Ignition of version 3; left names what the agent
// brings later.
func FromNodeConfig(c model.NodeConfig) (text []byte, left []string, err error) {
	doc := map[string]any{}
	version := plainVersion
	files, left := filesOf(c)
	var all []configFile
	for _, f := range files {
		all = append(all, configFile{Path: f.Path, Mode: f.Mode, Overwrite: true, User: ownerOf(f.Owner), Group: ownerOf(f.Group), Contents: configContents{inlineData(f.Data)}})
	}
	var units []configUnit
	for _, u := range c.Units {
		units = append(units, unitOf(u))
	}
	if image := c.OS; image != nil && image.Image != "" {
		text := pivotUnit()
		yes := true
		units = append(units, configUnit{Name: PivotUnit, Enabled: &yes, Contents: &text})
		for _, f := range pivotFiles(image) {
			all = append(all, configFile{Path: f.Path, Mode: f.Mode, Overwrite: true, Contents: configContents{inlineData(f.Data)}})
		}
	} else if image != nil && len(image.KernelArguments) > 0 { // without an OS image, only Ignition can set them
		version = kargsVersion
		doc["kernelArguments"] = map[string]any{"shouldExist": image.KernelArguments}
	}
	doc["ignition"] = map[string]any{"version": version}
	if len(all) > 0 {
		doc["storage"] = map[string]any{"files": all}
	}
	if len(units) > 0 {
		doc["systemd"] = map[string]any{"units": units}
	}
	text, err = json.Marshal(doc)
	return text, left, err
}

// filesOf a configuration that are written at the first boot, and what is not.
func filesOf(c model.NodeConfig) (files []model.ConfigFile, left []string) {
	for _, f := range c.Files {
		switch {
		case f.Absent, f.InImage, f.AsImage: // a new machine has nothing to take away; the image brings its own
		case f.Payload != "":
			left = append(left, "file "+f.Path+" comes with a bundle")
		default:
			files = append(files, f)
		}
	}
	if c.Kubelet != "" {
		left = append(left, "the kubelet's own drop-in")
	}
	if c.SandboxImage != "" {
		left = append(left, "the sandbox image of the container runtime")
	}
	if len(c.Certificates) > 0 {
		left = append(left, "certificates")
	}
	return files, left
}

func unitOf(u model.ConfigUnit) configUnit {
	out := configUnit{Name: u.Name}
	if u.State == model.UnitMasked {
		out.Mask = true
		return out
	}
	enabled := u.State == model.UnitEnabled
	out.Enabled = &enabled
	return out
}

// ownerOf a file by name or number; root needs no word.
func ownerOf(s string) *fileOwner {
	if s == "" || s == "root" {
		return nil
	}
	if id, err := strconv.Atoi(s); err == nil {
		return &fileOwner{ID: &id}
	}
	return &fileOwner{Name: s}
}

func inlineData(data []byte) string { return "data:;base64," + base64.StdEncoding.EncodeToString(data) }

// Merge is a configuration of several, the later ones first in what they say: each is
// inside byte for byte.
func Merge(version string, configs ...[]byte) ([]byte, error) {
	var parts []map[string]any
	for _, c := range configs {
		if !json.Valid(c) {
			return nil, fmt.Errorf("a configuration that is to be merged is no JSON")
		}
		parts = append(parts, map[string]any{"source": "data:application/vnd.coreos.ignition+json;base64," + base64.StdEncoding.EncodeToString(c)})
	}
	return json.Marshal(map[string]any{"ignition": map[string]any{"version": version, "config": map[string]any{"merge": parts}}})
}
