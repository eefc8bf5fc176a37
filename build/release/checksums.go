package main

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// checksums names every file of the release as sha256sum does, and signs that with the key:
// openssl pkeyutl -verify -rawin -pubin -inkey refit.pub -in SHA256SUMS -sigfile SHA256SUMS.sig
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		sum, err := fsutil.Digest(filepath.Join(r.output, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", strings.TrimPrefix(sum, "sha256:"), e.Name())
	}
	if err := os.WriteFile(filepath.Join(r.output, "SHA256SUMS"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	if r.key == "" {
		return nil
	}
	pem, err := os.ReadFile(r.key)
	if err != nil {
		return err
	}
	key, err := bundle.ParsePrivateKeyPEM(pem)
	if err != nil {
		return fmt.Errorf("%s: %w", r.key, err)
	}
	return os.WriteFile(filepath.Join(r.output, "SHA256SUMS.sig"), ed25519.Sign(key, []byte(text.String())), 0o644)
}
