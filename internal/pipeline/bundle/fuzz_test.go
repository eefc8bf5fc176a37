package bundle

import (
	"encoding/json"
	"testing"
)

// enclose puts any bytes where metadata, chunk table and signatures go, with
// headers and digests that are right, so that a fuzzer gets past them.
func enclose(meta, table, slot []byte) []byte {
	var m Metadata
	_ = json.Unmarshal(meta, &m) // what does not parse has no images
	mm := manifest{SchemaVersion: 2, MediaType: MediaTypeManifest, ArtifactType: ArtifactType,
		Config: descriptor{MediaType: MediaTypeMetadata, Digest: DigestOf(meta), Size: int64(len(meta))},
		Layers: []descriptor{{MediaType: MediaTypeChunks, Digest: DigestOf(table), Size: int64(len(table))}}}
	for _, p := range m.Payloads {
		mm.Layers = append(mm.Layers, payloadDescriptor(p))
	}
	mmRaw := canonical(mm)
	top := index{SchemaVersion: 2, MediaType: MediaTypeIndex, ArtifactType: ArtifactType,
		Annotations: map[string]string{AnnotationTitle: m.Name, AnnotationVersion: m.Version},
		Manifests:   []descriptor{{MediaType: MediaTypeManifest, ArtifactType: ArtifactType, Digest: DigestOf(mmRaw), Size: int64(len(mmRaw))}}}
	for _, img := range m.Images {
		size, _ := m.sizeOf(img)
		top.Manifests = append(top.Manifests, imageDescriptor(img.Name, img.MediaType, img.Digest, size))
	}
	topRaw := canonical(top)
	var out []byte
	out = appendEntry(out, nameLayout, []byte(layoutContent))
	out = appendEntry(out, nameIndex, indexJSON(DigestOf(topRaw), int64(len(topRaw)), top.Manifests[1:]))
	out = appendEntry(out, BlobPath(DigestOf(topRaw)), topRaw)
	out = appendEntry(out, nameSignatures, slot)
	out = appendEntry(out, BlobPath(DigestOf(mmRaw)), mmRaw)
	out = appendEntry(out, BlobPath(mm.Config.Digest), meta)
	return appendEntry(out, BlobPath(mm.Layers[0].Digest), table)
}

const fuzzMeta = `{"formatVersion":1,"minRefit":"0.1.0","name":"n","version":"1.0.0","platforms":[],"images":[{"name":"r.example/a:1","digest":"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","mediaType":"m","group":"g","size":6,"unpackedSize":0,"blobs":[0]}],"payloads":[{"name":"p","digest":"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","size":6,"mode":493,"blob":0}],"chunkSize":512,"blobs":[{"digest":"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","size":6,"unpackedSize":0}]}`

// For any content of the parts, parsing returns an error or a header in which every
// number is safe to use.
func FuzzParseParts(f *testing.F) {
	slot, err := EncodeSlot(nil)
	if err != nil {
		f.Fatal(err)
	}
	table := []byte("\x58\x91\xb5\xb5\x22\xd5\xdf\x08\x6d\x0f\xf0\xb1\x10\xfb\xd9\xd2\x1b\xb4\xfc\x71\x63\xaf\x34\xd0\x82\x86\xa2\xe8\x46\xf6\xbe\x03")
	f.Add([]byte(fuzzMeta), table, slot)
	f.Add([]byte(`{"formatVersion":2}`), []byte{}, slot)
	f.Add([]byte(`{"formatVersion":1,"chunkSize":1}`), table, []byte(`{"signatures":[{"payloadType":"","payload":"","signatures":[{"keyid":"","sig":""}]}]}`))
	if _, err := ParseHeader(enclose([]byte(fuzzMeta), table, slot)); err != nil {
		f.Fatalf("the seed is no bundle: %v", err)
	}
	f.Fuzz(func(t *testing.T, meta, table, slot []byte) {
		h, err := ParseHeader(enclose(meta, table, slot))
		if err != nil {
			return
		}
		at := int64(len(h.Raw))
		for i, b := range h.Metadata.Blobs {
			if h.BlobOffset(i) < at || b.Size < 0 {
				t.Fatalf("blob %d overlaps", i)
			}
			at = h.BlobOffset(i) + b.Size
			_ = h.UserOf(i)
		}
		if at+EndSize > h.FileSize() {
			t.Fatal("the file ends before its blobs")
		}
		for n := range h.Chunks.Len() {
			if c := h.Chunks.Chunk(n); c.Size < 1 || c.Offset+c.Size > h.Metadata.Blobs[c.Blob].Size {
				t.Fatalf("chunk %d = %+v", n, c)
			}
		}
		for _, img := range h.Metadata.Images {
			for _, b := range img.Blobs {
				_ = h.Metadata.Blobs[b]
			}
		}
		for _, p := range h.Metadata.Payloads {
			_ = h.Metadata.Blobs[p.Blob]
		}
	})
}
