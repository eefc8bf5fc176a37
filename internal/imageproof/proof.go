package imageproof

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// Format is how a proof is encoded.
type Format string

// The formats.
const (
	FormatCosign   Format = "cosign"          // simple signing payload, signature in an annotation
	FormatDSSE     Format = "dsse"            // in-toto statement in a DSSE envelope
	FormatSigstore Format = "sigstore-bundle" // verification material and signature in one JSON
	FormatNotation Format = "notation"        // JWS or COSE envelope with a chain of certificates
	FormatPlain    Format = "unsigned"        // a document without a signature of its own
)

// Kind is what a proof states.
type Kind string

// The kinds.
const (
	KindSignature   Kind = "signature"
	KindSBOM        Kind = "sbom"
	KindProvenance  Kind = "provenance"
	KindAttestation Kind = "attestation"
	KindRecord      Kind = "release-record"
	KindOther       Kind = "other"
)

// Media types of layers that hold proofs.
const (
	MediaTypeSimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	MediaTypeDSSE          = "application/vnd.dsse.envelope.v1+json"
	MediaTypeJWS           = "application/jose+json"
	MediaTypeCOSE          = "application/cose"
	ArtifactTypeNotation   = "application/vnd.cncf.notary.signature"
	sigstorePrefix         = "application/vnd.dev.sigstore.bundle"
)

const (
	// MaxSignature bounds the document of a signature in bytes.
	MaxSignature = 1 << 20
	// MaxDocument bounds that of an attestation. A larger one is carried, and its signer is not determined.
	MaxDocument = 8 << 20
	// maxSubjects, maxSignatures and maxChain bound lists in documents.
	maxSubjects   = 1024
	maxSignatures = 64
	maxChain      = 16
)

// Reason is one word for why an image is refused.
type Reason string

// The reasons, and what each means.
const (
	Missing       Reason = "Missing"       // no signature of the wanted kind is there
	WrongKey      Reason = "WrongKey"      // no signature is valid under a key or root of the policy
	WrongDigest   Reason = "WrongDigest"   // the signature is valid and its payload names another digest
	Replayed      Reason = "Replayed"      // the signature is valid and its payload names another repository
	WrongIdentity Reason = "WrongIdentity" // a trusted root issued the certificate to another subject
	Expired       Reason = "Expired"       // the signature or a certificate of its chain is not valid now
	Damaged       Reason = "Damaged"       // the document cannot be read
	Unsupported   Reason = "Unsupported"   // the document has a form that refit does not verify
	NoRule        Reason = "NoRule"        // no rule of the policy covers the repository
	InvalidRule   Reason = "InvalidRule"   // a rule of a TrustPolicy cannot be read
)

// closeness orders reasons: with several signatures the one that came closest to valid is reported.
var closeness = map[Reason]int{Missing: 0, Damaged: 1, Unsupported: 2, WrongKey: 3, WrongIdentity: 4, WrongDigest: 5, Replayed: 6, Expired: 7}

// Problem is a reason with its sentence.
type Problem struct {
	Reason  Reason
	Message string
}

// Error is the reason and the sentence.
func (p *Problem) Error() string { return string(p.Reason) + ": " + p.Message }

func problemf(r Reason, format string, a ...any) *Problem {
	return &Problem{r, fmt.Sprintf(format, a...)}
}

// Layer is one document of an artifact, with the annotations of its descriptor.
type Layer struct {
	MediaType   string
	Annotations map[string]string
	Content     []byte
}

// Claim is an image that a signed payload is about.
type Claim struct {
	Digest string
	// Repository that the payload names, "" if it names none.
	Repository string
}

// Proof is one parsed document. Nothing of it is verified.
type Proof struct {
	Format Format
	Kind   Kind
	// Predicate is the type of the statement of an attestation.
	Predicate string
	Claims    []Claim

	message    []byte   // what keys signed
	sum        []byte   // SHA-256 of what keys signed, where the document has only that
	signatures [][]byte // of keys
	chain      []*x509.Certificate
	jws        string // algorithm of a JWS, "" for others
	expiry     time.Time
}

// Parse reads a document by its media type. The error is a *Problem.
func Parse(l Layer) (*Proof, error) {
	most := MaxDocument
	if l.MediaType == MediaTypeSimpleSigning || l.MediaType == MediaTypeJWS {
		most = MaxSignature
	}
	if len(l.Content) > most {
		return nil, problemf(Damaged, "the document has %d bytes, at most %d are read", len(l.Content), most)
	}
	switch {
	case l.MediaType == MediaTypeSimpleSigning:
		return parseSimpleSigning(l)
	case l.MediaType == MediaTypeDSSE:
		return parseDSSE(FormatDSSE, l.Content)
	case strings.HasPrefix(l.MediaType, sigstorePrefix):
		return parseSigstore(l.Content)
	case l.MediaType == MediaTypeJWS:
		return parseJWS(l.Content)
	case l.MediaType == MediaTypeCOSE:
		return nil, problemf(Unsupported, "the signature of notation is a COSE envelope: sign with --signature-format jws")
	}
	return &Proof{Format: FormatPlain, Kind: kindOf(l.MediaType)}, nil
}

// Parsed reports whether a document is read for its signature. Others are carried as they are.
func Parsed(mediaType string) bool {
	switch mediaType {
	case MediaTypeSimpleSigning, MediaTypeDSSE, MediaTypeJWS, MediaTypeCOSE:
		return true
	}
	return strings.HasPrefix(mediaType, sigstorePrefix)
}

// kindOf is the kind that a media type or a predicate type stands for.
func kindOf(s string) Kind {
	s = strings.ToLower(s)
	for _, k := range []struct {
		part string
		kind Kind
	}{
		{"cosign/sign/", KindSignature}, {"release-record", KindRecord}, {"spdx", KindSBOM}, {"cyclonedx", KindSBOM}, {"syft", KindSBOM},
		{"provenance", KindProvenance}, {"slsa", KindProvenance}, {"in-toto", KindAttestation}, {"in_toto", KindAttestation},
	} {
		if strings.Contains(s, k.part) {
			return k.kind
		}
	}
	return KindOther
}

// KindOfArtifact is the kind of an artifact whose documents are not read, by its type.
func KindOfArtifact(artifactType string) Kind { return kindOf(artifactType) }

// ValidDigest reports whether s is a SHA-256 digest as OCI writes it.
func ValidDigest(s string) bool {
	hexa, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hexa) == 64 && strings.Trim(hexa, "0123456789abcdef") == ""
}
