// Package bootstream reads lists of wanted boot images, and finds an image in one.
//
// Promise: pure. A missing image is an error that names what is missing and what exists. An
// unreadable stream is an error and never an empty stream. Unused fields are ignored.
//
// Forms: CoreOS stream metadata (RHEL and Fedora CoreOS; one stream, or several in
// OpenShift's ConfigMap), and a plain list for everything else (EncodeGeneric).
// Architectures are spelled as in Kubernetes (amd64) in every form.
//
// Inputs: bytes. Outputs: Stream, Image. Callers: internal/controller/bootimages,
// `refit bootimage`.
//
//	s, err := bootstream.Parse(data)
//	img, err := s.Find(bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "eu-central-1"})
//	img.Attributes["image"] // ami-...
package bootstream
