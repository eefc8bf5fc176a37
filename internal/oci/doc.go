// Package oci reads images from OCI image layouts in directories and tar archives, from
// Docker archives, and from registries. It has names, the graph of blobs of an image, and opens blobs; it
// never unpacks layers. It finds the credentials and the mirrors of a repository, and writes
// one image: refit's own.
//
// Promise: manifests are checked against their digest and size before they are
// used, and have at most 8 MiB; other blobs are streamed by their reader,
// who checks them. An archive is read in place: no name in it becomes the name of a file,
// and no link leads out of it. A compressed Docker archive is unpacked into a file without a
// name. Memory is bounded for any archive.
//
// Logins: an entry may name a registry or a path below it, as `podman login HOST/PATH`
// writes it and the kubelet reads it; the longest one that covers the repository counts
// (containers-auth.json(5)). A login for HOST/team-a is never shown to a request for
// HOST/team-b. Hosts may have wildcards for whole labels (*.registry.example).
//
// Mirrors: as a registries.conf of version 2 lists them (containers-registries.conf(5)),
// in the order in which they are tried, the image's own place last; a blocked registry has
// none. TLS is always verified: insecure permits plain HTTP and no more.
//
// Inputs: paths and references, a docker configuration, a registries.conf. Outputs: Root
// (a named image and its store), Graph (all blobs under it, in the order of
// the walk, and its platforms), credentials, repositories. Callers: bundlewriter,
// registry, controller/osimages, the command line.
//
//	roots, err := oci.OpenLayout("images", "")
//	g, err := oci.Walk(ctx, roots[0], []string{"linux/amd64"})
package oci
