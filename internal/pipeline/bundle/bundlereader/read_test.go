package bundlereader_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func public(seed byte) ed25519.PublicKey { return bundletest.Key(seed).Public().(ed25519.PublicKey) }

// check is all that a careful reader does with a regular file of these bytes:
// open, find the trusted signature, verify.
func check(b []byte) error {
	f, err := bundlereader.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	if len(f.Header().SignedBy(map[string]ed25519.PublicKey{"trusted": public(1)})) == 0 {
		return errors.New("not signed by the trusted key")
	}
	return bundlereader.Verify(context.Background(), f, nil)
}

func TestAGoodBundleVerifies(t *testing.T) {
	if err := check(bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))); err != nil {
		t.Fatal(err)
	}
}

// There is no byte in the file, blob or not, whose change goes
// unnoticed. A change inside a signature is no change of the bundle: there
// the signature does not hold any more, everywhere else reading fails. Of the
// thousands of equal spaces that fill the signature slot every 16th is tried,
// of all else every byte.
func TestEveryFlippedByteIsFound(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	opened, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	header := len(opened.Header().Raw)
	for i := range file {
		if at := int64(i) - opened.Header().SlotOffset(); at > 0 && at < bundle.SignatureSlotSize-1 && file[i-1] == ' ' && file[i+1] == ' ' && i%16 != 3 {
			continue
		}
		flip := []byte{0x01, 0x20, 0x80, 0xff}[(i+i/16)%4]
		file[i] ^= flip
		var err error
		if i < header {
			err = check(file)
		} else { // Open reads the header only, so it need not be done again
			err = bundlereader.Verify(context.Background(), opened, nil)
		}
		if err == nil {
			t.Errorf("byte %d changed by %#x: not found", i, flip)
		}
		file[i] ^= flip
	}
	if err := check(file); err != nil {
		t.Fatalf("the test spoiled the bundle: %v", err)
	}
}

// Cut off anywhere, as a file or as a device, it is never taken for whole.
func TestEveryTruncationIsFound(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	for n := range file {
		// around the end of every block, and spread over all blocks
		if m := n % bundle.BlockSize; m > 1 && m < bundle.BlockSize-1 && n%37 != 0 {
			continue
		}
		if err := check(file[:n]); err == nil {
			t.Errorf("a file of %d of %d bytes verifies", n, len(file))
		}
		f, err := bundlereader.Open(bytes.NewReader(file[:n]), bundlereader.UnknownSize)
		if err == nil {
			err = bundlereader.Verify(context.Background(), f, nil)
		}
		if err == nil {
			t.Errorf("a device of %d of %d bytes verifies", n, len(file))
		}
		var corrupt *bundle.CorruptError
		if n >= bundle.BlockSize && !errors.As(err, &corrupt) {
			t.Errorf("a device of %d bytes: %v does not say where", n, err)
		}
	}
}

func TestBytesAfterTheEnd(t *testing.T) {
	file := append(bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1)), "rest of the disk"...)
	if err := check(file); err == nil || !strings.Contains(err.Error(), "after the end") {
		t.Errorf("a regular file: %v", err)
	}
	f, err := bundlereader.Open(bytes.NewReader(file), bundlereader.UnknownSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := bundlereader.Verify(context.Background(), f, nil); err != nil {
		t.Errorf("a device: %v", err)
	}
}

func TestAnEmptyMediumIsNoBundle(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 100), make([]byte, 10<<20), []byte("text")} {
		if _, err := bundlereader.Open(bytes.NewReader(b), bundlereader.UnknownSize); !errors.Is(err, bundle.ErrNotBundle) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
}

func TestBlobsAndChunksReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := bundletest.Tiny()
		s.Images[0].Layers = append(s.Images[0].Layers, rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(rt, "layer"))
		p := bundletest.Make(t, s)
		f, err := bundlereader.Open(bytes.NewReader(bundletest.Bytes(t, s)), bundlereader.UnknownSize)
		if err != nil {
			rt.Fatal(err)
		}
		for i, want := range p.Blobs {
			got, err := io.ReadAll(io.LimitReader(f.Blob(i), int64(len(want))+1))
			if err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("blob %d: %d bytes, %v", i, len(got), err)
			}
		}
		buf := make([]byte, 0, s.ChunkSize)
		for n := range f.Header().Chunks.Len() {
			c := f.Header().Chunks.Chunk(n)
			got, err := f.ReadChunk(n, buf)
			if err != nil || !bytes.Equal(got, p.Blobs[c.Blob][c.Offset:c.Offset+c.Size]) {
				rt.Fatalf("chunk %d: %v", n, err)
			}
		}
	})
	f, err := bundlereader.Open(bytes.NewReader(bundletest.Bytes(t, bundletest.Tiny())), bundlereader.UnknownSize)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, f.Header().Chunks.Len()} {
		if _, err := f.ReadChunk(n, nil); err == nil {
			t.Errorf("chunk %d was read", n)
		}
	}
}

// medium lets a test change or break what a USB stick returns.
type medium struct {
	b      []byte
	broken atomic.Int64 // reads from this offset on fail; 0: none
}

var errDevice = errors.New("input/output error")

func (m *medium) ReadAt(p []byte, off int64) (int, error) {
	if at := m.broken.Load(); at > 0 && off+int64(len(p)) > at {
		n := max(0, at-off)
		copy(p[:n], m.b[min(off, int64(len(m.b))):])
		return int(n), errDevice
	}
	return bytes.NewReader(m.b).ReadAt(p, off)
}

