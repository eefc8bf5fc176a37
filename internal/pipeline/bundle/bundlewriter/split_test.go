package bundlewriter

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	file, want := create(t, Options{Sources: []string{"oci:" + twoImages(t)}, Name: "site", Version: "1.2.3"})
	dir := filepath.Join(t.TempDir(), "parts")
	var last, total int64
	paths, h, err := Split(t.Context(), file, dir, 40000, func(done, of int64) {
		if done < last {
			t.Errorf("progress %d after %d", done, last)
		}
		last, total = done, of
	})
	if err != nil || h.Digest != want.Digest || last != total || total != 2*want.FileSize() {
		t.Fatalf("%v, progress %d of %d", err, last, total)
	}
	if filepath.Base(paths[0]) != "site-1.2.3.part-001-of-003" && len(paths) == 3 {
		t.Error(paths)
	}
	for i, p := range paths {
		st, err := os.Stat(p)
		if err != nil || st.Size() > 40000 || i < len(paths)-1 && st.Size() != 40000 {
			t.Errorf("%s: %v %v", p, st, err)
		}
	}
	verify(t, dir, want.Digest)

	// One file of them again, and a bundle made of them.
	again := filepath.Join(t.TempDir(), "again")
	if _, err := WriteMedium(t.Context(), dir, again, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(contents(t, again), contents(t, file)) {
		t.Error("the file made of the parts has other bytes")
	}
	if _, h := create(t, Options{Sources: []string{"bundle:" + dir}, Name: "site", Version: "1.2.3"}); h.Digest != want.Digest {
		t.Errorf("bundle:DIR is %s, want %s", h.Digest, want.Digest)
	}

	if _, _, err := Split(t.Context(), file, dir, 40000, nil); err == nil || !strings.Contains(err.Error(), "exists already: use an empty directory") {
		t.Errorf("a second time: %v", err)
	}
	for size, want := range map[int64]string{bundle.PartHeaderSize: "header", bundle.PartHeaderSize + 1: "use larger parts"} {
		_, _, err := Split(t.Context(), file, filepath.Join(t.TempDir(), "p"), size, nil)
		var input *InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("parts of %d: %v", size, err)
		}
	}
}

// A run that fails leaves nothing that passes for a part.
func TestSplitThatFails(t *testing.T) {
	t.Parallel()
	file, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	left := func(dir string) {
		t.Helper()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("files stay: %v %v", entries, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	if _, _, err := Split(ctx, file, dir, 40000, func(done, _ int64) {
		if done > 30000 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	left(dir)

	b := contents(t, file)
	b[h.BlobOffset(3)+100] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *bundle.CorruptError
	if _, _, err := Split(t.Context(), file, dir, 40000, nil); !errors.As(err, &corrupt) {
		t.Errorf("a damaged bundle: %v", err)
	}
	left(dir)
}
