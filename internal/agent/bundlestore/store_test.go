package bundlestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

const chunk = 64

func blobOf(data []byte) Blob {
	sum := sha256.Sum256(data)
	b := Blob{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data)), ChunkSize: chunk}
	for off := 0; off < len(data); off += chunk {
		b.Sums = append(b.Sums, sha256.Sum256(data[off:min(off+chunk, len(data))]))
	}
	return b
}

func piece(data []byte, n int) []byte { return data[n*chunk : min((n+1)*chunk, len(data))] }

func readAll(t interface{ Fatal(...any) }, s *BlobStore, digest string) []byte {
	f, err := s.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Any chunks in any order, wrong ones among them, the program
// killed at any point, parts of the file torn: what is complete is right.
func TestStoreSurvivesAnyCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		data := rapid.SliceOfN(rapid.Byte(), 1, 6*chunk).Draw(t, "data")
		b := blobOf(data)
		s := BlobsAt(dir)
		type crash struct{}
		armed := ""
		restore := failpoint.OnHit(func(n string) {
			if n == armed {
				panic(crash{})
			}
		})
		defer restore()
		put := func(n int, d []byte) (err error) {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(crash); !ok {
						panic(r)
					}
					s = BlobsAt(dir) // a new process
				}
			}()
			_, err = s.Put(b, n, d)
			return err
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			n := rapid.IntRange(0, b.Chunks()-1).Draw(t, "chunk")
			switch rapid.SampledFrom([]string{"put", "bad", "crash", "tear", "restart"}).Draw(t, "what") {
			case "put":
				if err := put(n, piece(data, n)); err != nil {
					t.Fatal(err)
				}
			case "bad":
				bad := bytes.Clone(piece(data, n))
				bad[0] ^= 1
				if err := put(n, bad); !errors.Is(err, ErrBadChunk) {
					t.Fatalf("a wrong chunk was answered with %v", err)
				}
			case "crash":
				armed = rapid.SampledFrom([]string{failpoint.ChunkWritten, failpoint.BlobSync, failpoint.BlobRename}).Draw(t, "point")
				_ = put(n, piece(data, n))
				armed = ""
			case "tear":
				if f, err := os.OpenFile(s.path(b.Digest)+partSuffix, os.O_RDWR, 0); err == nil {
					off, size := b.span(n)
					_, _ = f.WriteAt(make([]byte, size), off)
					_ = f.Close()
					s = BlobsAt(dir)
				}
			case "restart":
				s = BlobsAt(dir)
			}
			if s.Has(b.Digest) && !bytes.Equal(readAll(t, s, b.Digest), data) {
				t.Fatal("a blob under its final name is not what it must be")
			}
		}
		for n := range b.Chunks() {
			if err := put(n, piece(data, n)); err != nil {
				t.Fatal(err)
			}
		}
		if !s.Has(b.Digest) || !bytes.Equal(readAll(t, s, b.Digest), data) {
			t.Fatal("all chunks were given, the blob is not complete")
		}
	})
}

