package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// singleReplica is T08: "no downtime" rests on a second replica.
func singleReplica(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		m, _ := x.movementOf(r)
		if m != moves || o.Replicas < 1 {
			return
		}
		switch {
		case o.Replicas == 1 && !o.Surges:
			x.addUse(o, u, Warning, "a restart that pulls this moving tag is an outage as long as the pull: one replica, and none starts before it ends", "two replicas, maxSurge 1, or the image by digest")
		case x.strict(o):
			x.addUse(o, u, Warning, "its disruption budget lets no pod go, so it can only be moved by force, and this tag moves", "loosen the budget, or name the image by digest")
		}
	})
}

// strict: a budget of the same namespace covers its pods and lets none go.
func (x *check) strict(o *Object) bool {
	return slices.ContainsFunc(x.objects, func(b Object) bool {
		if b.Budget == nil || b.Namespace != o.Namespace || len(b.Budget.Labels) == 0 {
			return false
		}
		for k, v := range b.Budget.Labels {
			if o.Labels[k] != v {
				return false
			}
		}
		return b.Budget.AllowsNone || b.Budget.MinAvailable >= o.Replicas
	})
}

// comparesFrom is the minor version from which kubelets compare credentials.
const comparesFrom = 35

// credentials is T10.
func credentials(x *check) {
	if !x.site.Offline && x.site.Bundle == nil {
		return
	}
	for i := range x.objects {
		o := &x.objects[i]
		if o.Kubelet == nil || !compares(o.Kubelet.Version) {
			continue
		}
		if why := verificationOf(o.Kubelet.Verification, o.Kubelet.Allowed); why != "" {
			x.addUse(o, nil, Warning, why, "imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages, or list the repositories in preloadedImagesVerificationAllowlist")
			if l := o.Kubelet.VerificationLine; l > 0 {
				x.findings[len(x.findings)-1].Line = l
			}
		}
	}
	x.sharedDigests()
}

func verificationOf(policy string, allowed []string) string {
	switch policy {
	case "AlwaysVerify":
		return "the kubelet asks a registry also for images that were loaded (AlwaysVerify): they do not start without one"
	case "NeverVerifyAllowlistedImages":
		list := "none is listed"
		if len(allowed) > 0 {
			list = strings.Join(allowed, ", ")
		}
		return "the kubelet asks a registry for loaded images that are not on its list (" + list + ")"
	}
	return ""
}

func compares(version string) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return true // not known: better said than not
	}
	minor, err := strconv.Atoi(strings.TrimRight(parts[1], "+"))
	return err != nil || minor >= comparesFrom
}

// sharedDigests: one content under two repositories. A pull under one makes the
// kubelet ask a registry before the other is used, loaded or not.
func (x *check) sharedDigests() {
	repos := map[string][]string{}
	for name, digest := range x.site.Bundle {
		repo := name[:max(0, strings.LastIndexByte(name, ':'))]
		if !slices.Contains(repos[digest], repo) {
			repos[digest] = append(repos[digest], repo)
		}
	}
	o := &Object{Kind: "Bundle", Name: "images"}
	for digest, names := range repos {
		if len(names) > 1 {
			slices.Sort(names)
			x.addUse(o, nil, Warning, fmt.Sprintf("the bundle brings one image (%s) under %d repositories (%s): a kubelet of 1.35 or later that pulls it under one asks a registry before it uses another",
				digest, len(names), strings.Join(names, ", ")), "name it by one repository everywhere")
		}
	}
}

// rollbackWindow in seconds, if no other is configured: thirty days.
const rollbackWindow = 30 * 24 * 3600

// unprotected is T11.
func unprotected(x *check) {
	window := x.config.RollbackSeconds
	if window == 0 {
		window = rollbackWindow
	}
	for i := range x.objects {
		o := &x.objects[i]
		if o.Kubelet == nil || o.Kubelet.MaxAge == 0 || o.Kubelet.MaxAge >= window {
			continue
		}
		x.addUse(o, nil, Warning, fmt.Sprintf("the kubelet collects images after %d unused seconds, and the rollback window is %d seconds", o.Kubelet.MaxAge, window),
			"raise imageMaximumGCAge above the rollback window, or pin what a rollback needs (a PinnedImageSet)")
		if l := o.Kubelet.MaxAgeLine; l > 0 {
			x.findings[len(x.findings)-1].Line = l
		}
	}
	for i := range x.site.Nodes {
		if n := &x.site.Nodes[i]; n.PinnedKnown {
			x.unpinned(n)
		}
	}
}

// unpinned names the bundle's images that a node has and does not pin.
func (x *check) unpinned(n *model.ImageNode) {
	var names []string
	for i := range n.Images {
		for _, name := range n.Images[i].Names {
			if _, ours := x.site.Bundle[name]; ours && !n.Images[i].Pinned {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		x.addUse(&Object{Kind: "Node", Name: n.Name}, nil, Warning, fmt.Sprintf("%d images of the bundle are not pinned here: %s", len(names), some(names)),
			"pin them: approve the bundle, or name them in a PinnedImageSet")
	}
}

// some are the first names of a list.
func some(names []string) string { return text.FirstOf(names, 3, ", ") }

// alwaysAdmission is T13.
func alwaysAdmission(x *check) {
	if !x.site.Offline {
		return
	}
	const message = "AlwaysPullImages writes policy Always into every new pod, and this site has no registry: no new pod starts"
	const fix = "take AlwaysPullImages out of --enable-admission-plugins"
	said := false
	for i := range x.objects {
		if o := &x.objects[i]; slices.ContainsFunc(o.Args, forcesPull) {
			x.addUse(o, nil, Error, message, fix)
			said = true
		}
	}
	if x.site.AlwaysPull && !said {
		x.addUse(&Object{Kind: "APIServer", Name: "admission"}, nil, Error, message, fix)
	}
}

func forcesPull(arg string) bool { return enables(arg, "AlwaysPullImages") }

// enables reports whether an argument of an API server enables an admission plugin.
func enables(arg, plugin string) bool {
	list, ok := strings.CutPrefix(arg, "--enable-admission-plugins=")
	return ok && slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return strings.TrimSpace(s) == plugin })
}

// pullAfterKill is T14.
func pullAfterKill(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if !o.AfterKill || policy(u, r) == model.PullNever {
			return
		}
		name := nameOf(r)
		if r.Digest != "" {
			name = r.Repository + "@" + r.Digest
		}
		var without []string
		for i := range x.site.Nodes {
			if n := &x.site.Nodes[i]; n.Complete && o.goesTo(n) && !has(n, name) {
				without = append(without, n.Name)
			}
		}
		if len(without) > 0 {
			x.addUse(o, u, Warning, fmt.Sprintf("%d nodes do not have this image (%s): each is without this pod for as long as the pull takes", len(without), some(without)),
				"preload it: a PinnedImageSet with this image for these nodes, then roll out")
		}
	})
}

// goesTo reports whether a node takes pods of the object.
func (o *Object) goesTo(n *model.ImageNode) bool {
	p := model.ImagePod{Tolerates: o.Tolerates}
	return p.Bears(n.Taints) && covers(o.NodeSelector, n.Labels)
}

func covers(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func has(n *model.ImageNode, name string) bool {
	return slices.ContainsFunc(n.Images, func(c model.CachedImage) bool { return slices.Contains(c.Names, name) })
}
