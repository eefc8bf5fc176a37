package bundlestore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// partsOf are the files of the parts of a bundle.
func partsOf(t testing.TB, raw []byte, step int64) (out [][]byte) {
	t.Helper()
	h, err := bundle.ParseHeader(raw[:headerSize(t, raw)])
	if err != nil {
		t.Fatal(err)
	}
	parts, err := bundle.SplitParts(h.Digest, int64(len(raw)), step)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		data := raw[p.Offset : p.Offset+p.Length]
		p.Digest = bundle.DigestOf(data)
		out = append(out, append(p.Header(), data...))
	}
	return out
}

func headerSize(t testing.TB, raw []byte) int64 {
	t.Helper()
	n, err := bundle.HeaderSize(raw)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// carrier is a node that gets the parts of a bundle.
type carrier struct {
	*MediaSet
	lib    *Library
	shelf  *Shelf
	policy Policy
}

func newCarrier(t testing.TB, dir string, h *bundle.Header, s *MediaSet) *carrier {
	t.Helper()
	c := &carrier{MediaSet: s, lib: OpenLibrary(dir, slog.New(slog.DiscardHandler), func(p statefile.Problem) { t.Error(p.Message) }), policy: Policy{Approved: []string{h.Digest}}}
	var err error
	if c.shelf, err = c.lib.Add(h); err != nil {
		t.Fatal(err)
	}
	s.Edges = c.lib.Edges
	return c
}

// take copies what the media have, as the agent does.
func (c *carrier) take(t testing.TB) error {
	t.Helper()
	p := c.With(c.shelf.Digest())
	if p == nil {
		return errors.New("no part is plugged in")
	}
	if err := c.lib.KeepEdges(c.shelf, p); err != nil {
		return err
	}
	f, err := p.Reader(c.shelf.Bundle())
	if err != nil {
		return err
	}
	return Copy(t.Context(), f, c.shelf, c.wanted(), func(int64) {})
}

func (c *carrier) wanted() []int {
	return slices.DeleteFunc(all(c.shelf.Bundle()), c.shelf.Has)
}

func (c *carrier) lines() (out []string) {
	here := func(string) Availability {
		return Availability{Total: 1, Missing: int64(len(c.wanted())), Header: c.shelf.Bundle(), Wanted: c.wanted()}
	}
	for _, m := range c.Describe(c.policy, here) {
		out = append(out, fmt.Sprintf("%s %s %s", m.Device, m.State, m.Message))
	}
	return out
}

// Parts of any size are plugged in at the same time or one after the other, in any order, with
// restarts between. The node has the bundle in the end, and knows before which parts are missing.
func TestPartsInAnyOrder(t *testing.T) {
	t.Parallel()
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, noise(60000))
	raw := bundletest.Bytes(t, spec)
	h := header(t, raw)
	rapid.Check(t, func(rt *rapid.T) {
		parts := partsOf(t, raw, rapid.Int64Range(headerSize(t, raw), int64(len(raw))).Draw(rt, "step"))
		devices := map[string]*device{}
		var paths []string
		for i, p := range parts {
			path := fmt.Sprintf("/dev/sd%c", 'a'+i)
			devices[path] = &device{raw: append(p, make([]byte, 1000)...)}
			paths = append(paths, path)
		}
		dir, err := os.MkdirTemp("/dev/shm", "refit-parts-") // a hundred stores, each synced often
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		order := rapid.Permutation(paths).Draw(rt, "order")
		seen := map[string]bool{}
		var c *carrier
		for len(order) > 0 {
			n := rapid.IntRange(1, len(order)).Draw(rt, "sticks at once")
			if c == nil || rapid.Bool().Draw(rt, "restart") {
				c = newCarrier(t, dir, h, setOf(devices))
			}
			var now []media.Medium
			for _, path := range order[:n] {
				now, seen[path] = append(now, plugged(path, "1")), true
			}
			order = order[n:]
			c.Scan(now)
			if err := c.take(t); err != nil {
				rt.Fatal(err)
			}
			missing, _ := c.MissingParts(h, c.wanted())
			for _, k := range missing {
				if seen[paths[k-1]] {
					rt.Fatalf("part %d is missing after it was there: %v", k, c.lines())
				}
			}
			if lines := strings.Join(c.lines(), "\n"); strings.Contains(lines, "do not pull") || strings.Contains(lines, "Insert the medium") != (len(missing) > 0) {
				rt.Fatalf("missing %v: %s", missing, lines)
			}
		}
		if left := c.wanted(); len(left) > 0 {
			rt.Fatalf("%d chunks did not come", len(left))
		}
	})
}

