package bundledelta_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// clusterOf is what a cluster that has a bundle knows of it.
func clusterOf(h *bundle.Header) bundledelta.InventoryBundle {
	b := bundledelta.InventoryOf(h)
	b.Blobs = nil
	for _, i := range h.Metadata.Images {
		b.Images = append(b.Images, bundledelta.InventoryDigest(i.Digest))
	}
	for _, p := range h.Metadata.Payloads {
		b.Payloads = append(b.Payloads, bundledelta.InventoryDigest(p.Digest))
	}
	for _, list := range []*[]bundledelta.InventoryDigest{&b.Images, &b.Payloads} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return b
}

// fromInventory writes a delta to the new bundle by an inventory, which is marshaled and read.
func (p pair) fromInventory(t testing.TB, bundles ...bundledelta.InventoryBundle) bundledelta.Saving {
	t.Helper()
	v, err := bundledelta.NewInventory(bundles)
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Marshal(bundletest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := bundledelta.ParseInventory(b)
	if err != nil {
		t.Fatal(err)
	}
	target := open(t, p.path("new"))
	all, err := s.Savings(target)
	if err != nil {
		t.Fatal(err)
	}
	if err := bundledelta.CreateFrom(context.Background(), all[0], target, p.path("delta"), nil); err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// For random bundles and both kinds of inventory, the restored bundle has the bytes of the one that
// was made without an inventory. The delta has no byte of what was left out.
func TestRestoredByInventoryIsIdentical(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 2))
			old, new := randomPair(t, r)
			new.Images = append(new.Images, old.Images[r.IntN(len(old.Images))]) // one that did not change
			p := makePair(t, old, new)
			h := open(t, p.path("old")).Header()
			for name, b := range map[string]bundledelta.InventoryBundle{"bundle at hand": bundledelta.InventoryOf(h), "cluster": clusterOf(h)} {
				s := p.fromInventory(t, b)
				if s.Blobs == 0 || s.Bytes == 0 {
					t.Errorf("%s: nothing was left out", name)
				}
				p.check(t)
				d, err := bundledelta.OpenPath(p.path("delta"))
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := d.Verify(t.Context(), nil); err != nil {
					t.Error(err)
				}
				for i, has := range s.Has {
					cost, kind := d.Blob(i)
					if has && (cost != 0 || kind != bundledelta.KindCopied) || !has && kind != bundledelta.KindNew {
						t.Errorf("%s: blob %d, in the base %t: %s of %d bytes", name, i, has, kind, cost)
					}
				}
			}
		})
	}
}

// Of several bundles the one with the most bytes is the base, and the order of names does not matter.
func TestBestBase(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 3000)
	p := makePair(t, old, new)
	far := write(t, p.path("far"), bundletest.Tiny())
	near := new
	near.Name, near.Images = "near", append([]bundletest.Image{{Name: "registry.example/other:1", Layers: [][]byte{far[:100]}}}, new.Images...)
	write(t, p.path("near"), near)
	var all []bundledelta.InventoryBundle
	for _, name := range []string{"far", "near", "old", "far"} {
		all = append(all, bundledelta.InventoryOf(open(t, p.path(name)).Header()))
	}
	first := p.fromInventory(t, all...)
	slices.Reverse(all)
	second := p.fromInventory(t, all...)
	if first.Bundle.Name != "near" || second.Bundle.Digest != first.Bundle.Digest || first.Blobs != len(first.Has) {
		t.Errorf("%s with %d of %d blobs, then %s", first.Bundle.Name, first.Blobs, len(first.Has), second.Bundle.Name)
	}
	whole, partly := first.Parts(open(t, p.path("new")).Header())
	if !slices.Equal(whole, []string{"registry.example/app:2", "kubelet"}) || partly != nil {
		t.Errorf("whole %v, partly %v", whole, partly)
	}
	if err := restore(t, p.path("near"), p.path("delta"), p.path("again")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(p.path("again")); err != nil || !bytes.Equal(got, p.new) {
		t.Errorf("restored %d bytes, want %d: %v", len(got), len(p.new), err)
	}
	var wrong *bundledelta.BaseError
	if err := restore(t, p.path("old"), p.path("delta"), p.path("again2")); !errors.As(err, &wrong) {
		t.Errorf("another bundle of the inventory as the base: %v", err)
	}
}

