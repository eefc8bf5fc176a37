package model

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What comes out of the parts of an image is what went in, or an error: whatever was
// altered on the way.
func TestMadeImageIsCompared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m MadeImage
		all := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 200), 1, 4).Draw(t, "blobs")
		for _, b := range all {
			if err := m.Add(b); err != nil {
				t.Fatal(err)
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := OpenMadeImage(string(text))
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range got.Blobs {
			data, err := b.Open()
			if err != nil || !bytes.Equal(data, all[i]) || !got.Has(b.Digest) {
				t.Fatalf("%q came out as %q, %v", all[i], data, err)
			}
		}
		bad := got.Blobs[0]
		at := rapid.IntRange(0, len(bad.Gzip)-1).Draw(t, "at")
		bad.Gzip = bytes.Clone(bad.Gzip)
		bad.Gzip[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if data, err := bad.Open(); err == nil && !bytes.Equal(data, all[0]) {
			t.Fatalf("altered at %d it is taken as %q", at, data)
		}
	})
}

func TestMadeBlobRefuses(t *testing.T) {
	var m MadeImage
	if err := m.Add([]byte("layer")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*MadeBlob)
		says   string
	}{
		"more bytes than it is said to have": {func(b *MadeBlob) { b.Size = 4 }, "other bytes"},
		"fewer":                              {func(b *MadeBlob) { b.Size = 6 }, "other bytes"},
		"another digest":                     {func(b *MadeBlob) { b.Digest = DigestOf(nil) }, "other bytes"},
		"too large":                          {func(b *MadeBlob) { b.Size = MaxMadeBlob + 1 }, "at most"},
		"no gzip":                            {func(b *MadeBlob) { b.Gzip = []byte("x") }, "blob sha256:"},
	} {
		b := m.Blobs[0]
		c.change(&b)
		if _, err := b.Open(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenMadeImage("{"); err == nil {
		t.Error("text that is no JSON is taken")
	}
}