// A bundle is read from the medium that was opened; if the medium was swapped, the error
// says so.
func TestASwappedMediumIsReported(t *testing.T) {
	m := &medium{b: bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))}
	f, err := bundlereader.Open(m, bundlereader.UnknownSize)
	if err != nil {
		t.Fatal(err)
	}
	other := bundletest.Tiny()
	other.Version = "1.2.4"
	other.Images[0].Layers[0] = bytes.Repeat([]byte("other bytes"), 120)
	m.b = bundletest.Bytes(t, other, bundletest.Key(1))
	chunk, _ := f.Header().Chunks.OfBlob(f.Header().ImageByName("registry.example/app:1").Blobs[2])
	if _, err := f.ReadChunk(chunk, nil); err == nil || !strings.Contains(err.Error(), "swapped") {
		t.Errorf("ReadChunk: %v", err)
	}
	if err := bundlereader.Verify(context.Background(), f, nil); err == nil || !strings.Contains(err.Error(), "swapped") {
		t.Errorf("Verify: %v", err)
	}
}

// A bad sector is named with its image, blob and offset.
func TestAnUnreadableSectorIsNamed(t *testing.T) {
	m := &medium{b: bundletest.Bytes(t, bundletest.Tiny())}
	f, err := bundlereader.Open(m, bundlereader.UnknownSize)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Header()
	blob := h.ImageByName("registry.k8s.io/pause:3.10.2").Blobs[3]
	at := h.BlobOffset(blob)
	m.broken.Store(at)
	err = bundlereader.Verify(context.Background(), f, nil)
	var corrupt *bundle.CorruptError
	if !errors.As(err, &corrupt) || !errors.Is(err, errDevice) || corrupt.Offset != at || corrupt.Digest != h.Metadata.Blobs[blob].Digest ||
		corrupt.Image != "image registry.k8s.io/pause:3.10.2" {
		t.Fatalf("got %v, want the blob at %d", err, at)
	}
	first, _ := h.Chunks.OfBlob(blob)
	if _, err := f.ReadChunk(first, nil); !errors.Is(err, errDevice) {
		t.Errorf("ReadChunk: %v", err)
	}
	m.broken.Store(600)
	if _, err := bundlereader.Open(m, bundlereader.UnknownSize); !errors.Is(err, errDevice) {
		t.Errorf("Open: %v", err)
	}
}

// Of several damaged places the first is reported, regardless of which verifier finds it.
func TestTheFirstDamageIsReported(t *testing.T) {
	s := bundletest.Spec{Payloads: []bundletest.Payload{{Name: "big", Content: bytes.Repeat([]byte("0123456789"), 20000)}}}
	file := bundletest.Bytes(t, s)
	f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	at := f.Header().BlobOffset(0)
	for i := int64(5000); i < 200000; i += 3000 {
		file[at+i] ^= 1
	}
	for range 20 {
		var corrupt *bundle.CorruptError
		if err := bundlereader.Verify(context.Background(), f, nil); !errors.As(err, &corrupt) || corrupt.Offset != at+4608 || corrupt.Length != 512 {
			t.Fatalf("got %v", err)
		}
	}
}

func TestVerifyStopsWhenCancelled(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny())
	f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := bundlereader.Verify(ctx, f, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestProgressRisesToTheEnd(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny())
	f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	err = bundlereader.Verify(context.Background(), f, func(done, total int64) {
		if done < last || total != int64(len(file)) {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil || last != int64(len(file)) {
		t.Fatalf("ended at %d of %d, %v", last, len(file), err)
	}
}

func TestOpenPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b")
	if err := os.WriteFile(path, bundletest.Bytes(t, bundletest.Tiny()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := bundlereader.Verify(context.Background(), f, nil); err != nil {
		t.Error(err)
	}
	d, err := bundlereader.OpenPath(dir)
	if err != nil || d.Header().Digest != f.Header().Digest {
		t.Errorf("its directory: %v", err)
	} else {
		d.Close()
	}
	if _, err := bundlereader.OpenPath(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	content := bytes.Repeat([]byte("some bytes of a layer "), 6<<20)
	file := bundletest.Bytes(b, bundletest.Spec{ChunkSize: bundle.DefaultChunkSize, Payloads: []bundletest.Payload{{Name: "big", Content: content}}})
	f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if err := bundlereader.Verify(context.Background(), f, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A chunk table that is right for the bytes, and a blob digest that is not. The maker of the bundle did
// that: the bytes are those that it signed. No node could take such a blob.
func TestABlobOfAnotherDigestThanItsChunksIsFound(t *testing.T) {
	for _, workers := range []int{1, 4} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
		s := bundletest.Spec{Payloads: []bundletest.Payload{{Name: "big", Content: bytes.Repeat([]byte("0123456789"), 20000)}, {Name: "other", Content: bytes.Repeat([]byte("abc"), 5000)}}}
		p := bundletest.Make(t, s)
		p.Blobs[0] = bytes.Clone(p.Blobs[0])
		p.Blobs[0][70000] ^= 1
		p.Table = bundletest.Table(p.Blobs, p.Meta.ChunkSize)
		file := p.File(p.Header(t))
		f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		var corrupt *bundle.CorruptError
		if err := bundlereader.Verify(context.Background(), f, nil); err != nil {
			t.Errorf("%d workers: every byte is as the table says, got %v", workers, err)
		}
		if err := bundlereader.VerifyBlobs(context.Background(), f, nil); !errors.As(err, &corrupt) || corrupt.Part != "chunk table" || corrupt.Digest != p.Meta.Blobs[0].Digest || corrupt.Offset != f.Header().BlobOffset(0) {
			t.Errorf("%d workers: got %v", workers, err)
		}
	}
}