// A base that does not have what a wrong inventory promised is refused by name, before a byte is
// written.
func TestWrongInventoryIsRefusedByRestore(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 3000)
	p := makePair(t, old, new)
	h, target := open(t, p.path("old")).Header(), open(t, p.path("new")).Header()
	b := bundledelta.InventoryOf(h)
	b.Blobs = bundledelta.InventoryOf(target).Blobs // it has everything, says the inventory
	if s := p.fromInventory(t, b); s.Blobs != len(target.Metadata.Blobs) {
		t.Fatalf("%d blobs left out", s.Blobs)
	}
	if err := os.WriteFile(p.path("again"), []byte("a file that stays"), 0o600); err != nil {
		t.Fatal(err)
	}
	var missing *bundledelta.MissingError
	err := restore(t, p.path("old"), p.path("delta"), p.path("again"))
	if !errors.As(err, &missing) || len(missing.Blobs) == 0 {
		t.Fatal(err)
	}
	first := missing.Blobs[0]
	for _, want := range []string{h.Digest, target.Digest, target.Metadata.Blobs[first].Digest, target.UserOf(first), "--base"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if got, _ := os.ReadFile(p.path("again")); string(got) != "a file that stays" {
		t.Error("a file was written")
	}
	if _, err := os.Stat(p.path("again.partial")); err == nil {
		t.Error("a partial file is there")
	}
}

// A size that is not that of the new bundle's blob shows a wrong inventory when the delta is made.
func TestInventoryWithOtherSizes(t *testing.T) {
	t.Parallel()
	old, _ := similarPair(t, 3000)
	p := makePair(t, old, old)
	b := bundledelta.InventoryOf(open(t, p.path("old")).Header())
	b.Blobs[2].Size++
	v, err := bundledelta.NewInventory([]bundledelta.InventoryBundle{b})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Savings(open(t, p.path("new"))); err == nil || !strings.Contains(err.Error(), b.Blobs[2].Digest) {
		t.Error(err)
	}
	if err := bundledelta.CreateFrom(t.Context(), bundledelta.Saving{Bundle: &b, Has: make([]bool, 1)}, open(t, p.path("new")), p.path("x"), nil); err == nil {
		t.Error("a saving of another bundle was taken")
	}
}

