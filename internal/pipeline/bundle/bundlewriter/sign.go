package bundlewriter

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"syscall"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Sign adds a signature to a bundle in a file or on a device, in place: only
// bytes of the signature slot change. A signature of the same key is replaced.
func Sign(path string, key ed25519.PrivateKey) (*bundle.Header, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0) // a pipe never waits
	if err != nil {
		return nil, fmt.Errorf("sign bundle: %w", err)
	}
	defer f.Close()
	b, err := bundlereader.Open(f, bundlereader.UnknownSize)
	if err != nil {
		return nil, fmt.Errorf("sign bundle %s: %w", path, err)
	}
	h := b.Header()
	env, err := bundle.Sign(key, h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		return nil, fmt.Errorf("sign bundle %s: %w", path, err)
	}
	signed, err := h.WithSignature(env)
	if err != nil {
		return nil, fmt.Errorf("sign bundle %s: %w", path, err)
	}
	at := signed.SlotOffset()
	if _, err := f.WriteAt(signed.Raw[at:at+bundle.SignatureSlotSize], at); err != nil {
		return nil, fmt.Errorf("sign bundle %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("sign bundle %s: %w", path, err)
	}
	return signed, nil
}
