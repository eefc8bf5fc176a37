package bootimages

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/bootimage"
)

func (c *candidate) userDataKey() client.ObjectKey {
	return client.ObjectKey{Namespace: c.object.GetNamespace(), Name: c.ref.UserData}
}

// userData converts a copy of the first-boot configuration if the new image could not read it.
// If that fails it returns why, and the image stays as it is.
func (c *candidate) userData(ctx context.Context, w *machineSnapshot) (why string) {
	c.converted = nil
	if c.ref.UserData == "" || c.in.Same || c.edit == nil || c.in.Mode == bootimage.Observe || c.in.Mode == bootimage.Propose {
		return ""
	}
	c.converted, why = w.userData.Convert(ctx, c.userDataKey())
	return why
}

// writeUserData writes the converted configuration before the image: with the old configuration
// the new image does not boot.
func (r *Reconciler) writeUserData(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if c.converted == nil || c.decision.Action != bootimage.Write {
		return nil
	}
	if err := w.userData.Write(ctx, c.converted); err != nil {
		w.retrySoon = w.retrySoon || isConflict(err)
		return fmt.Errorf("write the converted first-boot configuration for %s, Secret %s/%s: %w", c.name, c.converted.Namespace, c.converted.Name, err)
	}
	return nil
}

// updateAuthority writes the server's CA certificates into the first-boot configuration.
func (c *candidate) updateAuthority(ctx context.Context, w *machineSnapshot) error {
	spec := c.policy.Spec.Authority
	if spec == nil || c.ref.UserData == "" || c.facts.Deleting {
		return nil
	}
	a := authorityRequest{Secret: c.userDataKey(), Mode: c.in.Mode, Contest: c.in.Contest}
	if c.source != nil && c.source.Status.Authority != nil {
		a.Past = c.source.Status.Authority.Writes
	}
	var err error
	c.authority, err = w.userData.UpdateAuthority(ctx, spec, a)
	if isConflict(err) {
		w.retrySoon = true
		return nil
	}
	return err
}
