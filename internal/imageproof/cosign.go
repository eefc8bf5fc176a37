package imageproof

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	simpleSigningType     = "cosign container image signature"
)

// parseSimpleSigning reads a payload whose signature is in an annotation of its layer.
func parseSimpleSigning(l Layer) (*Proof, error) {
	var doc struct {
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(l.Content, &doc); err != nil {
		return nil, problemf(Damaged, "the payload of cosign is not JSON: %s", err)
	}
	if doc.Critical.Type != simpleSigningType {
		return nil, problemf(Unsupported, "the payload has type %.80q, not %q", doc.Critical.Type, simpleSigningType)
	}
	if !ValidDigest(doc.Critical.Image.Digest) {
		return nil, problemf(Damaged, "the payload of cosign names the digest %.80q", doc.Critical.Image.Digest)
	}
	if l.Annotations[annotationCertificate] != "" {
		return nil, problemf(Unsupported, "the signature of cosign is keyless (it has a certificate): only signatures by keys are verified")
	}
	sig, err := base64.StdEncoding.DecodeString(l.Annotations[annotationSignature])
	if err != nil || len(sig) == 0 {
		return nil, problemf(Damaged, "the layer has no signature in base64 in its annotation %s", annotationSignature)
	}
	return &Proof{Format: FormatCosign, Kind: KindSignature, message: l.Content, signatures: [][]byte{sig},
		Claims: []Claim{{Digest: doc.Critical.Image.Digest, Repository: repositoryOf(doc.Critical.Identity.Reference)}}}, nil
}

// repositoryOf drops tag and digest of a reference.
func repositoryOf(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	slash := strings.LastIndexByte(ref, '/')
	if colon := strings.LastIndexByte(ref, ':'); colon > slash {
		ref = ref[:colon]
	}
	return NormalRepository(ref)
}

// NormalRepository writes a repository with its registry, as image names in a bundle have it.
func NormalRepository(s string) string {
	if s == "" {
		return ""
	}
	for _, hub := range []string{"index.docker.io/", "registry-1.docker.io/"} {
		if rest, ok := strings.CutPrefix(s, hub); ok {
			s = "docker.io/" + rest
		}
	}
	first, rest, slash := strings.Cut(s, "/")
	if !slash || !strings.ContainsAny(first, ".:") && first != "localhost" {
		first, rest = "docker.io", s
	}
	if first == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return first + "/" + rest
}
