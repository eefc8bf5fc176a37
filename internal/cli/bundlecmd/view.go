package bundlecmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// bundleView is what `refit bundle inspect -o json` prints. Sizes are bytes.
type bundleView struct {
	APIVersion        string `json:"apiVersion"`
	Kind              string `json:"kind"`
	Digest            string `json:"digest"`
	Name              string `json:"name"`
	Version           string `json:"version"`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	FormatVersion     int    `json:"formatVersion"`
	MinRefit          string `json:"minRefit"`
	// Size of the file; UnpackedSize of all distinct layers.
	Size         int64    `json:"size"`
	UnpackedSize int64    `json:"unpackedSize"`
	HeaderSize   int64    `json:"headerSize"`
	Blobs        int      `json:"blobs"`
	ChunkSize    int64    `json:"chunkSize"`
	Chunks       int64    `json:"chunks"`
	Platforms    []string `json:"platforms"`
	// Constraints on nodes that the bundle's maker set.
	Constraints []bundle.Constraint `json:"constraints,omitempty"`
	Images      []imageView         `json:"images"`
	Payloads    []payloadView       `json:"payloads"`
	Signatures  []signatureView     `json:"signatures"`
	// Proofs are the signatures and documents of images that the bundle carries.
	Proofs []proofView `json:"proofs,omitempty"`
	// Roles are what nodes of each role and platform store.
	Roles []roleView `json:"roles"`
	// Fit is how it fits the nodes of the cluster, with --cluster.
	Fit *Fit `json:"fit,omitempty"`
}

type imageView struct {
	Name         string `json:"name"`
	Digest       string `json:"digest"`
	MediaType    string `json:"mediaType"`
	Group        string `json:"group"`
	Size         int64  `json:"size"`
	UnpackedSize int64  `json:"unpackedSize"`
}

type payloadView struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Platform string `json:"platform,omitempty"`
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
	// Mode in octal, for example 0755.
	Mode string `json:"mode"`
}

type signatureView struct {
	KeyID       string `json:"keyid"`
	PayloadType string `json:"payloadType"`
	Algorithm   string `json:"algorithm"`
}

func viewOf(h *bundle.Header) bundleView {
	m := h.Metadata
	v := bundleView{APIVersion: "refit.dev/bundle/v1", Kind: "Bundle", Digest: h.Digest, Name: m.Name, Version: m.Version,
		KubernetesVersion: m.KubernetesVersion, FormatVersion: m.FormatVersion, MinRefit: m.MinRefit,
		Size: h.FileSize(), HeaderSize: h.HeaderSize(), Blobs: len(m.Blobs), ChunkSize: m.ChunkSize, Chunks: h.ChunkCount(),
		Platforms: append([]string{}, m.Platforms...), Constraints: m.Constraints, Images: []imageView{}, Payloads: []payloadView{}, Signatures: []signatureView{}}
	for _, b := range m.Blobs {
		v.UnpackedSize += b.UnpackedSize
	}
	for _, i := range m.Images {
		v.Images = append(v.Images, imageView{i.Name, i.Digest, i.MediaType, i.Group, i.Size, i.UnpackedSize})
	}
	for _, p := range m.Payloads {
		v.Payloads = append(v.Payloads, payloadView{p.Name, p.Version, p.Platform, p.Digest, p.Size, fmt.Sprintf("%04o", p.Mode)})
	}
	for _, e := range h.Signatures {
		for _, s := range e.Signatures {
			v.Signatures = append(v.Signatures, signatureView{s.KeyID, e.PayloadType, "ed25519"})
		}
	}
	v.Roles = viewRoles(h, nil)
	return v
}

// table writes a view for people; wide shows whole digests, verified marks proofs that a policy
// verified now.
func (v bundleView) table(w io.Writer, wide, verified bool) error {
	digest := text.ShortDigest
	if wide {
		digest = func(s string) string { return s }
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(tw, strings.Join(cells, "\t")) }
	row("Bundle:", v.Name+" "+v.Version)
	row("Digest:", v.Digest)
	if v.KubernetesVersion != "" {
		row("Kubernetes:", v.KubernetesVersion)
	}
	row("Size:", fmt.Sprintf("%s (%s unpacked), %d blobs, %d chunks", explain.Bytes(v.Size), explain.Bytes(v.UnpackedSize), v.Blobs, v.Chunks))
	row("Platforms:", orNone(v.Platforms))
	for _, c := range v.Constraints {
		row("For nodes with:", c.String())
	}
	row("Needs refit:", v.MinRefit+" or later")
	row("Signed by key:", orNone(v.keyIDs()))
	row("")
	row("IMAGE", "GROUP", "SIZE", "UNPACKED", "DIGEST")
	for _, i := range v.Images {
		row(i.Name, i.Group, explain.Bytes(i.Size), explain.Bytes(i.UnpackedSize), digest(i.Digest))
	}
	if len(v.Payloads) > 0 {
		row("")
		row("PAYLOAD", "VERSION", "PLATFORM", "SIZE", "DIGEST")
	}
	for _, p := range v.Payloads {
		row(p.Name, orDash(p.Version), orDash(p.Platform), explain.Bytes(p.Size), digest(p.Digest))
	}
	if len(v.Roles) > 0 {
		roleRows(row, v.Roles)
	}
	proofRows(row, v.Proofs, verified)
	return tw.Flush()
}

func (v bundleView) keyIDs() []string {
	var ids []string
	for _, s := range v.Signatures {
		ids = append(ids, s.KeyID)
	}
	return ids
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
