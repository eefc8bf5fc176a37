package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// movement says how a tag moves.
type movement int

const (
	stays        movement = iota // a point, or the reference has a digest too
	mayMove                      // no scheme is declared; it looks like a version
	moves                        // a pointer by the declared scheme, or no version at all
	undetermined                 // the tag is not of its scheme: T09 says it
)

// movementOf a reference.
func (x *check) movementOf(r imagetag.Ref) (movement, string) {
	text := r.Tag
	if text == "" {
		text = "latest"
	}
	if r.Digest != "" {
		return stays, ""
	}
	if s, declared := x.scheme(r.Repository); declared {
		return declaredMovement(s, text)
	}
	if s, _ := imagetag.Guess([]string{text}); s.Name() != "" && s.Name() != "semver" {
		if t, err := s.Parse(text); err == nil && t.Point() {
			return stays, ""
		}
	}
	if t, err := x.byName("rev").Parse(text); err == nil && t.Tier == imagetag.Floating || aggregate(text) {
		return moves, fmt.Sprintf("tag %s stands for the newest image", text)
	}
	return mayMove, fmt.Sprintf("no tag scheme is declared for %s, so %s may move with a rebuild", r.Repository, text)
}

func declaredMovement(s imagetag.Scheme, text string) (movement, string) {
	t, err := s.Parse(text)
	switch {
	case err != nil:
		return undetermined, ""
	case t.Point():
		return stays, ""
	}
	return moves, fmt.Sprintf("tag %s is a %s tag of scheme %s and moves", text, t.Tier, s.Name())
}

// aggregate: 2 and 2.6 stand for many versions.
func aggregate(text string) bool {
	text = strings.TrimPrefix(text, "v")
	return text != "" && strings.Count(text, ".") < 2 && strings.Trim(text, "0123456789.") == ""
}

func (x *check) byName(name string) imagetag.Scheme {
	if s, ok := x.schemes[name]; ok {
		return s
	}
	s, _ := imagetag.ByName(name)
	x.schemes[name] = s
	return s
}

// scheme that was declared for a repository.
func (x *check) scheme(repository string) (imagetag.Scheme, bool) {
	name, ok := x.config.Scheme(repository)
	if !ok {
		return imagetag.Scheme{}, false
	}
	return x.byName(name), true
}

const pin = "name the image by its digest too: repository:tag@sha256:..."

// movingCritical is T01.
func movingCritical(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if !o.Static && !o.Critical {
			return
		}
		switch m, why := x.movementOf(r); m {
		case moves:
			x.addUse(o, u, Error, fmt.Sprintf("%s is needed by its node, and %s: any restart may change it", what(o), why), pin)
		case mayMove:
			x.addUse(o, u, Warning, fmt.Sprintf("%s is needed by its node, and %s", what(o), why), pin+", or declare the repository's scheme")
		}
	})
}

func what(o *Object) string {
	if o.Static {
		return "static pod " + o.Name
	}
	return o.Kind + " " + o.Name
}

// alwaysCritical is T02.
func alwaysCritical(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if policy(u, r) != model.PullAlways || !o.Static && !o.Critical && !servesImages(r) {
			return
		}
		why := "is needed before a registry can be reached"
		if servesImages(r) && !o.Static && !o.Critical {
			why = "is the registry itself"
		}
		x.addUse(o, u, Error, fmt.Sprintf("%s %s, and policy Always does not start it without one, though the image is on the node", what(o), why),
			"imagePullPolicy: IfNotPresent, and the image by digest")
		x.atPolicy(u)
	})
}

// servers are images that other images come from.
var servers = []string{"registry", "distribution", "docker-registry", "zot", "zot-linux-amd64", "spegel", "harbor-registryctl", "registry-photon", "kraken"}

func servesImages(r imagetag.Ref) bool {
	return slices.Contains(servers, r.Repository[strings.LastIndexByte(r.Repository, '/')+1:])
}

// alwaysOffline is T03.
func alwaysOffline(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if policy(u, r) != model.PullAlways {
			return
		}
		switch {
		case x.bundled(r):
			x.addUse(o, u, Error, "policy Always asks a registry at every start, and the image comes from the bundle", "imagePullPolicy: IfNotPresent")
		case x.site.Offline:
			x.addUse(o, u, Error, "policy Always asks a registry at every start, and this site has none", "imagePullPolicy: IfNotPresent, and bring the image in a bundle")
		default:
			return
		}
		x.atPolicy(u)
	})
}

