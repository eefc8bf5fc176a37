package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

const payloadSize = 256 << 20

// makeBundle makes a bundle with one incompressible payload of this size.
func makeBundle(b testing.TB, size int64) string {
	b.Helper()
	dir := b.TempDir()
	payload := filepath.Join(dir, "payload")
	f, err := os.Create(payload)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), size); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(dir, "b.tar")
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	if _, err := bundlewriter.Create(context.Background(), out, bundlewriter.Options{Name: "bench", Version: "1.0.0", Key: key, Sources: []string{"payload:blob@v1.0.0=" + payload}}, nil); err != nil {
		b.Fatal(err)
	}
	return out
}

// BenchmarkVerify reads and checks a whole bundle. Its limit is SHA-256 over the
// same bytes: BenchmarkVerifyLimit.
func BenchmarkVerify(b *testing.B) {
	path := makeBundle(b, payloadSize)
	b.SetBytes(payloadSize)
	for b.Loop() {
		f, err := bundlereader.OpenPath(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := bundlereader.Verify(context.Background(), f, nil); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// BenchmarkVerifyLimit hashes the same file and does nothing else.
func BenchmarkVerifyLimit(b *testing.B) {
	path := makeBundle(b, payloadSize)
	b.SetBytes(payloadSize)
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(sha256.New(), f); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