func TestStore(t *testing.T) {
	data := bytes.Repeat([]byte("refit"), 100)
	for name, run := range map[string]func(t *testing.T, s *BlobStore, b Blob){
		"many writers at once make one blob": func(t *testing.T, s *BlobStore, b Blob) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for _, n := range rand.Perm(b.Chunks()) {
						if _, err := s.Put(b, n, piece(data, n)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if got := readAll(t, s, b.Digest); !bytes.Equal(got, data) {
				t.Fatal("content differs")
			}
		},
		"a chunk of a partial blob can be read by others": func(t *testing.T, s *BlobStore, b Blob) {
			if _, err := s.Put(b, 2, piece(data, 2)); err != nil {
				t.Fatal(err)
			}
			got, err := s.Get(b, 2, make([]byte, chunk))
			if err != nil || !bytes.Equal(got, piece(data, 2)) {
				t.Fatalf("got %q, %v", got, err)
			}
			if _, err := s.Get(b, 1, make([]byte, chunk)); !errors.Is(err, ErrAbsent) {
				t.Fatalf("a chunk that is not here was answered with %v", err)
			}
		},
		"peers get a chunk without another comparison for some minutes": func(t *testing.T, s *BlobStore, b Blob) {
			synctest.Test(t, func(t *testing.T) {
				if _, err := s.Put(b, 2, piece(data, 2)); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(s.path(b.Digest)+partSuffix, bytes.Repeat([]byte{1}, len(data)), 0o600); err != nil {
					t.Fatal(err)
				}
				got, err := s.getRecent(b, 2, make([]byte, chunk))
				if err != nil || bytes.Equal(got, piece(data, 2)) {
					t.Fatalf("got %q, %v: it was compared again at once", got, err)
				}
				time.Sleep(recent)
				if _, err := s.getRecent(b, 2, make([]byte, chunk)); !errors.Is(err, ErrAbsent) {
					t.Fatalf("after %s a rotten chunk was answered with %v", recent, err)
				}
			})
		},
		"a complete blob that rots is wanted again, the rest of it is kept": func(t *testing.T, s *BlobStore, b Blob) {
			for n := range b.Chunks() {
				if _, err := s.Put(b, n, piece(data, n)); err != nil {
					t.Fatal(err)
				}
			}
			raw, _ := os.ReadFile(s.path(b.Digest))
			raw[chunk] ^= 0xff
			if err := os.WriteFile(s.path(b.Digest), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(b, 1, make([]byte, chunk)); !errors.Is(err, ErrAbsent) {
				t.Fatalf("a rotten chunk was answered with %v", err)
			}
			have, err := s.Have(b)
			if err != nil {
				t.Fatal(err)
			}
			for n, h := range have {
				if h == (n == 1) {
					t.Fatalf("after rot of chunk 1 the store says have[%d]=%v", n, h)
				}
			}
			if s.Has(b.Digest) {
				t.Fatal("a rotten blob is still called complete")
			}
		},
		"a false chunk table of a blob completes nothing": func(t *testing.T, s *BlobStore, b Blob) {
			lie := blobOf(bytes.Repeat([]byte("wrong"), 100))
			lie.Digest = b.Digest
			var last error
			for n := range lie.Chunks() {
				_, last = s.Put(lie, n, piece(bytes.Repeat([]byte("wrong"), 100), n))
			}
			if last == nil || s.Has(b.Digest) {
				t.Fatalf("completed with %v", last)
			}
		},
		"a blob of no bytes is completed by Finish": func(t *testing.T, s *BlobStore, _ Blob) {
			e := blobOf(nil)
			if err := s.Finish(e); err != nil || !s.Has(e.Digest) {
				t.Fatalf("err %v, has %v", err, s.Has(e.Digest))
			}
		},
		"removed means gone, and it can be written anew": func(t *testing.T, s *BlobStore, b Blob) {
			if _, err := s.Put(b, 0, piece(data, 0)); err != nil {
				t.Fatal(err)
			}
			if err := s.Remove(b.Digest); err != nil {
				t.Fatal(err)
			}
			if l, _ := s.List(); len(l) != 0 {
				t.Fatalf("still listed: %v", l)
			}
			if _, err := s.Put(b, 0, piece(data, 0)); err != nil {
				t.Fatal(err)
			}
		},
		"a name that is not a digest is refused": func(t *testing.T, s *BlobStore, _ Blob) {
			for _, d := range []string{"", "../../etc/passwd", "sha256:../x", "sha512:00"} {
				if _, err := s.Open(d); err == nil {
					t.Errorf("%q was opened", d)
				}
				if s.Remove(d) == nil {
					t.Errorf("%q was removed", d)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, BlobsAt(filepath.Join(t.TempDir(), "blobs")), blobOf(data))
		})
	}
}

// A complete blob whose sync or rename failed must not stay for ever complete
// for those who ask for chunks and absent for those who ask for the blob.
func TestABlobThatCouldNotBeFinishedIsFinishedLater(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 300)
	b := blobOf(data)
	s := BlobsAt(t.TempDir())
	last := b.Chunks() - 1
	for n := range last {
		if _, err := s.Put(b, n, piece(data, n)); err != nil {
			t.Fatal(err)
		}
	}
	blocker := s.path(b.Digest) // a directory in its place: the rename fails
	if err := os.MkdirAll(filepath.Join(blocker, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(b, last, piece(data, last)); err == nil {
		t.Fatal("no error")
	}
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	for n := range b.Chunks() { // missing chunks come again
		if !s.HasChunk(b, n) {
			if _, err := s.Put(b, n, piece(data, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !s.Has(b.Digest) {
		t.Fatal("all chunks are reported here, the blob is not")
	}
}

// Two bundles may cut the same blob into chunks of different sizes.
func TestTwoBundlesCutABlobDifferently(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 300)
	a := blobOf(data)
	b := Blob{Digest: a.Digest, Size: a.Size, ChunkSize: a.ChunkSize / 2}
	for off := int64(0); off < b.Size; off += b.ChunkSize {
		b.Sums = append(b.Sums, sha256.Sum256(data[off:min(off+b.ChunkSize, b.Size)]))
	}
	cut := func(n int) []byte {
		return data[int64(n)*b.ChunkSize : min(int64(n+1)*b.ChunkSize, b.Size)]
	}
	for name, half := range map[string]bool{"the first has brought all of it": false, "the first has brought half of it": true} {
		t.Run(name, func(t *testing.T) {
			s := BlobsAt(t.TempDir())
			for n := range a.Chunks() {
				if half && n > a.Chunks()/2 {
					break
				}
				if _, err := s.Put(a, n, piece(data, n)); err != nil {
					t.Fatal(err)
				}
			}
			for n := range b.Chunks() {
				if s.HasChunk(b, n) {
					continue
				}
				if !half {
					t.Fatalf("chunk %d of a complete blob is missing", n)
				}
				if _, err := s.Put(b, n, cut(n)); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(readAll(t, s, b.Digest), data) {
				t.Fatal("other bytes")
			}
			for n := range b.Chunks() {
				if got, err := s.Get(b, n, make([]byte, b.ChunkSize)); err != nil || !bytes.Equal(got, cut(n)) {
					t.Fatalf("chunk %d: %v", n, err)
				}
			}
		})
	}
}

// If others delete or truncate a blob in the store, it is wanted again at once, not only
// after a restart: an image that is deleted with its blobs is restored.
func TestACompleteBlobThatGoesIsWantedAgain(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 3*chunk)
	b := blobOf(data)
	for name, harm := range map[string]func(path string) error{
		"deleted":                 os.Remove,
		"cut short, as by a loss": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := BlobsAt(t.TempDir())
			fill := func() {
				t.Helper()
				for n := range b.Chunks() {
					if kept, err := s.Put(b, n, piece(data, n)); err != nil || !kept {
						t.Fatalf("chunk %d: %v %v", n, kept, err)
					}
				}
			}
			fill()
			path, err := s.Path(b.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			if s.HasChunk(b, 0) {
				t.Fatal("a chunk of it is called here")
			}
			if _, err := s.Get(b, 1, make([]byte, chunk)); !errors.Is(err, ErrAbsent) {
				t.Fatalf("read: %v", err)
			}
			fill()
			if !bytes.Equal(readAll(t, s, b.Digest), data) {
				t.Fatal("it did not come back")
			}
		})
	}
}

// A store on a disk without room says so, keeps what it has, and goes on when there is room.
func TestStoreOnSmallDisks(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	b := blobOf(data)
	whole := func(dir string) bool {
		f, err := os.Open(filepath.Join(dir, b.Digest[len("sha256:"):]))
		if err != nil {
			return false
		}
		defer f.Close()
		got, err := io.ReadAll(f)
		return err == nil && bytes.Equal(got, data)
	}
	disktest.Writer{
		Write: func(dir string) error {
			s := BlobsAt(dir)
			defer func() { // an open file would keep the disk from becoming read-only
				for _, p := range s.parts {
					p.reset()
				}
			}()
			for n := range b.Chunks() {
				if _, err := s.Put(b, n, piece(data, n)); err != nil {
					return err
				}
			}
			return s.Finish(b)
		},
		Torn: func(dir string) string {
			if _, err := os.Stat(filepath.Join(dir, b.Digest[len("sha256:"):])); err == nil && !whole(dir) {
				return b.Digest
			}
			return ""
		},
		Whole:   whole,
		Partial: []string{"*" + partSuffix},
	}.Try(t, func(t *testing.T, dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
}