// Parts on ordinary sticks of several kinds, under any names: real loop devices, and the process
// without privileges.
func TestPartsOnOrdinaryMedia(t *testing.T) {
	if raceDetector {
		t.Skip("the unprivileged reader has not the memory that the race detector needs")
	}
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, noise(3<<20))
	raw := bundletest.Bytes(t, spec, bundletest.Key(1))
	h := header(t, raw)
	parts := partsOf(t, raw, (int64(len(raw))+4)/5)
	for kind := range formats {
		t.Run(kind, func(t *testing.T) {
			one := attach(t, mediumImage(t, kind, map[string][]byte{"b": parts[4], "dir/a": parts[1], "README": []byte("Parts 2 and 5.")}))
			two := attach(t, mediumImage(t, "ext4", map[string][]byte{"x": parts[3], "y": parts[0]}))
			path := filepath.Join(t.TempDir(), "three")
			if err := os.WriteFile(path, append(bytes.Clone(parts[2]), make([]byte, 4096-len(parts[2])%4096)...), 0o600); err != nil {
				t.Fatal(err)
			}
			three := attach(t, path)
			c := newCarrier(t, t.TempDir(), h, &MediaSet{Contents: UnprivilegedContents, wait: time.Minute})
			defer c.Close()
			scan := func(devices ...string) {
				t.Helper()
				var now []media.Medium
				for _, d := range devices {
					now = append(now, media.Medium{Path: d, Device: true, Key: "1", Expected: true})
				}
				if !c.Scan(now) || c.Scan(now) {
					t.Fatalf("not found, or found twice: %v", c.lines())
				}
			}
			scan(one)
			if p := c.With(h.Digest); p == nil || p.Header() != nil {
				t.Fatal("the sticks with parts 2 and 5 have no header")
			}
			if got := c.lines(); len(got) != 1 || !strings.HasPrefix(got[0], one+" Copying parts 2, 5 of 5; do not pull it yet. Missing: parts 1, 3, 4 of 5.") {
				t.Errorf("%q", got)
			}
			if err := c.take(t); err != nil {
				t.Fatal(err)
			}
			if got := c.lines(); len(got) != 1 || !strings.HasPrefix(got[0], one+" Copied this node has all it needs of parts 2, 5 of 5; ") || !strings.Contains(got[0], "Missing: parts 1, 3, 4 of 5. Insert") {
				t.Errorf("%q", got)
			}
			scan(two, three)
			if p := c.With(h.Digest); p == nil || p.Header() == nil || p.Header().Metadata.Name != "tiny" {
				t.Fatalf("no header: %v", c.lines())
			} else if got, err := p.RawHeader(); err != nil || !bytes.Equal(got, h.Raw) {
				t.Errorf("header of %d bytes: %v", len(got), err)
			}
			if err := c.take(t); err != nil {
				t.Fatal(err)
			}
			if left := c.wanted(); len(left) > 0 {
				t.Errorf("%d chunks did not come: %v", len(left), c.lines())
			}
			if got := c.lines(); len(got) != 2 || !strings.Contains(strings.Join(got, " "), three+" Copied this node has all it needs of part 3 of 5;") {
				t.Errorf("%q", got)
			}
		})
	}
}

