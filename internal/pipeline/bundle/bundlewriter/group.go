package bundlewriter

import (
	"path"
	"strings"

	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// kubernetesHost serves the images of Kubernetes itself. Names that others use
// too (etcd, pause, coredns) only count there.
const kubernetesHost = "registry.k8s.io/"

var groupByName = map[string]string{
	"kube-apiserver":          bundle.GroupControlPlane,
	"kube-controller-manager": bundle.GroupControlPlane,
	"kube-scheduler":          bundle.GroupControlPlane,
	"kube-proxy":              bundle.GroupNode,
	"refit":                   bundle.GroupRefit,
}

var groupAtKubernetes = map[string]string{
	"etcd":    bundle.GroupControlPlane,
	"pause":   bundle.GroupNode,
	"coredns": bundle.GroupNode,
}

// GroupOf is the group of an image for which no rule of the caller sets one.
func GroupOf(name string) string {
	repo := oci.Repository(name)
	last := path.Base(repo)
	if g, ok := groupByName[last]; ok {
		return g
	}
	if g, ok := groupAtKubernetes[last]; ok && strings.HasPrefix(repo, kubernetesHost) {
		return g
	}
	return bundle.GroupWorkload
}

func (o *Options) groupOf(name, fromSource string) string {
	for _, g := range o.Groups {
		if ok, err := path.Match(g.Pattern, name); ok && err == nil {
			return g.Group
		}
	}
	if fromSource != "" {
		return fromSource
	}
	return GroupOf(name)
}
