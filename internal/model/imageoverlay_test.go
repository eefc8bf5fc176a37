package model

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An overlay yields the blobs that it was made from. If any part of it was altered, it
// yields an error instead.
func TestImageOverlayIsCompared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m ImageOverlay
		all := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 200), 1, 4).Draw(t, "blobs")
		for _, b := range all {
			if err := m.AddBlob(b); err != nil {
				t.Fatal(err)
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseImageOverlay(string(text))
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range got.Blobs {
			data, err := b.Decompress()
			if err != nil || !bytes.Equal(data, all[i]) || !got.HasBlob(b.Digest) {
				t.Fatalf("%q came out as %q, %v", all[i], data, err)
			}
		}
		bad := got.Blobs[0]
		at := rapid.IntRange(0, len(bad.Gzip)-1).Draw(t, "at")
		bad.Gzip = bytes.Clone(bad.Gzip)
		bad.Gzip[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if data, err := bad.Decompress(); err == nil && !bytes.Equal(data, all[0]) {
			t.Fatalf("altered at %d it is taken as %q", at, data)
		}
	})
}

func TestMadeBlobRefuses(t *testing.T) {
	var m ImageOverlay
	if err := m.AddBlob([]byte("layer")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*OverlayBlob)
		says   string
	}{
		"more bytes than its size states": {func(b *OverlayBlob) { b.Size = 4 }, "other bytes"},
		"fewer":                           {func(b *OverlayBlob) { b.Size = 6 }, "other bytes"},
		"another digest":                  {func(b *OverlayBlob) { b.Digest = DigestOf(nil) }, "other bytes"},
		"too large":                       {func(b *OverlayBlob) { b.Size = MaxOverlayBlob + 1 }, "at most"},
		"no gzip":                         {func(b *OverlayBlob) { b.Gzip = []byte("x") }, "blob sha256:"},
	} {
		b := m.Blobs[0]
		c.change(&b)
		if _, err := b.Decompress(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseImageOverlay("{"); err == nil {
		t.Error("text that is no JSON is taken")
	}
}
