package bootimages

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/controller/bootimages/userdata"
)

func (c *candidate) userDataKey() client.ObjectKey {
	return client.ObjectKey{Namespace: c.object.GetNamespace(), Name: c.ref.UserData}
}

// userData converts a copy of the first-boot configuration that the new image
// could not read. It says why that cannot be done: then the image stays as it is.
func (c *candidate) userData(ctx context.Context, w *machineSnapshot) (why string) {
	c.stub = nil
	if c.ref.UserData == "" || c.in.Same || c.edit == nil || c.in.Mode == bootimage.Observe || c.in.Mode == bootimage.Propose {
		return ""
	}
	c.stub, why = w.stubs.Convert(ctx, c.userDataKey())
	return why
}

// writeUserData writes the converted configuration, before the image: with the
// old one the new image does not come up.
func (r *Reconciler) writeUserData(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if c.stub == nil || c.decision.Action != bootimage.Write {
		return nil
	}
	if err := w.stubs.Write(ctx, c.stub); err != nil {
		w.again = w.again || conflict(err)
		return fmt.Errorf("write the converted first-boot configuration for %s, Secret %s/%s: %w", c.name, c.stub.Namespace, c.stub.Name, err)
	}
	return nil
}

// trust brings the server's authority into the first-boot configuration.
func (c *candidate) trust(ctx context.Context, w *machineSnapshot) error {
	spec := c.policy.Spec.Authority
	if spec == nil || c.ref.UserData == "" || c.facts.Deleting {
		return nil
	}
	a := userdata.Ask{Secret: c.userDataKey(), Mode: c.in.Mode, Contest: c.in.Contest}
	if c.source != nil && c.source.Status.Authority != nil {
		a.Past = c.source.Status.Authority.Writes
	}
	var err error
	c.authority, err = w.stubs.Authority(ctx, spec, a)
	if conflict(err) {
		w.again = true
		return nil
	}
	return err
}
