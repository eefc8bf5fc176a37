package noderights

import (
	"context"
	"fmt"
	"maps"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"
)

const (
	// interval between two looks at the cache, refresh between two lists of what is
	// in the API server.
	interval, refresh = 2 * time.Second, 10 * time.Minute
	// pageSize of a list.
	pageSize = 500
	// maxPass is how many nodes are granted in one pass, so that a cluster of
	// thousands leaves room for the controller's other writes.
	maxPass = 200
	// prefix of both objects of a node.
	prefix = "refit:node:"
	// label marks them, with the value "true".
	label = "refit.dev/node-rights"
)

// Granter grants nodes their own NodeUpdate.
type Granter struct {
	// Client reads NodeUpdates from the cache and writes; Live lists RoleBindings.
	Client client.Client
	Live   client.Reader

	// granted is the UID of the NodeUpdate that a node's rights belong to.
	granted map[string]types.UID
	listed  time.Time
}

// NeedLeaderElection is true: one process grants.
func (g *Granter) NeedLeaderElection() bool { return true }

// Start grants until the context ends.
func (g *Granter) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("node-rights")
	said := ""
	for {
		err := g.Grant(ctx, time.Now())
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != said {
			said = text
			log.Info("failed to grant nodes their NodeUpdate, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// Grant makes what is missing.
func (g *Granter) Grant(ctx context.Context, now time.Time) error {
	if g.granted == nil || now.Sub(g.listed) >= refresh {
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

func (g *Granter) createAll(ctx context.Context, missing []*v1alpha1.NodeUpdate) error {
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

// missing are NodeUpdates without rights, maxPass of them. Nodes that are gone are
// forgotten: the garbage collector deletes their objects.
func (g *Granter) missing(ctx context.Context) ([]*v1alpha1.NodeUpdate, error) {
	var all v1alpha1.NodeUpdateList
	if err := g.Client.List(ctx, &all, client.InNamespace(v1alpha1.NodesNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeUpdates: %w", err)
	}
	var missing []*v1alpha1.NodeUpdate
	exists := make(map[string]bool, len(all.Items))
	for i := range all.Items {
		nu := &all.Items[i]
		exists[nu.Name] = true
		if g.granted[nu.Name] != nu.UID && len(missing) < maxPass {
			missing = append(missing, nu)
		}
	}
	maps.DeleteFunc(g.granted, func(name string, _ types.UID) bool { return !exists[name] })
	return missing, nil
}

// list the nodes whose rights are there, by their RoleBinding, which is made last.
func (g *Granter) list(ctx context.Context) (map[string]types.UID, error) {
	out := map[string]types.UID{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBindingList"))
	for {
		err := g.Live.List(ctx, page, client.InNamespace(v1alpha1.NodesNamespace), client.MatchingLabels{label: "true"}, client.Limit(pageSize), client.Continue(page.Continue))
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

// create both objects; false if those of a NodeUpdate of the same name that was
// deleted are not gone yet.
func (g *Granter) create(ctx context.Context, nu *v1alpha1.NodeUpdate) (bool, error) {
	role, binding := Objects(nu)
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

// Objects that let a node read its own NodeUpdate.
func Objects(nu *v1alpha1.NodeUpdate) (*rbacv1.Role, *rbacv1.RoleBinding) {
	meta := metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: prefix + nu.Name, Labels: map[string]string{label: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeUpdate", Name: nu.Name, UID: nu.UID}}}
	return &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"nodeupdates"}, ResourceNames: []string{nu.Name}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{ObjectMeta: *meta.DeepCopy(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:" + nu.Name}}}
}
