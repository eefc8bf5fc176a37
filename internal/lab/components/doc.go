// Package components builds what a lab consists of, and keeps it.
//
// Promise: every binary is built from a published Go module whose version and
// checksum are fixed in this package (modules/*.mod, modules/*.sum), once, and
// then kept under the user's cache directory by version. A build that is cut
// off leaves nothing that looks finished; two builders at once do not collide.
// It builds kubeadm's container images from those binaries, as OCI archives with
// kubeadm's names and tags, so that a cluster starts without a registry.
//
// Inputs: a Kubernetes version of the table in versions.go, the Go toolchain,
// the Debian packages of [DebianPackages]. Outputs: directories and archives
// whose content never changes once they exist.
//
// Callers: internal/lab, test/capi (Cluster API's controllers), and tests that create
// a bundle of a release.
//
//	release, err := components.Release(ctx, "v1.36.3", func(line string) { log.Print(line) })
//	for _, image := range release.Images { fmt.Println(image.Name, image.Archive) }
package components
