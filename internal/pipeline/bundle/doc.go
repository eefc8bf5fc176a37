// Package bundle is the bundle format, version 1: what a bundle says of itself,
// the order of its bytes, its chunk table and its signatures. It is pure: it
// works on values and byte slices; read and write do the input and output.
//
// A bundle is an OCI image layout in a tar, index first. The order of the
// entries is fixed:
//
//	oci-layout                   constant
//	index.json                   a function of the top manifest
//	blobs/sha256/<top>           the top manifest, an OCI image index; its digest names the bundle
//	refit-signatures.json        fixed size slot: DSSE envelopes over the digest of the top manifest
//	blobs/sha256/<meta manifest> OCI artifact manifest: config = metadata, layers = chunk table, payloads
//	blobs/sha256/<metadata>      Metadata as JSON
//	blobs/sha256/<chunk table>   32 bytes (SHA-256) per chunk of every following blob
//	blobs/sha256/...             all other blobs, in the order of Metadata.Blobs
//
// Every byte that is neither a blob nor in the signature slot (tar headers, padding,
// oci-layout, index.json) is a function of the top manifest and is compared when read. So
// an approval of the digest of the top manifest approves every byte of the file, and knows
// the offset of every blob after reading the header.
//
// A header is read before anything of it is trusted. Each part is checked against the
// parts above it before it is read, and each member of a list before the next one. So
// memory depends on valid content only: well below 64 MiB for any input, plus the bytes of
// the header where they are kept (ParseHeader, ReadHeader). ParseHeaderOf compares a known
// digest before it decodes anything; then the rest was approved with that digest.
//
// Inputs: bytes and values. Outputs: Header, Metadata, offsets, Decision, errors that name
// the part, the digest and the offset. Callers: bundlereader, bundlewriter, pin and
// transfer (chunks), the controller (images of a bundle), the CLI.
//
// Size: one format is one package; what is above the limit are the checks of
// hostile input and the trust decision, which share its unexported values.
package bundle
