package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Hook is an admission webhook, as far as images go.
type Hook struct {
	Name string
	// Service that answers as namespace/name, empty for a URL.
	Service string
	// Mutating: it may write what it is asked about. FailsClosed: without its answer
	// that is refused.
	Mutating, FailsClosed bool
	// AsksPods: it is asked about pods that are made.
	AsksPods bool
	// Line in its file, 0 if there is none.
	Line int
}

// Resolver is a product that asks registries what a tag, or a signature, is.
type Resolver struct {
	// Product for people.
	Product string
	// Does says what it does when no registry is there, Fix what to do about it.
	Does, Fix string
	hooks     []string // parts of the names of its webhooks and their services
	images    []string // ends of the repositories of its images
}

// resolvers that are known.
var resolvers = []Resolver{
	{Product: "Kyverno", hooks: []string{"kyverno"}, Does: "its rules verifyImages ask a registry about the images of every new pod",
		Fix: "leave images of the bundle out of verifyImages (imageReferences, skipImageReferences), or take these rules away on this site"},
	{Product: "Sigstore policy controller", hooks: []string{"policy.sigstore.dev", "sigstore"}, Does: "it asks a registry for the digest and the signature of every new pod's images",
		Fix: "take the label policy.sigstore.dev/include off namespaces whose images come in bundles"},
	{Product: "Connaisseur", hooks: []string{"connaisseur"}, Does: "it asks a registry for the digest and the signature of every new pod's images",
		Fix: "validate: false for what comes in bundles, or leave their namespaces out"},
	{Product: "Portieris", hooks: []string{"portieris", "trust.hooks.securityenforcement"}, Does: "it asks a registry for the signature of every new pod's images",
		Fix: "leave the namespaces of what comes in bundles out of its webhook"},
	{Product: "k8s-digester", hooks: []string{"digester"}, Does: "it asks a registry for the digest behind every new pod's tags",
		Fix: "take the label digest-resolution off namespaces, and name images by digest in what is applied"},
	{Product: "Zarf agent", hooks: []string{"zarf"}, Does: "it writes the name of its own registry into every new pod: such a name is on no node",
		Fix: "label namespaces of what comes in bundles with zarf.dev/agent: ignore"},
	{Product: "Harbor container webhook", hooks: []string{"harbor-container-webhook"}, Does: "it writes the name of another registry into every new pod: such a name is on no node",
		Fix: "leave out of its rules what comes in bundles"},
	{Product: "Gatekeeper", hooks: []string{"mutation.gatekeeper.sh"}, Does: "mutations with external data may ask a registry for digests",
		Fix: "look for external data in its Assign objects, and leave out what comes in bundles"},
	{Product: "Flux image reflector", images: []string{"fluxcd/image-reflector-controller"}, Does: "it scans registries for tags, and its policies name images that no bundle brings",
		Fix: "suspend the ImageRepositories and ImagePolicies of this site; follow tags with an ImageTrack where they are built"},
	{Product: "Flux image automation", images: []string{"fluxcd/image-automation-controller"}, Does: "it writes tags that it found in registries into manifests",
		Fix: "suspend the ImageUpdateAutomations of this site"},
	{Product: "Argo CD Image Updater", images: []string{"argoprojlabs/argocd-image-updater"}, Does: "it asks registries for newer tags and writes them into applications",
		Fix: "take its annotations off applications of this site, or scale it to none"},
	{Product: "Keel", images: []string{"keelhq/keel", "keel-hq/keel"}, Does: "it asks registries for newer tags and rolls them out",
		Fix: "take keel.sh/policy off what runs here, or scale it to none"},
	{Product: "Operator Lifecycle Manager", images: []string{"operator-framework/olm", "operator-framework/operator-lifecycle-manager"}, Does: "it pulls catalogs and bundles of operators from registries",
		Fix: "bring catalog, bundle, operator and operand images in the bundle, by digest, and no updateStrategy.registryPoll in CatalogSources"},
	{Product: "Knative Serving", images: []string{"knative.dev/serving/cmd/controller"}, Does: "it asks a registry for the digest behind the tag of every new revision, and does not make it without one",
		Fix: "name images by digest, or their registry in registries-skipping-tag-resolving (ConfigMap config-deployment)"},
	{Product: "Watchtower", images: []string{"containrrr/watchtower", "nicholas-fedor/watchtower"}, Does: "it pulls tags again and starts containers anew", Fix: "take it away"},
	{Product: "Diun", images: []string{"crazymax/diun"}, Does: "it asks registries for newer tags", Fix: "nothing, if its errors are no trouble"},
}

