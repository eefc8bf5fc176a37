package agent

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// An image that was held and went with its blobs is asked for before the rest of the
// bundle, and loaded before it has come: a pod may be waiting for it. What was never
// held waits for all.
func TestALostImageComesFirst(t *testing.T) {
	t.Parallel()
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	dir, ctx := t.TempDir(), t.Context()
	lib := bundlestore.OpenLibrary(dir, slog.New(slog.DiscardHandler), statefile.Ignore)
	shelf, err := lib.Add(h)
	if err != nil {
		t.Fatal(err)
	}
	w := &desired.State{Pins: everything(h)}
	lost := w.Pins.Images[slices.IndexFunc(w.Pins.Images, func(i model.PinSetImage) bool { return i.Name == "registry.k8s.io/pause:3.10.2" })]
	record, _ := json.Marshal(pin.OwnPins{pin.Key(lost): {lost.Name}})
	if err := os.WriteFile(filepath.Join(dir, "pins.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	rt := &fakeRuntime{dir: dir, images: map[string]string{}, pins: map[string]bool{}}
	keeper := imagekeeper.NewKeeper(rt, dir, statefile.Ignore)
	a := &bundleLoop{shared: &shared{library: lib, keeper: keeper, want: w}}
	if got := a.restoreFirst(shelf); len(got) != 0 {
		t.Fatalf("nothing was missed yet, and chunks %v come first", got)
	}
	src := source{lib: lib, policy: bundlestore.Policy{Approved: []string{h.Digest}, Refit: "9.9.9"}, partial: map[string]bool{h.Digest: true}}
	if _, err := keeper.Sync(ctx, w.Pins.Images, src, func(imagekeeper.Result) {}); err != nil {
		t.Fatal(err)
	}
	mediumFile, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mediumFile.Close()
	// Round by round, as its manifest says what it is made of.
	for range 3 {
		if err := bundlestore.Copy(ctx, mediumFile, shelf, a.restoreFirst(shelf), func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, img := range w.Pins.Images {
		src.known = keeper.Known()
		if _, ok := src.Image(img); ok != (img.Name == lost.Name) {
			t.Errorf("image %s, while the bundle is not all here: may be loaded: %v", img.Name, ok)
		}
	}
	if shelf.Has(h.Chunks.Len() - 1) {
		t.Error("all of the bundle came: nothing was first")
	}
}
