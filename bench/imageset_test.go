package bench

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
)

// imageSet is thirty images in an OCI layout, 2.1 GiB compressed and about twice that
// unpacked. Each image has one of three bases, shared layers (six in all) and two to four
// layers of its own. The layers have binaries, texts and incompressible data; the bytes are
// the same every time.
type imageSet struct {
	dir    string
	images []ocispec.Descriptor
	bytes  int64
	// release 1 is the next version: four of five layers are rebuilt with a new time, and 15% of the
	// files in them are changed, half of them a little.
	release int
	// divide makes the layers and the programs in them smaller; 0 does not.
	divide int64
}

// words is what files of a kind are made of, each twice as frequent as the next few.
func words(seed byte, n, shortest, longest int, letter func(r *rand.Rand) byte) [][]byte {
	r := rand.New(rand.NewChaCha8([32]byte{seed}))
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, shortest+r.IntN(longest-shortest))
		for j := range out[i] {
			out[i][j] = letter(r)
		}
	}
	return out
}

var (
	textWords   = words(1, 4096, 3, 14, func(r *rand.Rand) byte { return "etaoinshrdlu \n\tbcfgkmpvwy"[r.IntN(25)] })
	binaryWords = words(2, 8192, 5, 21, func(r *rand.Rand) byte { return byte(r.Uint32()) & byte(r.Uint32()|0x0f) })
)

// content writes n bytes of a kind: 0 a program, 1 a text, 2 noise.
func content(w io.Writer, kind int, n int64, seed [32]byte) error {
	noise := rand.NewChaCha8(seed)
	if kind == 2 {
		_, err := io.CopyN(w, noise, n)
		return err
	}
	r := rand.New(noise)
	dictionary := textWords
	if kind == 0 {
		dictionary = binaryWords
	}
	buf := make([]byte, 0, 64<<10)
	for n > 0 {
		buf = buf[:0]
		for len(buf) < 63<<10 {
			i := r.IntN(len(dictionary))
			if r.IntN(4) != 0 {
				i &= 255
			}
			buf = append(buf, dictionary[i]...)
			if kind == 0 && r.IntN(5) == 0 {
				buf = binary.LittleEndian.AppendUint64(buf, r.Uint64())
			}
		}
		part := buf[:min(int64(len(buf)), n)]
		if _, err := w.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// layer writes a layer of about size bytes unpacked and says what it became.
func (s *imageSet) layer(name string, size int64) (blob ocispec.Descriptor, diff digest.Digest, err error) {
	tmp := filepath.Join(s.dir, "new-"+name)
	f, err := os.Create(tmp)
	if err != nil {
		return blob, "", err
	}
	defer f.Close()
	packed, raw := sha256.New(), sha256.New()
	out := bufio.NewWriterSize(f, 1<<20)
	z, err := gzip.NewWriterLevel(io.MultiWriter(out, packed), gzip.BestSpeed)
	if err != nil {
		return blob, "", err
	}
	tw := tar.NewWriter(io.MultiWriter(z, raw))
	r := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(name))))
	changes := rand.New(rand.NewChaCha8(sha256.Sum256([]byte("changes of " + name))))
	rebuilt, built := s.release > 0 && changes.IntN(5) > 0, int64(1760000000)
	if rebuilt {
		built += 86400
	}
	for i, left := 0, size; left > 0; i++ {
		n, kind := 256+r.Int64N(64<<10), r.IntN(3)
		if i%40 == 0 { // most of the bytes are in a few programs
			n, kind = (2<<20+r.Int64N(8<<20))/max(1, s.divide), 0
		}
		n = min(n, left)
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/%s/f%05d", name, i), Mode: 0o644, Size: n, ModTime: time.Unix(built, 0)}); err != nil {
			return blob, "", err
		}
		seed, to := fmt.Append(nil, name, i), io.Writer(tw)
		switch change := changes.IntN(200); {
		case rebuilt && change < 15:
			seed = append(seed, "new"...)
		case rebuilt && change < 30:
			to = &edited{w: tw, left: 1000}
		}
		if err := content(to, kind, n, sha256.Sum256(seed)); err != nil {
			return blob, "", err
		}
		left -= n
	}
	for _, end := range []func() error{tw.Close, z.Close, out.Flush} {
		if err := end(); err != nil {
			return blob, "", err
		}
	}
	st, err := f.Stat()
	if err != nil {
		return blob, "", err
	}
	blob = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.NewDigest(digest.SHA256, packed), Size: st.Size()}
	return blob, digest.NewDigest(digest.SHA256, raw), os.Rename(tmp, s.path(blob.Digest))
}

