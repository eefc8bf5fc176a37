package inputs

import (
	"context"
	"errors"
	"fmt"

	"github.com/refit-dev/refit/internal/cli/console"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
)

// FindUpdate returns the named update, or the current one.
func FindUpdate(ctx context.Context, c client.Reader, args []string) (*v1alpha1.ClusterUpdate, error) {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, ListError(err)
	}
	if len(args) == 0 {
		if u := rolloutfacts.ChooseUpdate(list.Items); u != nil {
			return u, nil
		}
		return nil, console.UsageError(errors.New("there is no update: create one with refit plan --to BUNDLE"))
	}
	for i := range list.Items {
		if list.Items[i].Name == args[0] {
			return &list.Items[i], nil
		}
	}
	return nil, console.UsageError(fmt.Errorf("ClusterUpdate %q not found; see kubectl get clusterupdates", args[0]))
}

// ClusterID returns the uid of the namespace kube-system, which tells clusters apart.
func ClusterID(ctx context.Context, c client.Reader) (string, error) {
	if archive, ok := c.(*supportReader); ok {
		if archive.cluster == "" {
			return "", console.WithExit(console.ExitBlocked, errors.New("the archive does not name its cluster: make it again with this version of refit"))
		}
		return archive.cluster, nil
	}
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
		return "", fmt.Errorf("read namespace %s, whose uid names the cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
