package inputs

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

// Rules for images that no object of the user names.
const (
	// RuleKubeadm is an image of kubeadm's own list.
	RuleKubeadm = "kubeadm-list"
	// RuleSandbox is the image of the containers that hold a pod's network.
	RuleSandbox = "sandbox-image"
	// RuleNode is an image that only the status of nodes has.
	RuleNode = "node-status"
)

// ClusterOptions say what is read.
type ClusterOptions struct {
	// Config is the access to the API server. Its timeout and its rate are not used.
	Config *rest.Config
	// ExcludeNamespaces are patterns of path.Match.
	ExcludeNamespaces []string
	// PageSize is the number of objects in one answer, by default defaultPage.
	PageSize int
}

// ClusterImages are what a cluster uses.
type ClusterImages struct {
	// Refs are the references in objects, in the order of the kinds.
	Refs []imagerefs.Ref
	// Running are the digests that containers run, by name with tag; the most used first.
	Running map[string][]RunningImage
	// Nodes are the images that nodes report and Refs do not have. Those of the sandbox are
	// references, the others candidates.
	Nodes []imagerefs.Ref
	// Denied are the resources that the account must not list.
	Denied []string
	// Finished counts the pods and Jobs that ended, Idle the ReplicaSets and
	// ReplicationControllers without pods: their images restart nothing.
	Finished, Idle int
	// Kubeadm is nil if kubeadm did not make the cluster.
	Kubeadm *Kubeadm
	// Requests that were sent, and Objects that were read.
	Requests, Objects int
}

// kind is a resource that is listed.
type listedKind struct {
	path, apiVersion, kind string
	// inUse reports whether the images of an object count; nil means that they always do.
	inUse func(*clusterReader, *listedObject) (bool, error)
	// custom: an extension, which may be removed at any time.
	custom bool
}

// resource is its name as access rules have it.
func (k *listedKind) resource() string {
	name := path.Base(k.path)
	if group, _, ok := strings.Cut(k.apiVersion, "/"); ok {
		return name + "." + group
	}
	return name
}

// workloads are listed before the pods that they own, so that a reference is at its origin.
var workloads = []listedKind{
	{path: "/apis/apps/v1/deployments", apiVersion: "apps/v1", kind: "Deployment"},
	{path: "/apis/apps/v1/daemonsets", apiVersion: "apps/v1", kind: "DaemonSet"},
	{path: "/apis/apps/v1/statefulsets", apiVersion: "apps/v1", kind: "StatefulSet"},
	{path: "/apis/batch/v1/cronjobs", apiVersion: "batch/v1", kind: "CronJob"},
	{path: "/apis/apps/v1/replicasets", apiVersion: "apps/v1", kind: "ReplicaSet", inUse: hasPods},
	{path: "/api/v1/replicationcontrollers", apiVersion: "v1", kind: "ReplicationController", inUse: hasPods},
	{path: "/apis/batch/v1/jobs", apiVersion: "batch/v1", kind: "Job", inUse: isUnfinishedJob},
}

const (
	podKind  = "Pod"
	nodeKind = "Node"
)

var (
	pods  = listedKind{path: "/api/v1/pods", apiVersion: "v1", kind: podKind, inUse: isRunningPod}
	nodes = listedKind{path: "/api/v1/nodes", apiVersion: "v1", kind: nodeKind, inUse: nodeImages}
)

// reader collects what the lists have.
type clusterReader struct {
	client  rest.Interface
	exclude []string
	page    int
	out     *ClusterImages
	// seen are owner and image of the references so far.
	seen map[string]bool
	// images that references have, in full.
	images  map[string]bool
	running map[string]map[string]*RunningImage
	onNodes map[string]*nodeImage
}

// ReadClusterImages lists what the cluster uses.
func ReadClusterImages(ctx context.Context, o ClusterOptions) (*ClusterImages, error) {
	for _, p := range o.ExcludeNamespaces {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern of namespaces %q: %w", p, err)
		}
	}
	client, err := connect(o.Config)
	if err != nil {
		return nil, err
	}
	r := &clusterReader{client: client, exclude: o.ExcludeNamespaces, page: o.PageSize, out: &ClusterImages{Running: map[string][]RunningImage{}},
		seen: map[string]bool{}, images: map[string]bool{}, running: map[string]map[string]*RunningImage{}, onNodes: map[string]*nodeImage{}}
	if r.page <= 0 {
		r.page = defaultPage
	}
	custom, err := r.customKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Concat(workloads, custom, []listedKind{pods, nodes}) {
		if err := r.list(ctx, &k); err != nil {
			return nil, fmt.Errorf("list %s: %w", k.resource(), err)
		}
	}
	if r.out.Kubeadm, err = r.kubeadm(ctx); err != nil {
		return nil, err
	}
	r.finish()
	return r.out, nil
}

// connect returns a client for plain paths. Pages have a time limit of their own.
func connect(from *rest.Config) (rest.Interface, error) {
	cfg := rest.CopyConfig(from)
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"}, clientgoscheme.Codecs.WithoutConversion()
	cfg.APIPath, cfg.Timeout = "/api", 0
	cfg.AcceptContentTypes, cfg.ContentType = "application/json", "application/json"
	return rest.RESTClientFor(cfg)
}

// customKinds are the kinds of imagerefs.Fields that the cluster has.
func (r *clusterReader) customKinds(ctx context.Context) ([]listedKind, error) {
	var groups struct {
		Groups []struct {
			Name             string `json:"name"`
			PreferredVersion struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"preferredVersion"`
		} `json:"groups"`
	}
	if err := r.get(ctx, "/apis", &groups); err != nil {
		return nil, fmt.Errorf("list the groups of the API: %w", err)
	}
	kinds := map[string][]string{}
	for _, f := range imagerefs.Fields {
		kinds[f.Group] = append(kinds[f.Group], f.Kinds...)
	}
	var out []listedKind
	for _, g := range groups.Groups {
		if len(kinds[g.Name]) == 0 {
			continue
		}
		more, err := r.kindsOf(ctx, g.PreferredVersion.GroupVersion, kinds[g.Name])
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// kindsOf are those of a group's kinds that can be listed.
func (r *clusterReader) kindsOf(ctx context.Context, groupVersion string, want []string) ([]listedKind, error) {
	var resources struct {
		Resources []struct {
			Name  string   `json:"name"`
			Kind  string   `json:"kind"`
			Verbs []string `json:"verbs"`
		} `json:"resources"`
	}
	at := "/apis/" + groupVersion
	if err := r.get(ctx, at, &resources); err != nil {
		return nil, fmt.Errorf("list the kinds of %s: %w", groupVersion, err)
	}
	var out []listedKind
	for _, res := range resources.Resources {
		if slices.Contains(want, res.Kind) && !strings.Contains(res.Name, "/") && slices.Contains(res.Verbs, "list") {
			out = append(out, listedKind{path: at + "/" + res.Name, apiVersion: groupVersion, kind: res.Kind, custom: true})
		}
	}
	return out, nil
}

// get decodes one small answer.
func (r *clusterReader) get(ctx context.Context, at string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	r.out.Requests++
	data, err := r.client.Get().AbsPath(at).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// deny notes a resource that the account must not read.
func (r *clusterReader) deny(resource string) {
	if !slices.Contains(r.out.Denied, resource) {
		r.out.Denied = append(r.out.Denied, resource)
	}
}

func (r *clusterReader) excluded(namespace string) bool {
	return namespace != "" && slices.ContainsFunc(r.exclude, func(p string) bool {
		ok, _ := path.Match(p, namespace)
		return ok
	})
}
