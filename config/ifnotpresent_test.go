package config_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// Kubernetes 1.35 has it as a beta, behind a feature gate and a version of the API that
// are both off.
func TestIfNotPresentOnAnOlderServer(t *testing.T) {
	cfg := apitest.StartVersion(t, "v1.35.", map[string]string{"feature-gates": "MutatingAdmissionPolicy=true", "runtime-config": "admissionregistration.k8s.io/v1beta1=true"})
	admin := newClient(t, cfg)
	if version, err := config.MutationVersion(admin.RESTMapper()); err != nil || version != "v1beta1" {
		t.Fatalf("it serves version %q: %v", version, err)
	}
	testIfNotPresent(t, admin)
}

// Where the setting is on, a new pod that names a digest with Always
// starts from the image that is there; nothing else is written; with the setting gone
// nothing is.
func testIfNotPresent(t *testing.T, admin client.Client) {
	ctx := context.Background()
	version, err := config.MutationVersion(admin.RESTMapper())
	if err != nil {
		t.Fatal(err)
	}
	if version == "" {
		t.Skip("this API server has no MutatingAdmissionPolicy: it is before 1.36")
	}
	objects, err := config.IfNotPresent(version)
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "chosen", Labels: map[string]string{"refit.dev/pull-policy": "if-not-present"}}})
	mustCreate(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})
	byDigest := "reg.example/shop/web:latest@" + digestA
	n := 0
	made := func(namespace string) string {
		n++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("pod-", n)}, Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: byDigest, ImagePullPolicy: corev1.PullAlways}, {Name: "init-tag", Image: "reg.example/a:1", ImagePullPolicy: corev1.PullAlways}},
			Containers: []corev1.Container{{Name: "digest", Image: byDigest, Command: []string{"web"}}, {Name: "tag", Image: "reg.example/b:latest"},
				{Name: "never", Image: byDigest, ImagePullPolicy: corev1.PullNever}}}}
		mustCreate(t, admin, p)
		out := ""
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			out += fmt.Sprintf("%s %s %v; ", c.Name, c.ImagePullPolicy, c.Command)
		}
		return out
	}
	const asked = "init Always []; init-tag Always []; digest Always [web]; tag Always []; never Never []; "
	const changed = "init IfNotPresent []; init-tag Always []; digest IfNotPresent [web]; tag Always []; never Never []; "
	until := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if got = made("chosen"); got == want {
				return
			}
		}
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := made("chosen"); got != asked {
		t.Fatalf("off by default: %s", got)
	}
	for _, o := range objects {
		if err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	until(changed)
	if got := made("tenant"); got != asked {
		t.Errorf("a namespace that was not chosen: %s", got)
	}
	for _, o := range objects {
		if err := admin.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	until(asked)
}
