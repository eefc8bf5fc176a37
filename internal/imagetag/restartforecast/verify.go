package restartforecast

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Policies of the kubelet for images that are on the node.
const (
	verifyNever       = "NeverVerify"
	verifyPreloadedNo = "NeverVerifyPreloadedImages" // the default
	verifyListedNo    = "NeverVerifyAllowlistedImages"
	verifyAlways      = "AlwaysVerify"
)

// verifiesFrom is the first minor version whose kubelet compares credentials by default.
const verifiesFrom = 35

type answer int

const (
	yes answer = iota
	perhaps
	no
)

// allowed says whether the kubelet gives this pod the image that is on the node
// without asking the registry.
func (o *Forecaster) allowed(q *question, n *node, c *model.CachedImage) (answer, string) {
	verifies, known := verifies(n.Kubelet)
	policy := n.Verification
	switch {
	case known && !verifies && policy == "", policy == verifyNever:
		return yes, ""
	case policy == verifyListedNo && listed(n.Allowed, q.ref.Repository):
		return yes, ""
	}
	preloadedIsFree := policy == "" || policy == verifyPreloadedNo
	switch c.Record {
	case model.RecordAnyone:
		return yes, ""
	case model.RecordNone:
		if preloadedIsFree {
			return yes, ""
		}
		return no, fmt.Sprintf("the kubelet of %s has the policy %s and no record of a pull of this image", n.label(), policy)
	case model.RecordOthers:
		return no, fmt.Sprintf("the kubelet of %s pulled this image with other credentials or under another repository, and asks the registry whether this pod may have it", n.label())
	}
	return o.unrecorded(q, n, c)
}

// unrecorded: the kubelet's record cannot be seen; what is known of pods speaks.
func (o *Forecaster) unrecorded(q *question, n *node, c *model.CachedImage) (answer, string) {
	if repos := repositories(c); len(repos) > 1 {
		return perhaps, fmt.Sprintf("on %s the image has the names of %d repositories (%s): if the kubelet pulled it under one, it asks the registry before another is used", n.label(), len(repos), strings.Join(repos, ", "))
	}
	if n == q.home && o.site.Same.Compare(q.runs, n.identity(c)) == model.Alike {
		return yes, "" // it was let in, and nothing has changed since
	}
	if n.Verification == verifyAlways && len(q.pod.Secrets) == 0 && !c.Used {
		return perhaps, fmt.Sprintf("the kubelet of %s has the policy %s; its record of this image cannot be seen from here", n.label(), n.Verification)
	}
	others := slices.DeleteFunc(slices.Clone(c.Secrets), func(s string) bool { return slices.Contains(secretsOf(q.pod), s) })
	if len(others) > 0 && len(others) == len(c.Secrets) {
		return perhaps, fmt.Sprintf("on %s only pods with other pull secrets use this repository (%s): the kubelet may ask the registry again", n.label(), strings.Join(others, ", "))
	}
	return yes, ""
}

// secretsOf are the pod's pull secrets with their namespace.
func secretsOf(p *model.ImagePod) []string {
	out := make([]string, len(p.Secrets))
	for i, s := range p.Secrets {
		out[i] = p.Namespace + "/" + s
	}
	return out
}

func repositories(c *model.CachedImage) []string {
	var out []string
	for _, name := range c.Names {
		repo, _, _ := strings.Cut(name, "@")
		if repo == name {
			repo = name[:strings.LastIndexByte(name, ':')]
		}
		if !slices.Contains(out, repo) {
			out = append(out, repo)
		}
	}
	slices.Sort(out)
	return out
}

// verifies reports whether a kubelet of this version compares credentials.
func verifies(version string) (does, known bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return true, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(strings.TrimRight(parts[1], "+"))
	if err1 != nil || err2 != nil {
		return true, false
	}
	return major > 1 || minor >= verifiesFrom, true
}

// listed reports whether an allow list has a repository: in full, or by a
// pattern that ends in /*.
func listed(list []string, repository string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		if dir, ok := strings.CutSuffix(p, "/*"); ok {
			return strings.HasPrefix(repository, dir+"/")
		}
		return path.Clean(p) == repository
	})
}
