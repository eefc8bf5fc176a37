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
	// Held is the list. Without are held images of which the node has no whole copy;
	// More says that there are others that are not named.
	Held    []model.HeldImage
	Without []string
	More    bool
	// Checked: the images were looked at before the kubelet's start in this boot.
	Checked bool
	// Used are the images of the pods on the node.
	Used []Used
	// Others are the other nodes.
	Others []Neighbour
}

// Used is an image that pods of the node are made from.
type Used struct {
	Image string   `json:"image"`
	Pods  []string `json:"pods"`
	// System: without it the node is not what it was: static pods, and those of the
	// priority classes for nodes and the cluster.
	System bool `json:"system"`
}

// Neighbour is a node that may bring what another lost.
type Neighbour struct {
	Node string
	// Copies are the images, by Key, of which it has a whole copy.
	Copies map[string]bool
}

// Start is what would become of the node.
type Start struct {
	// ComesBack: by itself, with no registry, no network and no neighbour.
	ComesBack bool            `json:"comesBack"`
	Images    []StartImage    `json:"images"`
	NotPinned []Used          `json:"notPinned,omitempty"`
	Verdicts  []model.Verdict `json:"verdicts,omitempty"`
}

// StartImage is one held image.
type StartImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Copy: a whole one is on this node. Neighbours have one too; the first four.
	Copy       bool     `json:"copy"`
	Neighbours []string `json:"peers,omitempty"`
}

// neighboursShown are how many nodes are named for an image.
const neighboursShown = 4

// Foretell says whether a node would come back.
func Foretell(f StartFacts) Start {
	var s Start
	no := func(reason, message, fix string) {
		s.Verdicts = append(s.Verdicts, model.Verdict{Reason: reason, Message: message, Fix: fix, Object: "Node/" + f.Node})
	}
	lacks, lost := f.without(&s)
	f.notHeld(&s, no)
	switch {
	case !f.Known:
		no(reasonImagesMissing, fmt.Sprintf("node %s has not said what it holds", f.Node), "see that refit-agent runs there: `systemctl status refit-agent`")
	case !f.Complete || len(f.Held) == 0:
		no(reasonImagesMissing, fmt.Sprintf("node %s does not hold and pin all images of its list (%d)", f.Node, len(f.Held)), "make a PinnedImageSet of what it needs, and wait until `refit status` says that it is held")
	}
	if len(lacks) > 0 {
		no(reasonNoLocalCopy, fmt.Sprintf("%s would lack %d images until neighbours bring them over the network: %s", f.Node, len(lacks), some(lacks)),
			"set localCopy: Keep in the UpdatePool, or in the PinnedImageSets that hold them, and wait until the node has its copy")
	}
	if len(lost) > 0 || f.More {
		no(reasonNoLocalCopy, fmt.Sprintf("%s has no copy of %d images, and no neighbour is known to have one: %s", f.Node, max(len(lost), 1), some(lost)),
			"set localCopy: Keep in the UpdatePool, or in the PinnedImageSets that hold them; if no node has a copy, plug in the medium again")
	}
	if !f.Checked {
		no(reasonColdStartCheckMissing, fmt.Sprintf("the images of node %s were not looked at before its kubelet started this time: refit-preflight.service did not run", f.Node),
			"install the agent anew (`refit install`), and look at `systemctl status refit-preflight` on the node")
	}
	s.ComesBack = len(s.Verdicts) == 0
	return s
}

// without are the images of which the node has no copy: those that a neighbour has,
// and the others.
func (f StartFacts) without(s *Start) (lacks, lost []string) {
	for _, img := range f.Held {
		if img.Registry {
			continue
		}
		i := StartImage{Name: img.Name, Digest: img.Digest, Copy: !slices.Contains(f.Without, img.Name), Neighbours: f.have(img)}
		s.Images = append(s.Images, i)
		switch {
		case i.Copy:
		case len(i.Neighbours) > 0:
			lacks = append(lacks, fmt.Sprintf("%s (%s has one)", img.Name, strings.Join(i.Neighbours, ", ")))
		default:
			lost = append(lost, img.Name)
		}
	}
	return lacks, lost
}

// notHeld are images of pods that nobody pins: the kubelet may collect them, and no
// copy of them is kept.
func (f StartFacts) notHeld(s *Start, no func(reason, message, fix string)) {
	var system []string
	for _, u := range f.Used {
		if slices.ContainsFunc(f.Held, func(i model.HeldImage) bool { return names(u.Image, i) }) {
			continue
		}
		s.NotPinned = append(s.NotPinned, u)
		if u.System {
			system = append(system, fmt.Sprintf("%s (%s)", u.Image, some(u.Pods)))
		}
	}
	sort.Slice(s.NotPinned, func(i, j int) bool { return s.NotPinned[i].Image < s.NotPinned[j].Image })
	sort.Strings(system)
	if len(system) > 0 {
		no(reasonImageNotPinned, fmt.Sprintf("%d images without which node %s does not do its work are in no list that it holds: %s", len(system), f.Node, some(system)),
			"add them to a PinnedImageSet, from a bundle that has them")
	}
}

// names reports whether a pod's image is a held one: by tag, by digest, or both.
func names(image string, held model.HeldImage) bool {
	name, digest, byDigest := strings.Cut(image, "@")
	if !byDigest {
		return image == held.Name
	}
	return digest == held.Digest && Repository(name) == Repository(held.Name)
}

func (f StartFacts) have(img model.HeldImage) (out []string) {
	for _, o := range f.Others {
		if o.Copies[Key(img)] && len(out) < neighboursShown {
			out = append(out, o.Node)
		}
	}
	return out
}

// some is a list that a person can read.
func some(all []string) string { return text.FirstOf(all, 3, ", ") }
