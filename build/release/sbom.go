package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
)

// What SPDX 2.3 asks for in JSON: https://spdx.github.io/spdx-spec/v2.3/
type (
	spdxDocument struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      spdxCreation   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Purpose   string         `json:"primaryPackagePurpose"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const notAsserted = "NOASSERTION"

// sbom lists the programs of an archive and the Go modules that they are linked from.
func (r *release) sbom(p platform, product product) error {
	archive := r.archiveName(p, product.name)
	d := spdxDocument{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: archive,
		Namespace: "https://refit.dev/spdx/release/" + archive,
		Creation:  spdxCreation{r.date.Format(time.RFC3339), []string{"Tool: refit-release-" + r.version}}}
	modules := map[string]spdxPackage{}
	for _, name := range product.programs {
		file := filepath.Join(r.binaries, p.dir(), name)
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return err
		}
		program, err := r.programPackage(file, name)
		if err != nil {
			return err
		}
		d.Packages = append(d.Packages, program)
		d.Relationships = append(d.Relationships, spdxRelation{d.ID, "DESCRIBES", program.ID})
		for _, m := range linked(info, r.version) {
			modules[m.ID] = m
			d.Relationships = append(d.Relationships, spdxRelation{program.ID, "STATIC_LINK", m.ID})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		d.Packages = append(d.Packages, modules[id])
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.output, archive+".spdx.json"), append(text, '\n'), 0o644)
}

func (r *release) programPackage(file, name string) (spdxPackage, error) {
	sum, err := fsutil.Digest(file)
	if err != nil {
		return spdxPackage{}, err
	}
	return spdxPackage{ID: spdxID("program", name), Name: name, Version: r.version, Location: notAsserted, Concluded: notAsserted,
		Declared: "Apache-2.0", Copyright: notAsserted, Purpose: "APPLICATION", Checksums: []spdxChecksum{{"SHA256", strings.TrimPrefix(sum, "sha256:")}}}, nil
}

// linked are Go's standard library and the modules of a program. A module that comes from a
// directory is another one of this repository: it has the version of the release.
func linked(info *debug.BuildInfo, version string) []spdxPackage {
	out := []spdxPackage{modulePackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		switch {
		case m.Replace == nil:
		case m.Replace.Version == "":
			m = &debug.Module{Path: m.Path, Version: "v" + version}
		default:
			m = m.Replace
		}
		out = append(out, modulePackage(m.Path, m.Version))
	}
	return out
}

func modulePackage(path, version string) spdxPackage {
	return spdxPackage{ID: spdxID("module", path+"-"+version), Name: path, Version: version, Location: notAsserted, Concluded: notAsserted,
		Declared: notAsserted, Copyright: notAsserted, Purpose: "LIBRARY",
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:golang/%s@%s", path, version)}}}
}

// spdxID makes an identifier: letters, digits, dots and hyphens only.
func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' {
			return c
		}
		return '-'
	}, name)
}
