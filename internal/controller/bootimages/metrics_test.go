package bootimages_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/bootimages"
)

// expression is the form that all alerts have.
var expression = regexp.MustCompile(`^max by \((\w+)\) \((refit_\w+)(?:\{(\w+)="(\w+)"\})?\) > (\d+)$`)

// firing alerts: every expression is evaluated on what the controller registers. A
// metric or a label that it has not is an error.
func firing(t *testing.T, reg *prometheus.Registry) []string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, rule := range rules(t) {
		name, _, _ := unstructured.NestedString(rule, "alert")
		expr, _, _ := unstructured.NestedString(rule, "expr")
		m := expression.FindStringSubmatch(expr)
		if m == nil {
			t.Fatalf("%s: %q is not of the form that this test understands", name, expr)
		}
		by, metric, label, value := m[1], m[2], m[3], m[4]
		limit, _ := strconv.ParseFloat(m[5], 64)
		found, most := false, 0.0
		for _, f := range families {
			if f.GetName() != metric {
				continue
			}
			for _, sample := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range sample.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if _, ok := labels[by]; !ok || label != "" && labels[label] == "" {
					t.Errorf("%s: %s has the labels %v", name, metric, slices.Sorted(maps.Keys(labels)))
				}
				if label == "" || labels[label] == value {
					found, most = true, max(most, sample.GetGauge().GetValue())
				}
			}
		}
		if !found {
			t.Errorf("%s: the controller has no %s with %s=%q", name, metric, label, value)
		}
		if most > limit {
			out = append(out, name)
		}
	}
	return out
}

func rules(t *testing.T) []map[string]any {
	t.Helper()
	objs, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for _, o := range objs {
		if o.GetName() != "refit-boot-images" {
			continue
		}
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
		for _, g := range groups {
			list, _, _ := unstructured.NestedSlice(g.(map[string]any), "rules")
			for _, r := range list {
				out = append(out, r.(map[string]any))
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("there are no rules")
	}
	return out
}

// Each alert fires when its fact is there, and none without.
func TestAlerts(t *testing.T) {
	t.Parallel()
	source := func(st v1alpha1.MachineSourceStatus) map[string]*v1alpha1.MachineSource {
		st.Policy = "p"
		return map[string]*v1alpha1.MachineSource{"s": {Status: st}}
	}
	untrusting := []metav1.Condition{{Type: v1alpha1.ConditionAuthority, Status: metav1.ConditionFalse}}
	seen := map[string]bool{}
	for name, tc := range map[string]struct {
		policy  v1alpha1.BootImagePolicyStatus
		sources map[string]*v1alpha1.MachineSource
		want    string
	}{
		"all is well":           {v1alpha1.BootImagePolicyStatus{Sources: 3, Current: 3}, source(v1alpha1.MachineSourceStatus{State: "Current", SkewMode: "Automatic", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAuthority, Status: metav1.ConditionTrue}}}), ""},
		"outdated alone":        {v1alpha1.BootImagePolicyStatus{Sources: 3, Outdated: 3}, nil, ""},
		"too old":               {v1alpha1.BootImagePolicyStatus{Sources: 1, TooOld: 1}, nil, "RefitBootImageTooOld"},
		"contested":             {v1alpha1.BootImagePolicyStatus{Sources: 1, Contested: 1}, nil, "RefitBootImageContested"},
		"a machine was refused": {v1alpha1.BootImagePolicyStatus{}, source(v1alpha1.MachineSourceStatus{Refused: []v1alpha1.RefusedMachine{{Machine: "a/b"}}}), "RefitMachinesRefused"},
		"declared wrong":        {v1alpha1.BootImagePolicyStatus{}, source(v1alpha1.MachineSourceStatus{Contradiction: "x"}), "RefitBootImageDeclaredWrong"},
		"nothing to enforce":    {v1alpha1.BootImagePolicyStatus{}, source(v1alpha1.MachineSourceStatus{SkewMode: "None"}), ""},
		"not enforced": {v1alpha1.BootImagePolicyStatus{}, map[string]*v1alpha1.MachineSource{"s": {Spec: v1alpha1.MachineSourceSpec{Skew: "None"},
			Status: v1alpha1.MachineSourceStatus{Policy: "p", SkewMode: "None"}}}, "RefitBootImageSkewNotEnforced"},
		"an old authority": {v1alpha1.BootImagePolicyStatus{}, source(v1alpha1.MachineSourceStatus{Conditions: untrusting}), "RefitFirstBootAuthorityOutdated"},
	} {
		reg := prometheus.NewRegistry()
		bootimages.NewMetrics(reg).Observe([]v1alpha1.BootImagePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: tc.policy}}, tc.sources)
		got := firing(t, reg)
		for _, g := range got {
			seen[g] = true
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, r := range rules(t) {
		name, _ := r["alert"].(string)
		if !seen[name] {
			t.Errorf("no case makes %s fire", name)
		}
		for _, part := range []string{"summary", "description"} {
			if text, _, _ := unstructured.NestedString(r, "annotations", part); text == "" {
				t.Errorf("%s has no %s", name, part)
			}
		}
		severity, _, _ := unstructured.NestedString(r, "labels", "severity")
		if pause, _ := r["for"].(string); !slices.Contains([]string{"info", "warning"}, severity) || !regexp.MustCompile(`^\d+[mh]$`).MatchString(pause) {
			t.Errorf("%s: severity %q, for %q", name, severity, pause)
		}
	}
}
