// Package bundlereader opens bundles and reads nothing from them unchecked.
//
// Promise: Open reads the header only, and accepts it only if every byte of it follows
// from the top manifest. Every chunk, blob or file that is read afterwards is compared
// with the chunk table under that manifest. Whether the bundle is trusted is decided
// before, from the header, by bundle.Decide. Memory stays at a few chunks for a bundle of
// any size.
//
// Search finds all bundles on a medium, within bounds, for a process without privileges that tells
// another one where they are. OpenPath also finds a bundle in the file system of a device or an image, with or without a
// partition table. It knows a bundle by its header, never by its name, and takes none of several.
//
// Upload is the artifact that a registry stores for a bundle.
// A bundle in parts is read where they are. FindDamage names every damaged range, for a repair.
//
// Inputs: an io.ReaderAt, or the path of a file, a device or an image. Outputs: the Header,
// verified bytes, errors that name the part, the image, the digest and the offset. Callers: the
// load and distribute halves of the agent, bundlewriter (bundles as sources), the controller and
// the CLI.
//
//	f, err := bundlereader.OpenPath("/dev/sdb")
//	d := bundle.Decide(f.Header(), approved, trust, version)
//	if d.Allowed { data, err := f.ReadChunk(0, nil) }
package bundlereader
