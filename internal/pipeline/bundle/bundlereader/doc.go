// Package bundlereader opens bundles and reads nothing from them unchecked.
//
// Promise: Open reads the header only and accepts it only if every byte of it
// follows from the top manifest; every chunk, blob or file that is handed out
// afterwards was compared with the chunk table under that manifest. Whether the
// bundle is trusted is decided before, from the header, by bundle.Decide.
// Memory stays at a few chunks, whatever the size of the bundle.
//
// Inputs: an io.ReaderAt (a file, a device, a file inside a file system that is
// read in user space). Outputs: the Header, verified bytes, errors that name
// the part, the image, the digest and the offset. Callers: the load and
// distribute halves of the agent, bundlewriter (bundles as sources), the
// controller and the CLI.
//
//	f, err := read.OpenPath("/dev/sdb")
//	d := bundle.Decide(f.Header(), approved, trust, version)
//	if d.Allowed { data, err := f.ReadChunk(0, nil) }
package bundlereader
