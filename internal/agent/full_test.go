package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// writer is something that the agent keeps in its state directory, in versions.
type writer struct {
	write func(version int) error
	// read returns the version that a restarted agent would find, 0 for none.
	read func() int
}

func writers(t *testing.T, dir string) map[string]writer {
	t.Helper()
	conf := agentconfig.Config{StateDir: dir, RunDir: t.TempDir()}
	refuse := func(p statefile.Problem) { t.Errorf("a damaged file was left: %+v", p) }
	blob := func(version int) (bundlestore.Blob, []byte) {
		data := bytes.Repeat([]byte{byte(version)}, 64<<10)
		sum := sha256.Sum256(data)
		return bundlestore.Blob{Digest: fmt.Sprintf("sha256:%x", sum), Size: int64(len(data)), ChunkSize: int64(len(data)), Sums: [][32]byte{sum}}, data
	}
	store := bundlestore.BlobsAt(conf.Path("blobs", "sha256"))
	header := func(version int) *bundle.Header {
		spec := bundletest.Tiny()
		spec.Version = fmt.Sprintf("1.0.%d", version)
		raw := bundletest.Bytes(t, spec)
		f, err := bundlereader.Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		return f.Header()
	}
	newest := func(has func(version int) bool) int {
		for v := 3; v > 0; v-- {
			if has(v) {
				return v
			}
		}
		return 0
	}
	text := func(name string, has func(version int) string) func() int {
		return func() int {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			return newest(func(v int) bool { return strings.Contains(string(b), has(v)) && (name == "clean-end" || json.Valid(b)) })
		}
	}
	id := func(v int) string { return fmt.Sprintf("version-%d", v) }
	return map[string]writer{
		"want.json": {func(v int) error { return (&desired.State{Generation: int64(v)}).Save(conf.Path("want.json")) }, func() int {
			if w := desired.ReadFile(conf.Path("want.json"), refuse); w != nil {
				return int(w.Generation)
			}
			return 0
		}},
		"drill.json": {func(v int) error { _, err := coldstart.Arm(conf, id(v), "b"); return err }, text("drill.json", id)},
		"clean-end":  {func(v int) error { return coldstart.RecordShutdown(conf, id(v)) }, text("clean-end", id)},
		"sources.json": {func(v int) error {
			s := openTransferStats(conf.Path("sources.json"), statefile.Ignore)
			s.Add(id(v), sourceBytes{Media: int64(v)})
			s.Save()
			if openTransferStats(conf.Path("sources.json"), statefile.Ignore).Sum([]string{id(v)}).Media == 0 {
				return os.ErrInvalid // a statistic: it says nothing itself
			}
			return nil
		}, func() int {
			return newest(func(v int) bool {
				return openTransferStats(conf.Path("sources.json"), statefile.Ignore).Sum([]string{id(v)}).Media > 0
			})
		}},
		"bundle headers": {func(v int) error {
			_, err := bundlestore.OpenLibrary(dir, slog.New(slog.DiscardHandler), statefile.Ignore).Add(header(v))
			return err
		}, func() int {
			lib := bundlestore.OpenLibrary(dir, slog.New(slog.DiscardHandler), refuse)
			return newest(func(v int) bool { return lib.Shelf(header(v).Digest) != nil })
		}},
		"blobs": {func(v int) error {
			b, data := blob(v)
			_, err := store.Put(b, 0, data)
			return err
		}, func() int {
			return newest(func(v int) bool {
				b, data := blob(v)
				got, err := store.Get(b, 0, make([]byte, len(data)))
				return err == nil && bytes.Equal(got, data)
			})
		}},
		"indexes of layers": {func(v int) error {
			return coldstart.LayerIndexDir(conf.Path("layers")).Save("sha256:x", coldstart.LayerIndex{{Path: id(v)}})
		}, func() int {
			x, err := coldstart.LayerIndexDir(conf.Path("layers")).Load("sha256:x")
			return newest(func(v int) bool { return err == nil && x[0].Path == id(v) })
		}},
	}
}

// A full or read-only disk fails a write, and leaves what was written before as it was: never
// a file that is cut off. With room again the write goes through.
func TestEveryWriterOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name := range writers(t, t.TempDir()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
				w := writers(t, f.Path("state"))[name]
				must := func(version int, err error) {
					t.Helper()
					if err != nil || w.read() != version {
						t.Fatalf("version %d: %v, there is %d", version, err, w.read())
					}
				}
				if err := os.Mkdir(f.Path("state"), 0o700); err != nil {
					t.Fatal(err)
				}
				must(1, w.write(1))
				f.Fill()
				if err := w.write(2); err == nil && w.read() != 2 {
					t.Error("a full disk took it without an error, and it is not there")
				} else if err != nil && w.read() != 1 {
					t.Errorf("after a write that failed there is version %d", w.read())
				}
				f.Free()
				must(2, w.write(2))
				f.ReadOnly()
				if err := w.write(3); err == nil {
					t.Error("a read-only disk took it")
				}
				if w.read() != 2 {
					t.Errorf("after a write that failed there is version %d", w.read())
				}
				f.Writable()
				must(3, w.write(3))
			})
		})
	}
}

// A disk is full although the plan had room: the node stops loading, names the image, and
// unpins nothing. When the old bundle is no longer wanted, the node removes its images at
// once and continues by itself. The image of sandboxes stays.
func TestAFullDiskRecoversByItself(t *testing.T) {
	path, first := mediumWith(t, bundletest.Tiny(), 1)
	path2, second := mediumWith(t, another("second"), 1)
	n := newTestNode(t, "n1", 17999, path, path2)
	approve(t, first, everything(first), n)
	n.reported("the first bundle is held", held)
	n.runtime.mu.Lock()
	n.runtime.limit = len(first.Metadata.Images)
	n.runtime.mu.Unlock()
	both := everything(first)
	both.Images = slices.Concat(both.Images, everything(second).Images)
	name := n.api.content(t, v1alpha1.ContentPins, both)
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Bundles, s.Pins = []v1alpha1.ApprovedBundle{{Digest: first.Digest}, {Digest: second.Digest}}, name
	})
	s := n.reported("the full disk is reported", func(s *v1alpha1.NodeUpdateStatus) bool {
		status, reason := condition(s, v1alpha1.ConditionStalled)
		return status == "True" && reason == v1alpha1.ReasonInsufficientSpace
	})
	if want := second.Metadata.Images[0].Name; !strings.Contains(s.Message, want) || !strings.Contains(s.Message, "no space left on device") {
		t.Errorf("the message misses the image or the cause: %q", s.Message)
	}
	for _, i := range first.Metadata.Images {
		if !n.runtime.has(i.Name) {
			t.Errorf("a pinned image was removed: %s", i.Name)
		}
	}
	approve(t, second, everything(second), n)
	n.reported("with room the second bundle is held", held)
	for _, i := range first.Metadata.Images {
		if pause := strings.Contains(i.Name, "/pause:"); n.runtime.has(i.Name) != pause {
			t.Errorf("image %s of the released bundle is there: %t", i.Name, !pause)
		}
	}
}
