package bundlewriter

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func repairable(t testing.TB) (raw []byte, h *bundle.Header) {
	t.Helper()
	raw = bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	size, err := bundle.HeaderSize(raw)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = bundle.ParseHeader(raw[:size]); err != nil {
		t.Fatal(err)
	}
	return raw, h
}

func noReport(bundlereader.Damage, error) {}
func noProgress(int64, int64)             {}

func putFile(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Any damage behind the header is repaired from a copy that is damaged elsewhere. The repair stops
// at any range, and the next one does the rest; no stop leaves more damage.
func TestRepairAnyDamage(t *testing.T) {
	t.Parallel()
	raw, h := repairable(t)
	dir := t.TempDir()
	path, from := filepath.Join(dir, "damaged"), filepath.Join(dir, "copy")
	rapid.Check(t, func(rt *rapid.T) {
		broken := bytes.Clone(raw)
		for range rapid.IntRange(1, 20).Draw(rt, "damaged bytes") {
			broken[rapid.IntRange(int(h.HeaderSize()), len(raw)-1).Draw(rt, "offset")] ^= 0xff
		}
		broken = broken[:rapid.IntRange(int(h.HeaderSize()), len(raw)).Draw(rt, "length")]
		if len(broken) == len(raw) && rapid.Bool().Draw(rt, "too long") {
			broken = append(broken, "end"...)
		}
		putFile(t, path, broken)
		putFile(t, from, raw)
		before := damageOf(t, path)
		stop := rapid.IntRange(0, before).Draw(rt, "stop after")
		stopped := errors.New("stopped")
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(stopped) {
					panic(r)
				}
			}()
			done := 0
			_, _ = Repair(t.Context(), path, from, "", func(bundlereader.Damage, error) {
				if done++; done > stop {
					panic(stopped)
				}
			}, noProgress)
		}()
		if after := damageOf(t, path); after > before {
			rt.Fatalf("%d damaged ranges, %d before", after, before)
		}
		r, err := Repair(t.Context(), path, from, "", noReport, noProgress)
		if err != nil || len(r.Unrepaired) > 0 {
			rt.Fatalf("%+v, %v", r, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, raw) {
			rt.Fatalf("not the bundle: %v", err)
		}
	})
}

func damageOf(t testing.TB, path string) int {
	t.Helper()
	r, err := Repair(t.Context(), path, "", "", noReport, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Unrepaired)
}

// What is damaged in both copies is named and stays; a third copy repairs it.
func TestRepairFromADamagedCopy(t *testing.T) {
	t.Parallel()
	raw, h := repairable(t)
	dir := t.TempDir()
	broken := bytes.Clone(raw)
	at, size := bundlereader.ChunkRange(h, 1)
	next, _ := bundlereader.ChunkRange(h, 3)
	broken[at] ^= 1
	path := putFile(t, filepath.Join(dir, "damaged"), broken)
	twice := bytes.Clone(broken)
	twice[next] ^= 1
	from := putFile(t, filepath.Join(dir, "copy"), twice)
	r, err := Repair(t.Context(), path, from, "", noReport, noProgress)
	if err != nil || r.Ranges != 0 || len(r.Unrepaired) != 1 || !strings.Contains(r.Unrepaired[0].Error(), "expected sha256:") {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, broken) {
		t.Error("an unverified chunk was written")
	}
	parts := filepath.Join(dir, "parts")
	good := putFile(t, filepath.Join(dir, "good"), raw)
	if _, _, err := Split(t.Context(), good, parts, int64(len(raw)/2), nil); err != nil {
		t.Fatal(err)
	}
	if r, err = Repair(t.Context(), path, parts, "", noReport, noProgress); err != nil || r.Ranges != 1 || r.Bytes != size {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, raw) {
		t.Error("not the bundle")
	}
}

// A damaged header comes from the copy, if the digest is known. Nothing else is written over.
func TestRepairOfAHeader(t *testing.T) {
	t.Parallel()
	raw, h := repairable(t)
	dir := t.TempDir()
	good := putFile(t, filepath.Join(dir, "good"), raw)
	for name, spoil := range map[string]int64{"manifest": 3 * bundle.BlockSize, "slot": h.SlotOffset() + 5, "chunk table": h.HeaderSize() - 600} {
		broken := bytes.Clone(raw)
		broken[spoil] ^= 1
		path := putFile(t, filepath.Join(dir, name), broken)
		var unknown *DamagedHeaderError
		if _, err := Repair(t.Context(), path, good, "", noReport, noProgress); !errors.As(err, &unknown) {
			t.Errorf("%s without a digest: %v", name, err)
		}
		if r, err := Repair(t.Context(), path, good, h.Digest, noReport, noProgress); err != nil || r.Ranges != 1 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, raw) {
			t.Errorf("%s: not the bundle", name)
		}
	}
	spec := bundletest.Tiny()
	spec.Version = "9.9.9"
	for name, content := range map[string][]byte{"other": bundletest.Bytes(t, spec), "letter": bytes.Repeat([]byte("a letter "), 5000)} {
		path := putFile(t, filepath.Join(dir, name), content)
		if _, err := Repair(t.Context(), path, good, h.Digest, noReport, noProgress); err == nil {
			t.Errorf("%s was repaired", name)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
			t.Errorf("%s was written over", name)
		}
	}
	if _, err := Repair(t.Context(), good, good, "", noReport, noProgress); err == nil || !strings.Contains(err.Error(), "same file") {
		t.Errorf("from itself: %v", err)
	}
}

// A stick that was written raw, and whose damaged sectors are repaired from the file.
func TestRepairOfADevice(t *testing.T) {
	src, h := mediumSource(t)
	dev := loopDevice(t, h.FileSize()/bundle.BlockSize*bundle.BlockSize+1<<20)
	if _, err := WriteMedium(t.Context(), src, dev, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{0, h.Chunks.Len() - 1} {
		at, size := bundlereader.ChunkRange(h, n)
		if _, err := f.WriteAt(make([]byte, size), at); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Repair(t.Context(), dev, src, "", noReport, noProgress)
	if err != nil || r.Ranges != 2 || len(r.Unrepaired) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := Repair(t.Context(), src, dev, "", noReport, noProgress); err != nil || r.Ranges != 0 {
		t.Errorf("the device is not the bundle: %+v, %v", r, err)
	}
}
