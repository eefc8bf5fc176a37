package convert_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func int32Of(i int32) *int32 { return &i }

// What a machine decides at its first boot.
func TestEvaluateMachine(t *testing.T) {
	t.Parallel()
	minimum := v1alpha1.SkewRule{Name: "os", MinimumOS: "9.6", Why: "9.4 hangs in the pivot"}
	cpu := v1alpha1.SkewRule{Name: "cpu", MinimumFacts: map[string]string{"cpu": "x86-64-v3"}}
	waiver := v1alpha1.SkewWaiver{Source: "s", Rule: "os", Reason: "tested", Until: metav1.NewTime(now.Add(time.Hour))}
	for name, tc := range map[string]struct {
		file    convert.SkewLimits
		machine convert.BootedMachine
		want    string
	}{
		"new enough":                              {convert.SkewLimits{Rules: []v1alpha1.SkewRule{minimum}}, convert.BootedMachine{OS: "9.6.20251023-0"}, ""},
		"too old":                                 {convert.SkewLimits{Rules: []v1alpha1.SkewRule{minimum}}, convert.BootedMachine{OS: "9.4.20250101-0"}, "at least 9.6 is wanted (9.4 hangs in the pivot)"},
		"no rule refuses nothing":                 {convert.SkewLimits{}, convert.BootedMachine{}, ""},
		"what it cannot say does not hold":        {convert.SkewLimits{Rules: []v1alpha1.SkewRule{minimum}}, convert.BootedMachine{}, "at least OS 9.6 is wanted"},
		"an unreadable version does not pass":     {convert.SkewLimits{Rules: []v1alpha1.SkewRule{minimum}}, convert.BootedMachine{OS: "rolling"}, "at least OS 9.6 is wanted"},
		"a rule about processors asks no version": {convert.SkewLimits{Rules: []v1alpha1.SkewRule{cpu}}, convert.BootedMachine{Facts: map[string]string{"cpu": "x86-64-v3"}}, ""},
		"an old processor":                        {convert.SkewLimits{Rules: []v1alpha1.SkewRule{cpu}}, convert.BootedMachine{OS: "9.6.20251023-0", Facts: map[string]string{"cpu": "x86-64-v2"}}, "cpu x86-64-v2, at least x86-64-v3 is wanted"},
		"a processor that is not known":           {convert.SkewLimits{Rules: []v1alpha1.SkewRule{cpu}}, convert.BootedMachine{OS: "9.6.20251023-0"}, "cpu of at least x86-64-v3 is wanted"},
		"another architecture":                    {convert.SkewLimits{Rules: []v1alpha1.SkewRule{cpu}}, convert.BootedMachine{Facts: map[string]string{"cpu": "arm64"}}, ""},
		"two majors away":                         {convert.SkewLimits{Rules: []v1alpha1.SkewRule{cpu}, Target: convert.LimitsTarget{OS: "10.0.20260501-0"}}, convert.BootedMachine{OS: "48.84.202208021106-0", Facts: map[string]string{"cpu": "x86-64-v4"}}, "at most 1 major step"},
		"waived for its source":                   {convert.SkewLimits{Source: "s", Rules: []v1alpha1.SkewRule{minimum}, Waivers: []v1alpha1.SkewWaiver{waiver}}, convert.BootedMachine{OS: "9.4.20250101-0"}, ""},
		"waived for another":                      {convert.SkewLimits{Source: "x", Rules: []v1alpha1.SkewRule{minimum}, Waivers: []v1alpha1.SkewWaiver{waiver}}, convert.BootedMachine{OS: "9.4.20250101-0"}, "at least 9.6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.file.Pool = "workers"
			got := tc.file.Evaluate(tc.machine, now)
			if (len(got) == 0) != (tc.want == "") {
				t.Fatalf("%+v", got)
			}
			if text := tc.file.Message(tc.machine, got); len(got) > 0 && (!strings.Contains(text, tc.want) || !strings.Contains(text, "cannot join pool workers")) {
				t.Error(text)
			}
		})
	}
}

// A limit that a machine does not understand is not passed over.
func TestParseSkewLimits(t *testing.T) {
	t.Parallel()
	f := &convert.SkewLimits{Pool: "w", Target: convert.LimitsTarget{Kubernetes: "1.36.3"}, Rules: []v1alpha1.SkewRule{{Name: "os", MinimumOS: "9.6"}}, Report: &convert.ReportTo{URL: "https://x/join/y", CA: "pem"}}
	data, err := f.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := convert.ParseSkewLimits(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, got); diff != "" {
		t.Error(diff)
	}
	for name, text := range map[string]string{
		"a rule of a later refit": `{"apiVersion":"refit.dev/first-boot/v1","pool":"w","target":{},"rules":[{"name":"x","minimumMoon":"full"}]}`,
		"another version":         `{"apiVersion":"refit.dev/first-boot/v2","pool":"w","target":{},"rules":[]}`,
		"half a file":             string(data[:len(data)/2]),
		"too much":                `{"pool":"` + strings.Repeat("x", 300<<10) + `"}`,
	} {
		if _, err := convert.ParseSkewLimits([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	rules := convert.MachineRules([]v1alpha1.SkewRule{{Name: "release", MinimumRelease: "1.35.0"}, {Name: "both", MinimumRelease: "1.35.0", MinimumOS: "9.4"}, {Name: "soak", MinAgeDays: int32Of(7)}, {Name: "steps", MajorSteps: int32Of(0)}})
	if len(rules) != 2 || rules[0].Name != "both" || rules[0].MinimumRelease != "" || rules[1].Name != "steps" {
		t.Errorf("a machine does not know its release: %+v", rules)
	}
}
