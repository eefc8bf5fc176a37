package pin

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/model"
)

// Reason words of a node that would not come back; they are in the API.
const (
	reasonImagesMissing         = "ImagesMissing"
	reasonNoLocalCopy           = "NoLocalCopy"
	reasonColdStartCheckMissing = "ColdStartCheckMissing"
	reasonImageNotPinned        = "ImageNotPinned"
)

// StartFacts are what is known of one node that may lose its power and its
// runtime's store.
type StartFacts struct {
	Node string
	// Known: its agent has said what it holds, of the newest list. Complete: it holds
	// and pins all of it.
	Known, Complete bool
	// Pinned is the list. Without are held images of which the node has no whole copy;
	// More says that there are others that are not named.
	Pinned          []model.PinSetImage
	NoCopy          []string
	MoreWithoutCopy bool
	// Checked: the images were checked before the kubelet's start in this boot.
	Checked bool
	// Used are the images of the pods on the node.
	Used []UsedImage
	// Peers are the other nodes.
	Peers []Peer
}

// UsedImage is an image that pods of the node are made from.
type UsedImage struct {
	Image string   `json:"image"`
	Pods  []string `json:"pods"`
	// System: without it the node is not what it was: static pods, and those of the
	// priority classes for nodes and the cluster.
	System bool `json:"system"`
}

// Peer is a node that may bring what another lost.
type Peer struct {
	Node string
	// Copies are the images, by Key, of which it has a whole copy.
	Copies map[string]bool
}

// StartForecast is what would become of the node.
type StartForecast struct {
	// ComesBack: by itself, with no registry, no network and no peer.
	ComesBack bool            `json:"comesBack"`
	Images    []StartImage    `json:"images"`
	NotPinned []UsedImage     `json:"notPinned,omitempty"`
	Blockers  []model.Blocker `json:"verdicts,omitempty"`
}

// StartImage is one held image.
type StartImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Copy: a whole one is on this node. Peers have one too; the first four.
	Copy  bool     `json:"copy"`
	Peers []string `json:"peers,omitempty"`
}

// maxPeersShown are how many nodes are named for an image.
const maxPeersShown = 4

// PredictStart says whether a node would come back.
func PredictStart(f StartFacts) StartForecast {
	var s StartForecast
	no := func(reason, message, fix string) {
		s.Blockers = append(s.Blockers, model.Blocker{Reason: reason, Message: message, Fix: fix, Object: "Node/" + f.Node})
	}
	onPeers, lost := f.listCopies(&s)
	f.reportUnpinned(&s, no)
	switch {
	case !f.Known:
		no(reasonImagesMissing, fmt.Sprintf("node %s has not said what it holds", f.Node), "see that refit-agent runs there: `systemctl status refit-agent`")
	case !f.Complete || len(f.Pinned) == 0:
		no(reasonImagesMissing, fmt.Sprintf("node %s does not hold and pin all images of its list (%d)", f.Node, len(f.Pinned)), "make a PinnedImageSet of what it needs, and wait until `refit status` says that it is held")
	}
	if len(onPeers) > 0 {
		no(reasonNoLocalCopy, fmt.Sprintf("%s would be without %d images until peers send them over the network: %s", f.Node, len(onPeers), firstThree(onPeers)),
			"set localCopy: Keep in the UpdatePool, or in the PinnedImageSets that hold them, and wait until the node has its copy")
	}
	if len(lost) > 0 || f.MoreWithoutCopy {
		no(reasonNoLocalCopy, fmt.Sprintf("%s has no copy of %d images, and no peer is known to have one: %s", f.Node, max(len(lost), 1), firstThree(lost)),
			"set localCopy: Keep in the UpdatePool, or in the PinnedImageSets that hold them; if no node has a copy, plug in the medium again")
	}
	if !f.Checked {
		no(reasonColdStartCheckMissing, fmt.Sprintf("the images of node %s were not checked before its kubelet started this time: refit-preflight.service did not run", f.Node),
			"install the agent again (`refit install`), and check `systemctl status refit-preflight` on the node")
	}
	s.ComesBack = len(s.Blockers) == 0
	return s
}

// listCopies returns the images of which the node has no copy: those that a peer has, and
// the others.
func (f StartFacts) listCopies(s *StartForecast) (onPeers, lost []string) {
	for _, img := range f.Pinned {
		if img.Registry {
			continue
		}
		i := StartImage{Name: img.Name, Digest: img.Digest, Copy: !slices.Contains(f.NoCopy, img.Name), Peers: f.peersWithCopy(img)}
		s.Images = append(s.Images, i)
		switch {
		case i.Copy:
		case len(i.Peers) > 0:
			onPeers = append(onPeers, fmt.Sprintf("%s (%s has one)", img.Name, strings.Join(i.Peers, ", ")))
		default:
			lost = append(lost, img.Name)
		}
	}
	return onPeers, lost
}

// reportUnpinned reports images of pods that no PinnedImageSet pins: the kubelet may
// collect them, and no copy of them is kept.
func (f StartFacts) reportUnpinned(s *StartForecast, no func(reason, message, fix string)) {
	var system []string
	for _, u := range f.Used {
		if slices.ContainsFunc(f.Pinned, func(i model.PinSetImage) bool { return matchesPin(u.Image, i) }) {
			continue
		}
		s.NotPinned = append(s.NotPinned, u)
		if u.System {
			system = append(system, fmt.Sprintf("%s (%s)", u.Image, firstThree(u.Pods)))
		}
	}
	sort.Slice(s.NotPinned, func(i, j int) bool { return s.NotPinned[i].Image < s.NotPinned[j].Image })
	sort.Strings(system)
	if len(system) > 0 {
		no(reasonImageNotPinned, fmt.Sprintf("%d images without which node %s does not do its work are in no list that it holds: %s", len(system), f.Node, firstThree(system)),
			"add them to a PinnedImageSet, from a bundle that has them")
	}
}

// matchesPin reports whether a pod's image is a held one: by tag, by digest, or both.
func matchesPin(image string, held model.PinSetImage) bool {
	name, digest, byDigest := strings.Cut(image, "@")
	if !byDigest {
		return image == held.Name
	}
	return digest == held.Digest && Repository(name) == Repository(held.Name)
}

func (f StartFacts) peersWithCopy(img model.PinSetImage) (out []string) {
	for _, o := range f.Peers {
		if o.Copies[Key(img)] && len(out) < maxPeersShown {
			out = append(out, o.Node)
		}
	}
	return out
}

// firstThree is a list that a person can read.
func firstThree(all []string) string { return text.FirstOf(all, 3, ", ") }
