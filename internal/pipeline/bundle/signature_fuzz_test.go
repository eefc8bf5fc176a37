package bundle

import (
	"bytes"
	"crypto/ed25519"
	"runtime"
	"strings"
	"testing"
)

// fuzzHeader is the header that enclose makes of the seeds.
func fuzzHeader(f *testing.F) *Header {
	slot, err := EncodeSlot(nil)
	if err != nil {
		f.Fatal(err)
	}
	h, err := ParseHeader(enclose([]byte(fuzzMeta), []byte("\x58\x91\xb5\xb5\x22\xd5\xdf\x08\x6d\x0f\xf0\xb1\x10\xfb\xd9\xd2\x1b\xb4\xfc\x71\x63\xaf\x34\xd0\x82\x86\xa2\xe8\x46\xf6\xbe\x03"), slot))
	if err != nil {
		f.Fatal(err)
	}
	return h
}

// For any content of the signature entry, a key counts only with the one signature that it
// made over this bundle. An entry that was read is written in the same way again.
func FuzzSignatures(f *testing.F) {
	h := fuzzHeader(f)
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	e, err := Sign(priv, h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		f.Fatal(err)
	}
	good, err := EncodeSlot([]Envelope{e})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimRight(good, " "))
	f.Add([]byte(`{"signatures":[{"payloadType":"","payload":"","signatures":[{"keyid":"","sig":""}]}]}`))
	f.Add([]byte(`{"signatures":[null]}`))
	signature := e.Signatures[0].Sig
	keys := map[string]ed25519.PublicKey{"alice": priv.Public().(ed25519.PublicKey)}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > SignatureSlotSize {
			return
		}
		content := append(bytes.Clone(text), strings.Repeat(" ", SignatureSlotSize-len(text))...)
		sigs, why := decodeSlot(content, h.statement())
		if why != "" {
			return
		}
		if again, err := EncodeSlot(sigs); err != nil || !bytes.Equal(again, content) {
			t.Fatalf("%q is written in another way: %v", text, err)
		}
		signed := *h
		signed.Signatures = sigs
		made := false
		for _, e := range sigs {
			for _, s := range e.Signatures {
				made = made || bytes.Equal(s.Sig, signature)
			}
		}
		if by := signed.SignedBy(keys); len(by) > 0 && !made {
			t.Fatalf("signed by %v with %q", by, text)
		}
	})
}

// A byte of metadata costs a bounded number of bytes of memory: an attacker with a USB
// stick chooses the metadata, and refit reads it before anything is trusted.
func FuzzHeaderCost(f *testing.F) {
	slot, err := EncodeSlot(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(fuzzMeta))
	for _, list := range []string{"images", "payloads", "blobs", "platforms"} {
		f.Add([]byte(`{"formatVersion":1,"` + list + `":[` + strings.Repeat("{},", 400) + `{}]}`))
		f.Add([]byte(`{"formatVersion":1,"` + list + `":[` + strings.Repeat("0,", 400) + `0]}`))
	}
	f.Add([]byte(strings.Repeat("[", 400)))
	f.Fuzz(func(t *testing.T, meta []byte) {
		raw := enclose(meta, nil, slot)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = ParseHeader(raw)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+200*len(raw)); got > most {
			t.Fatalf("%d bytes of header allocate %d bytes, more than %d", len(raw), got, most)
		}
	})
}
