package bootimages

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/source/bootimage"
	"github.com/refit-dev/refit/internal/source/firstboot"
)

// userDataKey of the Secret with a first-boot configuration, and the note that
// refit leaves on one that it converted.
const (
	userDataKey        = "userData"
	annotationUpgraded = "refit.dev/user-data-upgraded"
)

// userData reads the first-boot configuration that machines of a candidate get
// with the new image, and converts a copy that the image could not read. It says
// why that cannot be done: then the image stays as it is.
func (c *candidate) userData(ctx context.Context, w *world) string {
	c.stub = nil
	if c.ref.UserData == "" || c.in.Same || c.edit == nil || c.in.Mode == bootimage.Observe || c.in.Mode == bootimage.Propose {
		return ""
	}
	s := &corev1.Secret{}
	key := client.ObjectKey{Namespace: c.object.GetNamespace(), Name: c.ref.UserData}
	if err := w.objects.Get(ctx, key, s); err != nil {
		return fmt.Sprintf("its first-boot configuration cannot be read: Secret %s: %v", key, err)
	}
	converted, from, err := firstboot.Upgrade(s.Data[userDataKey])
	switch {
	case errors.Is(err, firstboot.ErrNotIgnition): // cloud-init and the like are read by any image
		return ""
	case err != nil:
		return fmt.Sprintf("Secret %s: %v", key, err)
	case from[:1] == "3":
		return ""
	}
	s.Data[userDataKey] = converted
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotationUpgraded] = fmt.Sprintf("%s to %s at %s", from, firstboot.Target, w.now.UTC().Format(time.RFC3339))
	c.stub = s
	return ""
}

// writeUserData writes the converted configuration, before the image: with the
// old one the new image does not come up.
func (r *Reconciler) writeUserData(ctx context.Context, w *world, c *candidate) error {
	if c.stub == nil || c.decision.Action != bootimage.Write {
		return nil
	}
	if err := r.Objects.Update(ctx, c.stub, client.FieldOwner(FieldOwner)); err != nil {
		w.again = w.again || conflict(err)
		return fmt.Errorf("write the converted first-boot configuration for %s, Secret %s/%s: %w", c.name, c.stub.Namespace, c.stub.Name, err)
	}
	return nil
}
