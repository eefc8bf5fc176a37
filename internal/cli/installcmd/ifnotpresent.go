package installcmd

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/exit"
)

var errNoMutation = errors.New("this API server has no MutatingAdmissionPolicy, so nothing can write policy IfNotPresent into new pods: it is part of Kubernetes 1.36, and of 1.34 and 1.35 with --runtime-config=admissionregistration.k8s.io/v1beta1=true. Until then refit tags lint --cluster --offline names what to change")

// setIfNotPresent installs, or takes away, the admission policy that has new pods start
// from images that are on the node.
func setIfNotPresent(ctx context.Context, c client.Client, on bool) error {
	version, err := config.MutationVersion(c.RESTMapper())
	switch {
	case err != nil:
		return err
	case version == "" && !on:
		return nil // then it was never there
	case version == "":
		return exit.With(exit.Blocked, errNoMutation)
	}
	objects, err := config.IfNotPresent(version)
	if err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	for _, o := range objects {
		if on {
			if err := applyObject(ctx, c, o); err != nil {
				return err
			}
			continue
		}
		if err := c.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