// A part of another bundle, a torn one and a damaged one are named; the others count.
func TestPartsThatAreNone(t *testing.T) {
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, noise(200000))
	raw := bundletest.Bytes(t, spec)
	h := header(t, raw)
	parts := partsOf(t, raw, headerSize(t, raw)+1000)
	torn := parts[1][:1000]
	wrong := bytes.Clone(parts[2])
	wrong[2000] ^= 1
	header := bytes.Clone(parts[3])
	header[60] ^= 1
	image := fileSystem(t, "ext4", map[string][]byte{"one": parts[0], "two": torn, "three": wrong, "four": header})
	s := setOf(map[string]*device{"/dev/sdb": {raw: image}})
	c := newCarrier(t, t.TempDir(), h, s)
	c.Scan([]media.Medium{plugged("/dev/sdb", "1")})
	err := c.take(t)
	var corrupt *bundle.CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(corrupt.Place, "part 3 of ") || !strings.Contains(corrupt.Place, "/dev/sdb#three") {
		t.Fatalf("the damaged part is not named: %v", err)
	}
	if p := c.With(h.Digest); len(p.inParts.parts) != 2 {
		t.Errorf("%d parts count", len(p.inParts.parts))
	}
	problems := strings.Join(s.all["/dev/sdb"].contents.Problems, "; ")
	if !strings.Contains(problems, "part 2 of ") || !strings.Contains(problems, "has 1000 bytes") || !strings.Contains(problems, "four: the header of the part is damaged") {
		t.Errorf("%s", problems)
	}
	if got := c.Describe(Policy{}, func(string) Availability { return Availability{} }); len(got) != 1 || got[0].State != v1alpha1.MediumFound || !strings.HasPrefix(got[0].Message, "parts 1, 3 of ") {
		t.Errorf("%+v", got)
	}
}

// The header may be in several parts: on one medium it is read, else the status says what to do.
func TestAHeaderInTwoParts(t *testing.T) {
	raw := bundletest.Bytes(t, bundletest.Tiny())
	h := header(t, raw)
	parts := partsOf(t, raw, h.HeaderSize()/2+1)
	for want, files := range map[string]map[string][]byte{
		"":                       {"one": parts[0], "two": parts[1]},
		"is not only in part 1 ": {"one": parts[0]},
	} {
		s := setOf(map[string]*device{"/dev/sdb": {raw: fileSystem(t, "ext4", files)}})
		s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
		p := s.With(h.Digest)
		if p == nil || (p.Header() != nil) != (want == "") {
			t.Fatalf("%q: header %v", want, p)
		}
		if got := messages(s); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %q", want, got)
		}
	}
}

// What a node kept of a part is compared before it is used, and dropped if it is wrong.
func TestAnEdgeThatIsWrong(t *testing.T) {
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, noise(20000))
	raw := bundletest.Bytes(t, spec)
	h := header(t, raw)
	step := h.HeaderSize() + bundle.BlockSize + 8000
	parts := partsOf(t, raw, step)
	c := newCarrier(t, t.TempDir(), h, setOf(map[string]*device{"/dev/sda": {raw: parts[0]}, "/dev/sdb": {raw: parts[1]}}))
	c.Scan([]media.Medium{plugged("/dev/sda", "1")})
	if err := c.take(t); err != nil {
		t.Fatal(err)
	}
	edges, err := filepath.Glob(filepath.Join(c.lib.edgesPath(h.Digest), "*"))
	if err != nil || len(edges) != 1 {
		t.Fatalf("%v %v", edges, err)
	}
	if err := os.WriteFile(edges[0], []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Scan([]media.Medium{plugged("/dev/sdb", "1")})
	if err := c.take(t); !IsWrongEdge(err) {
		t.Fatalf("the wrong bytes were used: %v", err)
	}
	if err := c.lib.DropEdges(h.Digest); err != nil {
		t.Fatal(err)
	}
	if missing, _ := c.MissingParts(h, c.wanted()); !slices.Contains(missing, 1) {
		t.Errorf("missing %v: part 1 has bytes that are wanted again", missing)
	}
	for _, path := range []string{"/dev/sda", "/dev/sdb"} {
		c.Scan([]media.Medium{plugged(path, "2")})
		if err := c.take(t); err != nil {
			t.Fatal(err)
		}
	}
}
