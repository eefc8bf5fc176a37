// Package bundledelta writes what one bundle needs more than another, and makes the full bundle
// from the two.
//
// Promise: Restore gives the bytes of the bundle that Create read, signatures included, or no
// file under that name. Every chunk and blob is compared with the header of the target while it
// is written, and that header has the digest that the delta names. So a delta needs no signature
// of its own: the restored bundle is trusted as any other. Memory has a bound that does not depend
// on the input; unpacked blobs of the base are on disk, in files without a name.
//
// A blob of the target is a blob of the base, bytes, or a patch of up to four unpacked blobs of the
// base. A layer in gzip is patched only if Create packed it again to the same bytes. It does so along the
// tokens of the layer, which are patched too and need no search for matches, or with an encoder.
//
// An Inventory lists the bundles of a site whose bytes are not at hand. CreateFrom leaves out what one
// of them has. An inventory needs no trust either: Restore refuses a base that does not have what was
// left out, before it writes anything.
//
// Inputs: bundlereader.File, the path of a delta, the bytes of an inventory. Outputs: a file, errors
// that name the part and what to do. Callers: the CLI; the agent, which makes single blobs in processes
// without privileges (Step). The format is docs/reference/delta-format.md.
//
// Size: both ways to make a delta and the one to restore it share its format; an inventory has no
// other use.
package bundledelta
