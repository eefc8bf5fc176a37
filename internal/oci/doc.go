// Package oci reads images where they lie: OCI image layouts in folders and in
// tar archives, registries. It knows names, the graph of blobs under an image,
// and how to open a blob; it never unpacks and never writes.
//
// Promise: manifests are checked against their digest and size before they are
// believed and are held to 8 MiB; other blobs are streamed by their reader,
// who checks them. An archive is read in place: no file of it is ever created,
// links and odd names in it are not followed.
//
// Inputs: paths and references. Outputs: Root (a named image and the store it
// lies in), Graph (all blobs under it, in the order of the walk, and its
// platforms). Callers: bundlewriter.
//
//	roots, err := oci.OpenLayout("images", "")
//	g, err := oci.Walk(ctx, roots[0], []string{"linux/amd64"})
package oci
