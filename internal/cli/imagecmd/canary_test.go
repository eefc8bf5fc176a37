package imagecmd

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

// A decision about failed canaries is recorded with its image, or refused with what to do.
func TestCanaryDecisions(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	source := func(name string, c *v1alpha1.SourceCanary) *v1alpha1.MachineSource {
		return &v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.MachineSourceStatus{Canary: c}}
	}
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(source("none", nil), source("passed", &v1alpha1.SourceCanary{Image: "b", PassedAt: &at}),
		source("runs", &v1alpha1.SourceCanary{Image: "b", Object: "MachineDeployment/x"}),
		source("failed", &v1alpha1.SourceCanary{Image: "b", Failures: []v1alpha1.CanaryFailure{{At: at, Message: "refused"}}})).Build()
	for _, tc := range []struct {
		source, action string
		code           int
		want           string
	}{
		{"missing", "Retry", console.ExitUsage, "refit bootimage status lists all"},
		{"none", "Retry", console.ExitBlocked, "set canary.mode in its BootImagePolicy"},
		{"passed", "Accept", console.ExitBlocked, "has passed with b"},
		{"runs", "Retry", console.ExitBlocked, "no canary of MachineSource runs has failed with b"},
		{"runs", "Accept", console.ExitOK, "b is accepted: refit writes it without a canary"},
		{"failed", "Retry", console.ExitOK, "refit makes another machine that tries b"},
	} {
		got, err := decideCanary(context.Background(), cl, tc.source, v1alpha1.CanaryDecision{Action: tc.action, Reason: "repaired", By: "ann", At: at})
		if err != nil {
			got = err.Error()
		}
		if console.ExitCode(err) != tc.code || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %d %q, want %q", tc.action, tc.source, console.ExitCode(err), got, tc.want)
		}
	}
	var s v1alpha1.MachineSource
	if err := cl.Get(context.Background(), client.ObjectKey{Name: "failed"}, &s); err != nil {
		t.Fatal(err)
	}
	if d := s.Spec.Canary; d == nil || d.Image != "b" || d.Action != "Retry" || d.By != "ann" || d.Reason != "repaired" || !d.At.Equal(&at) {
		t.Errorf("%+v", d)
	}
}
