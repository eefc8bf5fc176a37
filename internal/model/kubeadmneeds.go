package model

import (
	"fmt"
	"strings"
)

// ReleaseImagesMissing reports images that kubeadm needs on a node and the bundle does not
// have. The agent reports it for the node and the gate for the update, in the same words.
func ReleaseImagesMissing(node string, images []string) Blocker {
	return Blocker{Reason: "ImagesMissing", Object: "Node/" + node,
		Message: fmt.Sprintf("node %s does not have %s, which kubeadm needs for this release and the bundle does not have", node, strings.Join(images, ", ")),
		Fix:     "make a bundle with every image of the release (`kubeadm config images list` names them), or load the image on the node"}
}

// EtcdSnapshotSpace is how many bytes a snapshot of an etcd database of a size takes, with
// what it may grow meanwhile.
func EtcdSnapshotSpace(size int64) int64 { return size + size/4 + 16<<20 }