// ResolverOfImage is the known product that an image belongs to, nil if none.
func ResolverOfImage(repository string) *Resolver {
	for i := range resolvers {
		if slices.ContainsFunc(resolvers[i].images, func(end string) bool { return repository == end || strings.HasSuffix(repository, "/"+end) }) {
			return &resolvers[i]
		}
	}
	return nil
}

// ResolverOfHook is the known product that a webhook belongs to, by its name, that of
// its configuration, or its service; nil if none.
func ResolverOfHook(names ...string) *Resolver {
	for i := range resolvers {
		for _, part := range resolvers[i].hooks {
			if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, part) }) {
				return &resolvers[i]
			}
		}
	}
	return nil
}

// AsksPods reports whether a webhook's rule is about pods that are made.
func AsksPods(operations, groups, resources []string) bool {
	one := func(list []string, want ...string) bool {
		return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(list, w) })
	}
	return one(operations, "CREATE", "*") && one(groups, "", "*") && one(resources, "pods", "*", "*/*")
}

// hooks is T15.
func hooks(x *check) {
	for i := range x.objects {
		o := &x.objects[i]
		if x.site.Offline && slices.ContainsFunc(o.Args, func(arg string) bool { return enables(arg, "ImagePolicyWebhook") }) {
			x.addUse(o, nil, Warning, "ImagePolicyWebhook asks a backend about the images of every new pod, and that may ask a registry", "see that its backend knows the images of the bundle, or take the plugin out of --enable-admission-plugins")
		}
		for j := range o.Hooks {
			x.hook(o, &o.Hooks[j])
		}
	}
}

func (x *check) hook(o *Object, h *Hook) {
	if !h.AsksPods {
		return
	}
	r := ResolverOfHook(h.Name, o.Name, h.Service)
	switch {
	case r != nil:
		sev := Info
		switch {
		case x.site.Offline && h.FailsClosed:
			sev = Error
		case x.site.Offline:
			sev = Warning
		}
		x.addUse(o, nil, sev, fmt.Sprintf("webhook %s is of %s: %s", h.Name, r.Product, r.Does), r.Fix)
	case h.Mutating && x.site.Offline:
		x.addUse(o, nil, Info, fmt.Sprintf("webhook %s may write other images or pull policies into new pods, which refit cannot see", h.Name), "compare a new pod with its template; leave out of it what comes in bundles")
	default:
		return
	}
	if h.Line > 0 {
		x.findings[len(x.findings)-1].Line = h.Line
	}
}

// followers is T16.
func followers(x *check) {
	x.uses(func(o *Object, u *Use, r imagetag.Ref) {
		p := ResolverOfImage(r.Repository)
		if p == nil {
			return
		}
		sev := Info
		if x.site.Offline {
			sev = Warning
		}
		x.addUse(o, u, sev, p.Product+": "+p.Does, p.Fix)
	})
}

// OwnerOf returns the tool that writes an object, from its labels and annotations, so that a
// change is made where it lasts; empty if they name none.
func OwnerOf(namespace string, labels, annotations map[string]string) string {
	in := func(ns, name string) string {
		if ns == "" {
			ns = namespace
		}
		return ns + "/" + name
	}
	if name := labels["helm.toolkit.fluxcd.io/name"]; name != "" {
		return "Flux HelmRelease " + in(labels["helm.toolkit.fluxcd.io/namespace"], name)
	}
	if name := labels["kustomize.toolkit.fluxcd.io/name"]; name != "" {
		return "Flux Kustomization " + in(labels["kustomize.toolkit.fluxcd.io/namespace"], name)
	}
	if id, _, ok := strings.Cut(annotations["argocd.argoproj.io/tracking-id"], ":"); ok {
		return "Argo CD application " + id
	}
	if name := labels["olm.owner"]; name != "" {
		return strings.TrimSpace("OLM " + labels["olm.owner.kind"] + " " + in(labels["olm.owner.namespace"], name))
	}
	if name := annotations["meta.helm.sh/release-name"]; name != "" {
		return "Helm release " + in(annotations["meta.helm.sh/release-namespace"], name)
	}
	if by := labels["app.kubernetes.io/managed-by"]; by != "" && by != "Helm" {
		return by
	}
	return ""
}
