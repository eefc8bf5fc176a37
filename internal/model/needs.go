package model

import (
	"fmt"
	"strings"
)

// LacksImages says that a node has not all images that kubeadm will look for, and the
// bundle does not bring them: it is said of the node by its agent, and of the update by
// the gate, in the same words.
func LacksImages(node string, images []string) Verdict {
	return Verdict{Reason: "ImagesMissing", Object: "Node/" + node,
		Message: fmt.Sprintf("node %s lacks %s, which kubeadm needs for this release and the bundle does not bring", node, strings.Join(images, ", ")),
		Fix:     "make a bundle with every image of the release (`kubeadm config images list` names them), or load the image on the node"}
}

// SnapshotRoom is how many bytes a snapshot of an etcd database of a size takes, with
// what it may grow meanwhile.
func SnapshotRoom(size int64) int64 { return size + size/4 + 16<<20 }
