// Package containerd loads images into a containerd and pins them there,
// without any registry, so that the kubelet finds them under the very names and
// digests that pods say.
//
// Promise: Load leaves the image unpacked and synced before any name of it
// appears; its names are name:tag, repository@digest and, for an index, the
// manifest's digest too. Pin labels every record of an image, that of its ID
// among them, because a later pull of a name takes the label off that name.
// Both may be repeated at any time and do only what is missing. Only this
// node's platform is unpacked; other platforms of an index may be absent.
//
// A layer that is a file on this node goes straight into containerd's directory of
// blobs, verified and synced, and containerd only records it. It never shares an inode
// with the file that it was copied from. In any doubt containerd gets the bytes over
// its API and verifies them.
//
// It calls containerd's services itself (api.go, contentstore.go, imagestore.go): the general client
// would make the agent 2 MB larger. Tests compare with that client.
//
// Inputs: an Image and a Blobs (where its blobs are). Outputs: records in
// containerd's namespace k8s.io. Callers: the agent halves of load and pin.
package containerd
