package main

import (
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/fsutil"
)

// What krew reads: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
type (
	krewPlugin struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       krewSpec          `json:"spec"`
	}
	krewSpec struct {
		Version     string         `json:"version"`
		Homepage    string         `json:"homepage"`
		Short       string         `json:"shortDescription"`
		Description string         `json:"description"`
		Platforms   []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector krewSelector `json:"selector"`
		URI      string       `json:"uri"`
		SHA256   string       `json:"sha256"`
		Bin      string       `json:"bin"`
		Files    []krewFile   `json:"files"`
	}
	krewSelector struct {
		Labels map[string]string `json:"matchLabels"`
	}
	krewFile struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

// krew writes the manifest of the kubectl plug-in.
func (r *release) krew(platforms []platform) error {
	m := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "refit"},
		Spec: krewSpec{Version: "v" + r.version, Homepage: "https://github.com/refit-dev/refit", Short: "Update nodes in place, without a registry",
			Description: "Make bundles of images and programs, approve them, and update the nodes of a\ncluster in place: with progress, the reason of every wait, and a way back.\n"}}
	for _, p := range platforms {
		name := r.archiveName(p, "refit")
		sum, err := fsutil.Digest(filepath.Join(r.output, name))
		if err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{Selector: krewSelector{map[string]string{"os": p.os, "arch": p.arch}},
			URI: r.url + "/v" + r.version + "/" + name, SHA256: strings.TrimPrefix(sum, "sha256:"), Bin: p.program("refit"),
			Files: []krewFile{{p.program("refit"), "."}, {p.program("refit-render"), "."}, {"LICENSE", "."}}})
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.output, "krew-refit.yaml"), text, 0o644)
}
