package auditfacts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// proof is what a container proves: when it started, name referred to the image id on its node.
type proof struct {
	name string // repository:tag or repository@digest
	id   string // imageID as the kubelet reports it
	repo string
	at   int64
}

// proofs returns those of the containers of one node.
func proofs(pods []*model.ImagePod) []proof {
	var out []proof
	for _, p := range pods {
		for i := range p.Uses {
			u := &p.Uses[i]
			if u.Runs == "" || u.Since == 0 {
				continue
			}
			if r, err := imagetag.ParseRef(u.Image); err == nil {
				out = append(out, proof{name: nameOf(r), id: u.Runs, repo: r.Repository, at: u.Since})
			}
			if r, err := imagetag.ParseRef(u.RunsAs); err == nil && !isID(u.RunsAs) && r.Tag != "" && r.Digest == "" {
				out = append(out, proof{name: r.String(), id: u.Runs, repo: r.Repository, at: u.Since})
			}
		}
	}
	// The newest first: a tag may have moved since the older ones started.
	slices.SortStableFunc(out, func(a, b proof) int { return cmp.Compare(b.at, a.at) })
	return out
}

// nameOf returns the name that a runtime resolves: it ignores a tag next to a digest, and a
// missing tag is latest.
func nameOf(r imagetag.Ref) string {
	switch {
	case r.Digest != "":
		return r.Repository + "@" + r.Digest
	case r.Tag == "":
		return r.Repository + ":latest"
	}
	return r.Repository + ":" + r.Tag
}

// addProofs adds what containers prove to a node's list. That is images missing in a limited
// list, the configuration of a name without a digest, and a tag that moved after the list.
func (n *nodeFacts) addProofs(pods []*model.ImagePod) {
	seen := map[string]bool{}
	for _, p := range proofs(pods) {
		if seen[p.name] {
			continue
		}
		seen[p.name] = true
		n.addProof(p)
	}
	n.markUsed(pods)
}

func (n *nodeFacts) addProof(p proof) {
	newer := n.asOf == 0 || p.at > n.asOf
	if have := n.entry(p.name); have != nil {
		switch {
		case n.matches(have, p.id):
			return
		case !hasDigest(have) && have.ID == "":
			n.setIdentity(have, p) // the list has only the name
			return
		case !newer:
			return // the list is newer and has another image
		}
		have.Names = slices.DeleteFunc(have.Names, func(s string) bool { return s == p.name })
	} else if n.Complete && !newer {
		return // the name was removed since
	}
	c := n.byID(p.id)
	if c == nil {
		n.Images = append(n.Images, model.CachedImage{})
		c = &n.Images[len(n.Images)-1]
	}
	addName(c, p.name)
	n.setIdentity(c, p)
}

// setIdentity records the image of a proof.
func (n *nodeFacts) setIdentity(c *model.CachedImage, p proof) {
	if _, digest, ok := strings.Cut(p.id, "@"); ok {
		repo, _, _ := strings.Cut(p.id, "@")
		if r, err := imagetag.ParseRef(repo + "@" + digest); err == nil {
			addName(c, r.Repository+"@"+r.Digest)
		}
		return
	}
	c.ID = model.IdentityOf(p.id, "", "").ID
}

// matches reports whether an entry is the image of an imageID.
func (n *nodeFacts) matches(c *model.CachedImage, imageID string) bool {
	id := model.IdentityOf(imageID, "", "")
	if id.ID != "" && c.ID == id.ID {
		return true
	}
	return len(id.Digests) > 0 && slices.ContainsFunc(c.Names, func(s string) bool { return strings.HasSuffix(s, "@"+id.Digests[0]) })
}

func (n *nodeFacts) byID(imageID string) *model.CachedImage {
	for i := range n.Images {
		if n.matches(&n.Images[i], imageID) {
			return &n.Images[i]
		}
	}
	return nil
}

func hasDigest(c *model.CachedImage) bool {
	return slices.ContainsFunc(c.Names, func(s string) bool { return strings.Contains(s, "@") })
}

// markUsed marks the images of containers, and records the pull secrets of the pods that use a
// repository. A repository that a pod without secrets uses needs none.
func (n *nodeFacts) markUsed(pods []*model.ImagePod) {
	secrets := map[string][]string{}
	open := map[string]bool{}
	for _, p := range pods {
		for i := range p.Uses {
			u := &p.Uses[i]
			if c := n.byID(u.Runs); u.Runs != "" && c != nil {
				c.Used = true
			}
			r, err := imagetag.ParseRef(u.Image)
			if err != nil {
				continue
			}
			open[r.Repository] = open[r.Repository] || len(p.Secrets) == 0
			for _, s := range p.Secrets {
				secrets[r.Repository] = append(secrets[r.Repository], p.Namespace+"/"+s)
			}
		}
	}
	if len(secrets) > 0 {
		n.addSecrets(secrets, open)
	}
}

func (n *nodeFacts) addSecrets(byRepo map[string][]string, open map[string]bool) {
	for i := range n.Images {
		c := &n.Images[i]
		for _, name := range c.Names {
			if r, err := imagetag.ParseRef(name); err == nil && !open[r.Repository] {
				c.Secrets = append(c.Secrets, byRepo[r.Repository]...)
			}
		}
		slices.Sort(c.Secrets)
		c.Secrets = slices.Compact(c.Secrets)
	}
}
