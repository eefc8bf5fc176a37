package controller_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The installed controller reconciles boot images. Package bootimages tests what it does with
// machine managers.
func TestBootImagesAreReconciled(t *testing.T) {
	s := newSite(t, from)
	data := `{"apiVersion":"refit.dev/boot-images/v1","release":"` + strings.TrimPrefix(from, "v") + `","images":[{"architecture":"amd64","platform":"x","version":"9.6.20251023-0","attributes":{"image":"a"}}]}`
	s.create(&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "running"}, Spec: v1alpha1.BootImageStreamSpec{Inline: &data}})
	s.create(&v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"running"}}})
	s.create(&v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: "pxe"}, Spec: v1alpha1.MachineSourceSpec{Declared: &v1alpha1.DeclaredImage{OS: "9.6.20251023-0"}}})
	s.wait("the stream is in use and the declared source is classified", func() string {
		var p v1alpha1.BootImagePolicy
		var m v1alpha1.MachineSource
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "all"}, &p); err != nil {
			return err.Error()
		}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "pxe"}, &m); err != nil {
			return err.Error()
		}
		if p.Status.Stream == "running" && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionNewEnough) && p.Status.Sources == 1 {
			return ""
		}
		return says(p.Status.Conditions) + says(m.Status.Conditions)
	})
}

func says(cs []metav1.Condition) string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Type+" "+c.Reason+": "+c.Message)
	}
	return strings.Join(out, "; ")
}
