package controller

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"
)

const (
	// grantInterval is the time between two passes over the cache, relistInterval
	// between two lists of the RoleBindings in the API server.
	grantInterval, relistInterval = 2 * time.Second, 10 * time.Minute
	// grantPageSize is the page size of that list.
	grantPageSize = 500
	// maxGrantsPerPass is how many nodes are granted in one pass, so that a cluster of
	// thousands leaves room for the controller's other writes.
	maxGrantsPerPass = 200
	// nodeRightsPrefix begins the name of both objects of a node.
	nodeRightsPrefix = "refit:node:"
	// nodeRightsLabel marks these objects, with the value "true".
	nodeRightsLabel = "refit.dev/node-rights"
)

// NodeRightsGranter lets each node read its own NodeUpdate and no other.
//
// Every NodeUpdate gets a Role refit:node:NAME that names it (resourceNames) and a
// RoleBinding of that name for the node's identity, a few seconds after it was
// created. RBAC compares the name with a get, and with a list or watch that selects
// metadata.name, so an agent reads and watches its own object only. The NodeUpdate
// owns both objects: the garbage collector deletes them with it. An object that was
// deleted by hand is created again within relistInterval. The admission policy
// refit-controller-grants limits the controller to this one shape. Only the leader grants.
type NodeRightsGranter struct {
	// Client writes; Live lists RoleBindings.
	Client client.Client
	Live   client.Reader
	// Nodes has the NodeUpdates; nil lists them with Client.
	Nodes *nodeindex.Reader

	// granted is the UID of the NodeUpdate that a node's rights belong to.
	granted map[string]types.UID
	listed  time.Time
}

// NeedLeaderElection is true: one process grants.
func (g *NodeRightsGranter) NeedLeaderElection() bool { return true }

// Start grants until the context ends.
func (g *NodeRightsGranter) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("node-rights")
	logged := ""
	for {
		err := g.Grant(ctx, time.Now())
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != logged {
			logged = text
			log.Info("failed to grant nodes their NodeUpdate, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(grantInterval):
		}
	}
}

// Grant creates the missing Roles and RoleBindings.
func (g *NodeRightsGranter) Grant(ctx context.Context, now time.Time) error {
	if g.Nodes != nil && !g.Nodes.Synced() {
		return nil
	}
	if g.granted == nil || now.Sub(g.listed) >= relistInterval {
		granted, err := g.list(ctx)
		if err != nil {
			return err
		}
		g.granted, g.listed = granted, now
	}
	missing, err := g.missing(ctx)
	if err != nil {
		return err
	}
	return g.createAll(ctx, missing)
}

func (g *NodeRightsGranter) createAll(ctx context.Context, missing []*v1alpha1.NodeUpdate) error {
	made := make([]bool, len(missing))
	index := make(map[string]int, len(missing))
	for i, nu := range missing {
		index[nu.Name] = i
	}
	err := queue.ForEach(ctx, missing, func(nu *v1alpha1.NodeUpdate) error {
		ok, err := g.create(ctx, nu)
		made[index[nu.Name]] = ok
		return err
	})
	for i, nu := range missing {
		if made[i] {
			g.granted[nu.Name] = nu.UID
		}
	}
	return err
}

// missing returns up to maxGrantsPerPass NodeUpdates without rights. It forgets
// deleted nodes: the garbage collector deletes their objects.
func (g *NodeRightsGranter) missing(ctx context.Context) ([]*v1alpha1.NodeUpdate, error) {
	all, err := g.updates(ctx)
	if err != nil {
		return nil, err
	}
	var missing []*v1alpha1.NodeUpdate
	known := 0
	for nu := range all {
		uid, granted := g.granted[nu.Name]
		if granted {
			known++
		}
		if uid != nu.UID && len(missing) < maxGrantsPerPass {
			missing = append(missing, nu)
		}
	}
	if known < len(g.granted) {
		exists := map[string]bool{}
		for nu := range all {
			exists[nu.Name] = true
		}
		maps.DeleteFunc(g.granted, func(name string, _ types.UID) bool { return !exists[name] })
	}
	return missing, nil
}

// updates are all NodeUpdates. Do not change them.
func (g *NodeRightsGranter) updates(ctx context.Context) (iter.Seq[*v1alpha1.NodeUpdate], error) {
	if g.Nodes != nil {
		return g.Nodes.Refresh().Updates(), nil
	}
	var all v1alpha1.NodeUpdateList
	if err := g.Client.List(ctx, &all, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, fmt.Errorf("list NodeUpdates: %w", err)
	}
	list := make([]*v1alpha1.NodeUpdate, len(all.Items))
	for i := range all.Items {
		list[i] = &all.Items[i]
	}
	return slices.Values(list), nil
}

// list returns the nodes that have their rights, by their RoleBinding, which is
// created last.
func (g *NodeRightsGranter) list(ctx context.Context) (map[string]types.UID, error) {
	out := map[string]types.UID{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBindingList"))
	for {
		err := g.Live.List(ctx, page, client.InNamespace(v1alpha1.NodesNamespace), client.MatchingLabels{nodeRightsLabel: "true"}, client.Limit(grantPageSize), client.Continue(page.Continue))
		if err != nil {
			return nil, fmt.Errorf("list the RoleBindings of nodes: %w", err)
		}
		for i := range page.Items {
			for _, o := range page.Items[i].OwnerReferences {
				out[o.Name] = o.UID
			}
		}
		if page.Continue == "" {
			return out, nil
		}
	}
}

// create creates both objects of a node. It returns false while the objects of a
// deleted NodeUpdate of the same name still exist.
func (g *NodeRightsGranter) create(ctx context.Context, nu *v1alpha1.NodeUpdate) (bool, error) {
	role, binding := NodeRights(nu)
	err := g.Client.Create(ctx, role, client.FieldOwner(v1alpha1.FieldOwnerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create Role %s: %w", role.Name, err)
	}
	err = g.Client.Create(ctx, binding, client.FieldOwner(v1alpha1.FieldOwnerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create RoleBinding %s: %w", binding.Name, err)
	}
	return err == nil, nil
}

// NodeRights are the objects that let a node read its own NodeUpdate.
func NodeRights(nu *v1alpha1.NodeUpdate) (*rbacv1.Role, *rbacv1.RoleBinding) {
	meta := metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: nodeRightsPrefix + nu.Name, Labels: map[string]string{nodeRightsLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeUpdate", Name: nu.Name, UID: nu.UID}}}
	return &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"nodeupdates"}, ResourceNames: []string{nu.Name}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{ObjectMeta: *meta.DeepCopy(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:" + nu.Name}}}
}