// sample is an inventory of both kinds of bundle.
func sample(t testing.TB) *bundledelta.Inventory {
	t.Helper()
	var all []bundledelta.InventoryBundle
	for i, s := range []bundletest.Spec{bundletest.Tiny(), {Version: "2.0.0"}} {
		b, err := bundlereader.Open(bytes.NewReader(bundletest.Bytes(t, s)), bundlereader.UnknownSize)
		if err != nil {
			t.Fatal(err)
		}
		one := bundledelta.InventoryOf(b.Header())
		if i == 0 {
			all = append(all, one)
			one = clusterOf(b.Header())
			one.Digest = bundle.DigestOf([]byte("another"))
		}
		all = append(all, one)
	}
	v, err := bundledelta.NewInventory(all)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestInventorySignatures(t *testing.T) {
	t.Parallel()
	keys := map[string]ed25519.PublicKey{}
	for name, seed := range map[string]byte{"a": 1, "b": 2, "c": 3} {
		keys[name] = bundletest.Key(seed).Public().(ed25519.PublicKey)
	}
	signed := func(of ...ed25519.PrivateKey) []byte {
		b, err := sample(t).Marshal(of...)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	by := func(b []byte) string {
		s, err := bundledelta.ParseInventory(b)
		if err != nil {
			return "error: " + err.Error()
		}
		return strings.Join(s.SignedBy(keys), " ")
	}
	if got := by(signed()); got != "" {
		t.Errorf("unsigned: %q", got)
	}
	if got := by(signed(bundletest.Key(1), bundletest.Key(3))); got != "a c" {
		t.Errorf("signed by two keys: %q", got)
	}
	if got := by(signed(bundletest.Key(9))); got != "" {
		t.Errorf("signed by an unknown key: %q", got)
	}
	if !bytes.Equal(signed(bundletest.Key(1)), signed(bundletest.Key(1))) {
		t.Error("two inventories of the same bundles differ")
	}
	// each byte changed: no signature counts, or the file is refused
	whole := signed(bundletest.Key(1))
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 1
		if got := by(b); got == "a" {
			t.Fatalf("byte %d of %d can be changed", at, len(whole))
		}
		if got := by(whole[:at]); got == "a" {
			t.Fatalf("it can be cut at byte %d", at)
		}
	}
	// a signature of another inventory, and one of a bundle with the same key
	s, err := bundledelta.ParseInventory(whole)
	if err != nil || len(s.KeyIDs()) != 1 {
		t.Fatal(err)
	}
	_, second, _ := strings.Cut(string(whole), "\n")
	other := sample(t)
	other.Bundles = other.Bundles[:1]
	b, err := other.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if got := by([]byte(first + "\n" + second)); got != "" {
		t.Errorf("the signature of another inventory: %q", got)
	}
	asBundle, err := bundle.SignPayload(bundletest.Key(1), bundle.PayloadType, []byte(first))
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(map[string]any{"signatures": asBundle.Signatures})
	if err != nil {
		t.Fatal(err)
	}
	if got := by(fmt.Appendf(nil, "%s\n%s\n", first, line)); got != "" {
		t.Errorf("a signature of a bundle's type: %q", got)
	}
}

// Inventories made by hand are refused, with a reason, in little memory.
func TestHostileInventories(t *testing.T) {
	good, err := sample(t).Marshal(bundletest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundledelta.ParseInventory(good); err != nil {
		t.Fatal(err)
	}
	replaced := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %s in %s", old, good)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	many := func(member, element string) []byte {
		n := (bundledelta.MaxInventory - 1000) / (len(element) + 1)
		return fmt.Appendf(nil, `{"apiVersion":"refit.dev/inventory/v1","kind":"Inventory","bundles":[{"digest":"sha256:%064d","name":"a","version":"1.0.0","platforms":[],"%s":[%s%s]}]}`+"\n"+`{"signatures":[]}`+"\n",
			0, member, strings.Repeat(element+",", n), element)
	}
	digest := `"sha256:` + strings.Repeat("a", 64) + `"`
	second := good[bytes.IndexByte(good, '\n')+1:]
	sig := bytes.TrimSuffix(bytes.TrimPrefix(second, []byte(`{"signatures":[`)), []byte("]}\n"))
	first := good[:len(good)-len(second)]
	var bundles []bundledelta.InventoryBundle
	for i := range 21 {
		bundles = append(bundles, bundledelta.InventoryBundle{Digest: bundle.DigestOf([]byte{byte(i)}), Name: "a", Version: "1.0.0"})
	}
	if _, err := bundledelta.NewInventory(bundles); err == nil || !strings.Contains(err.Error(), "21 bundles") {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing":                    {nil, "not an inventory"},
		"a bundle":                   {bundletest.Bytes(t, bundletest.Tiny()), "not an inventory"},
		"another kind":               {replaced(`"kind":"Inventory"`, `"kind":"Bundle"`), "not an inventory"},
		"a newer version":            {replaced("inventory/v1", "inventory/v2"), "update refit"},
		"9 MiB":                      {make([]byte, 9<<20), "at most"},
		"no bundles":                 {[]byte(`{"apiVersion":"refit.dev/inventory/v1","kind":"Inventory","bundles":[]}` + "\n" + `{"signatures":[]}` + "\n"), "0 bundles"},
		"an unknown member":          {replaced(`"bundles":[`, `"nodes":["n1"],"bundles":[`), "another form"},
		"a member twice":             {replaced(`"kind":"Inventory"`, `"kind":"Inventory","kind":"Inventory"`), "another form"},
		"a bundle without a digest":  {replaced(`"digest":"sha256:`, `"digest":"md5:`), "no digest"},
		"a bad name":                 {replaced(`"name":"tiny"`, `"name":"../tiny"`), "bad bundle name"},
		"a bad version":              {replaced(`"version":"2.0.0"`, `"version":"two"`), "semantic version"},
		"a bad platform":             {replaced(`"linux/amd64"`, `"linux amd64"`), "bad platform"},
		"a blob with a bad digest":   {replaced(`"blobs":[{"digest":"sha256:`, `"blobs":[{"digest":"sha256:X`), "is no digest"},
		"a negative size":            {replaced(`"size":`, `"size":-`), "bad size"},
		"a size of 2^60":             {replaced(`"size":`, `"size":11529215046068`), "bad size"},
		"a size that is no integer":  {replaced(`"size":`, `"size":1e99`), "cannot unmarshal"},
		"an image that is no digest": {replaced(`"images":["sha256:`, `"images":["latest:`), "is no digest"},
		"a list of nothing":          {many("blobs", "null"), "is no digest"},
		"blobs without members":      {many("blobs", "{}"), "is no digest"},
		"images that are numbers":    {many("images", "0"), "cannot unmarshal"},
		"the same blob":              {many("blobs", `{"digest":`+digest+`,"size":1}`), "blobs are more than"},
		"the same image":             {many("images", digest), "is there twice"},
		"no signatures":              {first, "line with signatures"},
		"bytes after the end":        {append(bytes.Clone(good), 'x'), "line with signatures"},
		"a third line":               {append(bytes.Clone(good), "{}\n"...), "line with signatures"},
		"no end of the last line":    {good[:len(good)-1], "another form"},
		"17 signatures":              {fmt.Appendf(nil, "%s{\"signatures\":[%s%s]}\n", first, strings.Repeat(string(sig)+",", 16), sig), "at most 16"},
		"a key without a name":       {replaced(`"keyid":"`, `"keyid":"X`), "without the identifier"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := bundledelta.ParseInventory(c.b)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.300v, want %q", err, c.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// FuzzInventory: what is read is what Marshal makes, and comparing it with a bundle ends.
func FuzzInventory(f *testing.F) {
	good, err := sample(f).Marshal(bundletest.Key(1))
	if err != nil {
		f.Fatal(err)
	}
	target, err := bundlereader.Open(bytes.NewReader(bundletest.Bytes(f, bundletest.Tiny())), bundlereader.UnknownSize)
	if err != nil {
		f.Fatal(err)
	}
	keys := map[string]ed25519.PublicKey{"a": bundletest.Key(1).Public().(ed25519.PublicKey)}
	f.Add(good)
	unsigned, err := sample(f).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unsigned)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := bundledelta.ParseInventory(b)
		if err != nil {
			return
		}
		again, err := s.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := bytes.Cut(again, []byte("\n"))
		if !bytes.HasPrefix(b, append(first, '\n')) {
			t.Fatal("another form was read")
		}
		if len(s.SignedBy(keys)) > 0 && !bytes.HasPrefix(good, first) {
			t.Fatal("another inventory has the signature")
		}
		all, err := s.Savings(target)
		if err == nil && len(all) != len(s.Bundles) {
			t.Fatal("a bundle is missing")
		}
	})
}

// A blob that is no manifest, named as an image, stands for itself only.
func TestInventoryNamesALayerAsImage(t *testing.T) {
	t.Parallel()
	old, _ := similarPair(t, 3000)
	p := makePair(t, old, old)
	h := open(t, p.path("old")).Header()
	b := clusterOf(h)
	layer := h.Metadata.Payloads[0].Digest
	b.Images, b.Payloads = []bundledelta.InventoryDigest{bundledelta.InventoryDigest(layer)}, nil
	if s := p.fromInventory(t, b); s.Blobs != 1 || !s.Has[h.Metadata.Payloads[0].Blob] {
		t.Errorf("%d blobs: %v", s.Blobs, s.Has)
	}
	p.check(t)
}
