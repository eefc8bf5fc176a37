// Package bootstream reads which boot images are wanted, and finds one.
//
// Promise: pure. What is asked for and not there is an error that names what is
// missing and what there is; a stream that cannot be read is an error and never
// an empty stream. Fields that nobody needs are not read.
//
// Forms: CoreOS stream metadata (RHEL and Fedora CoreOS; one stream, or several
// in OpenShift's ConfigMap), and a plain list for everything else (Generic).
// Architectures are spelled as Kubernetes does (amd64), whatever the form says.
//
// Inputs: bytes. Outputs: Stream, Image. Callers: internal/controller/bootimages,
// `refit bootimage`.
//
//	s, err := bootstream.Parse(data)
//	img, err := s.Find(bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "eu-central-1"})
//	img.Attributes["image"] // ami-...
package bootstream