func (s *imageSet) path(d digest.Digest) string {
	return filepath.Join(s.dir, "blobs", "sha256", d.Encoded())
}

func (s *imageSet) put(mediaType string, v any) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	sum := sha256.Sum256(text)
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.NewDigestFromEncoded(digest.SHA256, hex.EncodeToString(sum[:])), Size: int64(len(text))}
	return d, os.WriteFile(s.path(d.Digest), text, 0o600)
}

// imagesVar names a directory in which the set is kept for the next time.
const imagesVar = "REFIT_BENCH_IMAGES"

func makeImageSet(t *testing.T) *imageSet {
	t.Helper()
	s := &imageSet{dir: os.Getenv(imagesVar)}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "index.json")); err == nil {
		var index ocispec.Index
		if err := json.Unmarshal(text, &index); err != nil {
			t.Fatal(err)
		}
		s.images = index.Manifests
	} else if err := s.write(); err != nil {
		t.Fatal(err)
	}
	blobs, err := os.ReadDir(filepath.Join(s.dir, "blobs", "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		st, err := b.Info()
		if err != nil {
			t.Fatal(err)
		}
		s.bytes += st.Size()
	}
	return s
}

func (s *imageSet) write() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "blobs", "sha256"), 0o755); err != nil {
		return err
	}
	type made struct {
		name string
		size int64
		blob ocispec.Descriptor
		diff digest.Digest
	}
	var layers []*made
	add := func(name string, mib int64) *made {
		m := &made{name: name, size: mib << 20 / max(1, s.divide)}
		layers = append(layers, m)
		return m
	}
	var bases, middles []*made
	for i := range 3 {
		bases = append(bases, add(fmt.Sprint("base", i), 80+int64(i)*15))
	}
	for i := range 6 {
		middles = append(middles, add(fmt.Sprint("middle", i), 35+int64(i)*7))
	}
	var images [][]*made
	for i := range 30 {
		layersOf := []*made{bases[i%3]}
		if i%4 != 0 {
			layersOf = append(layersOf, middles[i%6])
		}
		own := 2 + i%3
		for k := range own {
			layersOf = append(layersOf, add(fmt.Sprintf("app%02d-%d", i, k), int64(130/own)))
		}
		images = append(images, layersOf)
	}
	var group errgroup.Group
	group.SetLimit(2)
	for _, l := range layers {
		group.Go(func() (err error) {
			l.blob, l.diff, err = s.layer(l.name, l.size)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, of := range images {
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
		c := ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
		for _, l := range of {
			m.Layers, c.RootFS.DiffIDs = append(m.Layers, l.blob), append(c.RootFS.DiffIDs, l.diff)
		}
		var err error
		if m.Config, err = s.put(ocispec.MediaTypeImageConfig, c); err != nil {
			return err
		}
		d, err := s.put(ocispec.MediaTypeImageManifest, m)
		if err != nil {
			return err
		}
		d.Annotations = map[string]string{ocispec.AnnotationRefName: fmt.Sprintf("registry.example/app%02d:1", i), "io.containerd.image.name": fmt.Sprintf("registry.example/app%02d:1", i)}
		s.images = append(s.images, d)
	}
	return s.index()
}

// archive writes the set as one tar, as `ctr image import` wants it: manifests before
// layers is not needed, the layout's own files first is.
func (s *imageSet) archive(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	tw := tar.NewWriter(f)
	blobs, err := filepath.Glob(filepath.Join(s.dir, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	for _, b := range append([]string{filepath.Join(s.dir, "oci-layout"), filepath.Join(s.dir, "index.json")}, blobs...) {
		if err := s.addTo(tw, b); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return f.Sync()
}

func (s *imageSet) addTo(tw *tar.Writer, path string) error {
	name, err := filepath.Rel(s.dir, path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
