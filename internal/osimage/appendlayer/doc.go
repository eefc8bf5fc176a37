// Package appendlayer makes an OS image of a base and a configuration: the base's
// manifest and configuration, edited, and one more layer. No builder, no
// privileges, no container.
//
// Promise: the same base by digest, entries and labels give the same bytes and so
// the same digest, with whatever compiler and at whatever time. Layers of the base
// are never read: they are mounted from their repository, or linked in a layout.
// What the base's manifest and configuration say beyond what is edited is kept as
// it is. An index becomes an index of the same platforms; attestations of the base
// are left out, since they do not speak of the new image.
//
// Inputs: an image by digest (oci.Root), entries of placement. Outputs: the blobs
// that are new, the layers of the base, a push or an OCI layout. Callers:
// internal/controller/osimages, the command refit image build. Example:
//
//	img, err := appendlayer.Build(ctx, appendlayer.Request{Base: root, Entries: placed.Entries})
//	copied, err := img.Push(ctx, writer, "registry.example/os/edge", "")
package appendlayer
