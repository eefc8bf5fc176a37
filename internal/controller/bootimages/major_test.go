package bootimages_test

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
)

// testMajorStep: the release that runs has OS 9. One major behind may join, two may
// not, unless a person takes the risk of this very rule until a time that passes.
func testMajorStep(s *site) {
	s.namespace("a10")
	s.make(awsTemplate("a10", "w", "ami-golden"))
	s.make(deployment("a10", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("a10", "a10", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	const name = "machinedeployment.a10.workers"
	declare := func(os string) {
		src := s.source(name)
		src.Spec.Declared = &v1alpha1.DeclaredImage{Release: "1.35.4", OS: os}
		if err := s.admin.Update(context.Background(), src, client.FieldOwner("person")); err != nil {
			s.t.Fatal(err)
		}
		s.look()
	}
	enough := func(what string, want ...string) {
		s.t.Helper()
		s.expect(what, says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), want...)
	}
	blocked := func(what string, want bool) {
		s.t.Helper()
		if b := s.policy("a10").Status.Blocked; (len(b) > 0) != want {
			s.t.Errorf("%s: %+v", what, b)
		}
	}
	declare("8.6.20240101-0")
	enough("one major step", "True AsExpected")
	blocked("one major step", false)
	declare("7.9.20200601-0")
	enough("two major steps", "False", "OS 7, the target's is 9")
	blocked("two major steps", true)
	for _, w := range []struct {
		rule, is string
		blocks   bool
	}{{"another", "False", true}, {skew.RuleMajor, "True BootImageWaived", false}} {
		p := s.policy("a10")
		p.Spec.Skew.Waivers = []v1alpha1.SkewWaiver{{Source: name, Rule: w.rule, Reason: "tried here", Until: metav1.NewTime(s.now.Add(time.Hour))}}
		if err := s.admin.Update(context.Background(), p); err != nil {
			s.t.Fatal(err)
		}
		s.look()
		enough("a waiver of rule "+w.rule, w.is)
		blocked("a waiver of rule "+w.rule, w.blocks)
	}
	s.now = s.now.Add(2 * time.Hour)
	s.look()
	enough("the waiver has ended", "False", "OS 7, the target's is 9")
	blocked("the waiver has ended", true)
	s.end("a10")
}
