package bundletest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"testing"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Publisher signs images as cosign does.
type Publisher struct {
	t   testing.TB
	key *ecdsa.PrivateKey
}

// NewPublisher has a new key.
func NewPublisher(t testing.TB) Publisher {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Publisher{t, k}
}

// PublicKey in PEM.
func (p Publisher) PublicKey() string {
	p.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// Archive is the payload of signatures of a bundle: one, of an image of the bundle, attached to
// the subject, whose text names repository and digest.
func (p Publisher) Archive(image, subject, repository, digest string) []byte {
	p.t.Helper()
	payload, signature := p.Sign(repository, digest)
	blobs := map[string][]byte{bundle.DigestOf(payload): payload, bundle.DigestOf([]byte("{}")): []byte("{}")}
	manifest, err := json.Marshal(imageproof.Manifest{MediaType: "application/vnd.oci.image.manifest.v1+json",
		Config: imageproof.Descriptor{MediaType: "application/vnd.oci.image.config.v1+json", Digest: bundle.DigestOf([]byte("{}")), Size: 2},
		Layers: []imageproof.Descriptor{{MediaType: imageproof.MediaTypeSimpleSigning, Digest: bundle.DigestOf(payload), Size: int64(len(payload)),
			Annotations: map[string]string{SignatureAnnotation: signature}}}})
	if err != nil {
		p.t.Fatal(err)
	}
	var out bytes.Buffer
	err = imageproof.WriteArchive(&out, []imageproof.Entry{{Image: image, Subject: subject, Manifest: imageproof.Descriptor{Digest: bundle.DigestOf(manifest), Size: int64(len(manifest))}}},
		map[string][]byte{bundle.DigestOf(manifest): manifest}, func(d imageproof.Descriptor) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(blobs[d.Digest])), nil
		})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.Bytes()
}

// SignatureAnnotation of a layer has cosign's signature of it.
const SignatureAnnotation = "dev.cosignproject.cosign/signature"

// Sign returns cosign's text about an image, and the signature of it.
func (p Publisher) Sign(repository, digest string) (payload []byte, signature string) {
	p.t.Helper()
	payload = fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, repository, digest)
	sum := sha256.Sum256(payload)
	sig, err := p.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		p.t.Fatal(err)
	}
	return payload, base64.StdEncoding.EncodeToString(sig)
}