// movingCached is T04.
func movingCached(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if policy(u, r) != model.PullIfNotPresent {
			return
		}
		switch m, why := x.movementOf(r); m {
		case moves:
			x.addUse(o, u, Warning, why+", and with IfNotPresent a rebuild never reaches nodes that have it, while new nodes get another image", pin)
		case mayMove:
			x.addUse(o, u, Info, why+"; with IfNotPresent a rebuild would not reach nodes that have it", pin+", or declare the repository's scheme")
		}
	})
}

// stalePin is T05.
func stalePin(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		p, ok := x.site.Published[nameOf(r)]
		if r.Digest == "" || r.Tag == "" || !ok || p.Digest == "" || p.Digest == r.Digest || slices.Contains(p.Same, r.Digest) {
			return
		}
		class := ""
		if p.Class != "" {
			class = " (" + p.Class + ")"
		}
		if p.Security {
			class += ", which closes security holes"
		}
		x.addUse(o, u, Info, fmt.Sprintf("tag %s means %s now%s, not the digest in the reference", r.Tag, p.Digest, class),
			"check the change, then write the new digest, or keep this one on purpose")
	})
}

// bundled reports whether the bundle brings what this reference means.
func (x *check) bundled(r imagetag.Ref) bool {
	if r.Digest == "" {
		_, ok := x.site.Bundle[nameOf(r)]
		return ok
	}
	for name, digest := range x.site.Bundle {
		if digest == r.Digest && strings.HasPrefix(name, r.Repository+":") {
			return true
		}
	}
	return false
}

// notKept is T06.
func notKept(x *check) {
	sev := Warning
	if x.site.Offline {
		sev = Error
	}
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		switch {
		case x.site.Bundle != nil && !x.bundled(r):
			x.addUse(o, u, sev, "the bundle does not bring this image", "add it: refit bundle create ... docker://"+r.String())
		case r.Digest != "" && x.site.GoneDigests[r.Repository+"@"+r.Digest]:
			x.addUse(o, u, sev, "the registry does not have this digest any more: nodes that have it not cannot get it", "keep a long tag for every digest in use, or bring the image in a bundle")
		case r.Digest == "" && x.site.Published[nameOf(r)].Gone:
			x.addUse(o, u, sev, "the registry does not have this tag any more", "name a tag that it has, or bring the image in a bundle")
		}
	})
}

// policyOmitted is T07. Objects of a cluster have a policy, always.
func policyOmitted(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if u.Policy == "" {
			x.addUse(o, u, Info, fmt.Sprintf("no imagePullPolicy: it becomes %s when the object is created, and stays so when the tag is edited later", policy(u, r)), "write the policy that is meant")
		}
	})
}

// illegal is T09.
func illegal(x *check) {
	sev := Warning
	if x.site.Publishing {
		sev = Error
	}
	for i := range x.objects {
		o := &x.objects[i]
		for j := range o.Uses {
			u := &o.Uses[j]
			r, err := imagetag.ParseRef(u.Image)
			if err != nil {
				x.addUse(o, u, Error, err.Error(), "write registry/repository:tag or registry/repository@sha256:...")
				continue
			}
			if s, declared := x.scheme(r.Repository); declared && r.Tag != "" {
				if _, err := s.Parse(r.Tag); err != nil {
					x.addUse(o, u, sev, err.Error(), "use a tag of the declared scheme, or declare another for this repository")
				}
			}
		}
	}
}

// twoPointers is T12: in one namespace.
func twoPointers(x *check) {
	type first struct {
		image, place string
	}
	seen := map[string]first{}
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		if r.Digest != "" {
			return
		}
		key := o.Namespace + " " + r.Repository
		f, ok := seen[key]
		if !ok {
			seen[key] = first{nameOf(r), Finding{File: o.File, Line: u.Line, Object: o.id()}.Place()}
			return
		}
		if f.image != nameOf(r) {
			x.addUse(o, u, Warning, fmt.Sprintf("%s is named here, %s at %s: two tags of one repository move apart", nameOf(r), f.image, f.place), "use one tag, or name both by digest")
		}
	})
}
