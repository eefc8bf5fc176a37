package bundletest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Raw are the parts of a header as bytes, so that a test can write in them what
// Marshal never would. Digests and sizes that parts have of each other are right.
type Raw struct {
	// Images follow the metadata manifest in the top manifest, Payloads the chunk table
	// in the metadata manifest; both with the comma before them.
	Images, Payloads string
	// Members are further ones of the metadata manifest, with the comma before them.
	Members         string
	Metadata, Table []byte
}

// Header puts the parts together.
func (r Raw) Header() []byte {
	descriptor := func(media string, content []byte) string {
		return fmt.Sprintf(`{"mediaType":%q,"artifactType":%q,"digest":%q,"size":%d}`, media, bundle.ArtifactType, bundle.DigestOf(content), len(content))
	}
	manifest := []byte(fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s%s]%s}`, descriptor(bundle.MediaTypeMetadata, r.Metadata), descriptor(bundle.MediaTypeChunks, r.Table), r.Payloads, r.Members))
	top := []byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"annotations":{%q:"test",%q:"1.0.0"},"manifests":[%s%s]}`,
		bundle.MediaTypeIndex, bundle.ArtifactType, bundle.AnnotationTitle, bundle.AnnotationVersion, descriptor(bundle.MediaTypeManifest, manifest), r.Images))
	index := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, bundle.MediaTypeIndex, descriptor(bundle.MediaTypeIndex, top)) // without images
	slot, err := bundle.EncodeSlot(nil)
	if err != nil {
		panic(err) // no signature has room
	}
	var out []byte
	for _, e := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", []byte(index)}, {bundle.BlobPath(bundle.DigestOf(top)), top}, {"refit-signatures.json", slot},
		{bundle.BlobPath(bundle.DigestOf(manifest)), manifest}, {bundle.BlobPath(bundle.DigestOf(r.Metadata)), r.Metadata}, {bundle.BlobPath(bundle.DigestOf(r.Table)), r.Table},
	} {
		h := bundle.TarHeader(e.name, int64(len(e.content)))
		out = append(append(out, h[:]...), e.content...)
		out = append(out, make([]byte, bundle.PaddedSize(int64(len(e.content)))-int64(len(e.content)))...)
	}
	return out
}

// metadata is the JSON of metadata with further members.
func metadata(more string) []byte {
	return []byte(`{"formatVersion":1,"minRefit":"0.1.0","name":"test","version":"1.0.0","chunkSize":512` + more + `}`)
}

func repeated(item string, size int) string { return strings.Repeat(","+item, size/(len(item)+1)) }

// blobDigest is one of many digests.
func blobDigest(i int) string { return fmt.Sprintf("sha256:%064x", i) }

func list(size int, item func(i int) string) string {
	var b strings.Builder
	for i := 0; ; i++ {
		s := item(i)
		if b.Len()+len(s)+1 > size {
			return b.String()
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(s)
	}
}

// Costly are headers that are dear to a reader that builds what it reads: by what
// is in them. manifest and meta are the sizes of the JSON that a manifest and the
// metadata get, in bytes.
func Costly(manifest, meta int) map[string][]byte {
	empty := metadata("")
	image := func(more string) string {
		return fmt.Sprintf(`{"name":"r.example/a:1","digest":%q,"mediaType":"m","group":"g","size":1,"unpackedSize":0,"blobs":[%s]}`, blobDigest(0), more)
	}
	blobs := list(min(meta, 3<<20), func(i int) string { return fmt.Sprintf(`{"digest":%q,"size":1,"unpackedSize":0}`, blobDigest(i)) })
	chunks := bytes.Repeat([]byte{0}, bundle.HashSize*strings.Count(blobs, "digest"))
	for i := range len(chunks) / bundle.HashSize { // chunk i is the blob of that digest
		at := (i + 1) * bundle.HashSize
		chunks[at-1], chunks[at-2], chunks[at-3] = byte(i), byte(i>>8), byte(i>>16)
	}
	return map[string][]byte{
		"manifests without content":  Raw{Metadata: empty, Images: repeated("{}", manifest)}.Header(),
		"images without content":     Raw{Metadata: metadata(`,"images":[{}` + repeated("{}", meta) + `]`)}.Header(),
		"payloads without content":   Raw{Metadata: metadata(`,"payloads":[{}` + repeated("{}", meta) + `]`)}.Header(),
		"layers without content":     Raw{Metadata: empty, Payloads: repeated("{}", manifest)}.Header(),
		"blobs of an image":          Raw{Metadata: metadata(`,"images":[` + image("0"+repeated("0", meta)) + `]`)}.Header(),
		"blobs of an image in order": Raw{Metadata: metadata(`,"images":[` + image(list(meta, func(i int) string { return fmt.Sprint(i) })) + `]`)}.Header(),
		"blobs without content":      Raw{Metadata: metadata(`,"blobs":[{}` + repeated("{}", meta) + `]`)}.Header(),
		"as many blobs as have room": Raw{Metadata: metadata(`,"images":[],"blobs":[` + blobs + `]`), Table: chunks}.Header(),
		"platforms":                  Raw{Metadata: metadata(`,"platforms":["a/b"` + repeated(`"a/b"`, meta) + `]`)}.Header(),
		"a text":                     Raw{Metadata: metadata(`,"kubernetesVersion":"` + strings.Repeat("v", meta) + `"`)}.Header(),
		"annotations":                Raw{Metadata: empty, Images: `,{"mediaType":"m","digest":"` + blobDigest(0) + `","size":1,"annotations":{"a":""` + repeated(`"a":""`, manifest) + `}}`}.Header(),
		"an unknown member":          Raw{Metadata: empty, Members: `,"other":[{}` + repeated("{}", manifest) + `]`}.Header(),
		"values in each other":       Raw{Metadata: metadata(`,"other":` + strings.Repeat("[", meta/2) + strings.Repeat("]", meta/2))}.Header(),
	}
}

// Large is a valid header with a chunk table of 61 MiB: two million chunks.
func Large() []byte {
	table := bytes.Repeat([]byte{1}, 2_000_000*bundle.HashSize)
	const size = 2_000_000 * 512
	meta := metadata(fmt.Sprintf(`,"images":[],"blobs":[{"digest":%q,"size":%d,"unpackedSize":0}]`, blobDigest(1), size))
	return Raw{Metadata: meta, Table: table}.Header()
}
