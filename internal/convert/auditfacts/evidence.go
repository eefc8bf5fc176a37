package auditfacts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// proof is what a container proves: when it started, name meant the image id on
// its node.
type proof struct {
	name string // repository:tag or repository@digest
	id   string // imageID as the kubelet reports it
	repo string
	at   int64
}

// proofs of the containers of one node.
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

// nameOf is the name a runtime looks for: a tag beside a digest counts for
// nothing, no tag is latest.
func nameOf(r imagetag.Ref) string {
	switch {
	case r.Digest != "":
		return r.Repository + "@" + r.Digest
	case r.Tag == "":
		return r.Repository + ":latest"
	}
	return r.Repository + ":" + r.Tag
}

// learn adds to a node's list what its containers prove: images that a cut off
// list lacks, the configuration behind a name without a digest, a tag that moved
// since the list was made.
func (n *nodeFacts) learn(pods []*model.ImagePod) {
	said := map[string]bool{}
	for _, p := range proofs(pods) {
		if said[p.name] {
			continue
		}
		said[p.name] = true
		n.one(p)
	}
	n.used(pods)
}

func (n *nodeFacts) one(p proof) {
	newer := n.asOf == 0 || p.at > n.asOf
	if have := n.entry(p.name); have != nil {
		switch {
		case n.matches(have, p.id):
			return
		case !hasDigest(have) && have.ID == "":
			n.put(have, p) // the list says the name only
			return
		case !newer:
			return // the list is newer, and says another image
		}
		have.Names = slices.DeleteFunc(have.Names, func(s string) bool { return s == p.name })
	} else if n.Complete && !newer {
		return // it was there; since then the name was taken away
	}
	c := n.byID(p.id)
	if c == nil {
		n.Images = append(n.Images, model.CachedImage{})
		c = &n.Images[len(n.Images)-1]
	}
	add(c, p.name)
	n.put(c, p)
}

// put notes the image behind a proof.
func (n *nodeFacts) put(c *model.CachedImage, p proof) {
	if _, digest, ok := strings.Cut(p.id, "@"); ok {
		repo, _, _ := strings.Cut(p.id, "@")
		if r, err := imagetag.ParseRef(repo + "@" + digest); err == nil {
			add(c, r.Repository+"@"+r.Digest)
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

// used marks the images that containers have, and the secrets of pods that run
// their repository: none if a pod without secrets runs it too, which anybody may
// then.
func (n *nodeFacts) used(pods []*model.ImagePod) {
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
		n.secrets(secrets, open)
	}
}

func (n *nodeFacts) secrets(byRepo map[string][]string, open map[string]bool) {
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
