// Package components builds what a lab consists of, and keeps it.
//
// Promise: every binary is built from a published Go module whose version and
// checksum are fixed in this package (modules/*.mod, modules/*.sum), once, and
// then kept under the user's cache directory by version. A build that is cut
// off leaves nothing that looks finished; two builders at once do not collide.
// The container images that kubeadm asks for are made from those binaries, as
// OCI archives with the very names and tags kubeadm uses, so that a cluster can
// be started without any registry.
//
// Inputs: a Kubernetes version of the table in versions.go, the Go toolchain,
// the Debian packages of [DebianPackages]. Outputs: directories and archives
// whose content never changes once they exist.
//
// Called by internal/lab, by test/capi (Cluster API's controllers), and by whoever
// makes a bundle of a release.
//
//	release, err := components.Release(ctx, "v1.36.3", func(line string) { log.Print(line) })
//	for _, image := range release.Images { fmt.Println(image.Name, image.Archive) }
package components
