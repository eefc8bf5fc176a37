package bundlecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// noTime is the time of creation of an SBOM: SPDX asks for one, and a bundle has none.
const noTime = "1970-01-01T00:00:00Z"

const (
	noAssertion = "NOASSERTION"
	documentID  = "SPDXRef-DOCUMENT"
	bundleID    = "SPDXRef-Bundle"
)

// spdxDocument is an SPDX 2.3 document in JSON, with the members that refit writes.
type spdxDocument struct {
	Version           string             `json:"spdxVersion"`
	License           string             `json:"dataLicense"`
	ID                string             `json:"SPDXID"`
	Name              string             `json:"name"`
	Namespace         string             `json:"documentNamespace"`
	Creation          spdxCreation       `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
	DocumentDescribes []string           `json:"documentDescribes"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
	Comment  string   `json:"comment"`
}

type spdxPackage struct {
	ID               string         `json:"SPDXID"`
	Name             string         `json:"name"`
	Version          string         `json:"versionInfo,omitempty"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	Copyright        string         `json:"copyrightText"`
	Purpose          string         `json:"primaryPackagePurpose,omitempty"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	Refs             []spdxRef      `json:"externalRefs,omitempty"`
	Comment          string         `json:"comment,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// sbomOf lists the content of a bundle. The same bundle gives the same bytes.
func sbomOf(h *bundle.Header) spdxDocument {
	m := h.Metadata
	d := spdxDocument{Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: m.Name + "-" + m.Version,
		Namespace: "https://refit.dev/spdx/bundle/" + strings.TrimPrefix(h.Digest, "sha256:"), DocumentDescribes: []string{bundleID},
		Creation: spdxCreation{Created: noTime, Creators: []string{"Tool: refit-" + componentversion.Refit()},
			Comment: "A bundle has no time of creation, so that the same contents give the same bytes."}}
	d.Packages = append(d.Packages, newPackage(bundleID, m.Name, m.Version, h.Digest, "ARCHIVE", ""))
	d.relate(documentID, "DESCRIBES", bundleID)
	for i, img := range m.Images {
		p := newPackage(fmt.Sprintf("SPDXRef-Image-%d", i+1), oci.Repository(img.Name), oci.Tag(img.Name), img.Digest, "CONTAINER", imagePurl(img))
		p.Comment = "group " + img.Group
		d.contain(p)
	}
	for i, pl := range m.Payloads {
		p := newPackage(fmt.Sprintf("SPDXRef-Payload-%d", i+1), pl.Name, pl.Version, pl.Digest, purposeOf(pl), payloadPurl(pl))
		if pl.Platform != "" {
			p.Comment = "platform " + pl.Platform
		}
		d.contain(p)
	}
	return d
}

func (d *spdxDocument) contain(p spdxPackage) {
	d.Packages = append(d.Packages, p)
	d.relate(bundleID, "CONTAINS", p.ID)
}

func (d *spdxDocument) relate(from, kind, to string) {
	d.Relationships = append(d.Relationships, spdxRelationship{from, kind, to})
}

func newPackage(id, name, release, digest, purpose, purl string) spdxPackage {
	p := spdxPackage{ID: id, Name: name, Version: release, DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
		Purpose: purpose, Checksums: []spdxChecksum{{"SHA256", strings.TrimPrefix(digest, "sha256:")}}}
	if purl != "" {
		p.Refs = []spdxRef{{"PACKAGE-MANAGER", "purl", purl}}
	}
	return p
}

// purposeOf is what a payload is for: programs are executable, manifests and streams are files.
func purposeOf(p bundle.Payload) string {
	if p.Mode&0o111 != 0 {
		return "APPLICATION"
	}
	return "FILE"
}

// imagePurl is the package URL of an image by its digest. Qualifiers are in alphabetical order.
func imagePurl(i bundle.Image) string {
	repository := oci.Repository(i.Name)
	q := "?repository_url=" + strings.ReplaceAll(url.QueryEscape(repository), "%2F", "/")
	if tag := oci.Tag(i.Name); tag != "" {
		q += "&tag=" + url.QueryEscape(tag)
	}
	return "pkg:oci/" + strings.ToLower(path.Base(repository)) + "@" + url.QueryEscape(i.Digest) + q
}

func payloadPurl(p bundle.Payload) string {
	s := "pkg:generic/" + url.PathEscape(p.Name)
	if p.Version != "" {
		s += "@" + url.QueryEscape(p.Version)
	}
	return s + "?checksum=" + p.Digest
}

func writeSBOM(w io.Writer, h *bundle.Header) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(sbomOf(h))
}
