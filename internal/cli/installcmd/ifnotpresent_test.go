package installcmd

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// The policy is there when the API server acts on it. One that stores it and has the
// feature off, as 1.35 does with the API version alone, is found out, and nothing of it
// stays.
func TestIfNotPresentIsSeenToAct(t *testing.T) {
	for name, c := range map[string]struct {
		start    func(*testing.T) *rest.Config
		patience time.Duration
		acts     bool
	}{
		"a server that has it": {func(t *testing.T) *rest.Config { return apitest.Start(t) }, 2 * time.Minute, true},
		"1.35 with the API version alone": {func(t *testing.T) *rest.Config {
			return apitest.StartVersion(t, "v1.35.", map[string]string{"runtime-config": "admissionregistration.k8s.io/v1beta1=true"})
		}, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl, err := client.New(c.start(t), client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			version, err := config.MutationVersion(cl.RESTMapper())
			if err != nil {
				t.Fatal(err)
			}
			if version == "" {
				t.Skip("this API server has no MutatingAdmissionPolicy")
			}
			err = setIfNotPresent(t.Context(), cl, true, c.patience)
			if (err == nil) != c.acts || !c.acts && (console.ExitCode(err) != console.ExitBlocked || !strings.Contains(err.Error(), "--feature-gates=MutatingAdmissionPolicy=true")) {
				t.Fatalf("%v", err)
			}
			objects, err := config.IfNotPresent(version)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				err := cl.Get(t.Context(), client.ObjectKeyFromObject(o), o)
				if client.IgnoreNotFound(err) != nil || (err == nil) != c.acts {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			if p := samplePod(); c.acts {
				if err := cl.Create(t.Context(), p); err != nil || p.Namespace != v1alpha1.SystemNamespace {
					t.Errorf("the pod to try with, for once really made: %v", err)
				}
			}
		})
	}
}
