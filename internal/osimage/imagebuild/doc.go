// Package imagebuild makes OS images in two ways: it appends a layer to a base, or makes
// the Job that builds a Containerfile.
//
// Promise of Append: no builder, no privileges, no container. The same base by digest,
// entries and labels give the same bytes and so the same digest. Layers of the base are
// never read: they are mounted from their repository, or linked in a layout. What the
// base's manifest and configuration hold beyond what is edited stays as it is. An index
// becomes an index of the same platforms, without the attestations of the base.
//
// Promise of MakeJob: pure, and no pod is ever privileged, mounts a path of its node,
// shares a namespace of it, or gets a token of the API. PickVariant takes the tightest pod
// that the cluster lets build with buildah, and names why tighter ones are not taken. A
// build that cannot succeed ends the Job at once; faults of the surroundings are retried.
// The digest is the container's last message.
//
// Inputs: an image by digest (oci.Root) and entries of a placement; or what the cluster
// allows, a Containerfile and a destination. Outputs: new blobs, a push or an OCI layout;
// or a ConfigMap and a Job, and what became of them. Callers: controller/osimages, the
// command refit image build. Example:
//
//	img, err := imagebuild.Append(ctx, imagebuild.AppendRequest{Base: root, Entries: placed.Entries})
//	copied, err := img.Push(ctx, writer, "registry.example/os/edge", "")
package imagebuild
