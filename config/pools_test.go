package config_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// What a pool may say of its pace; a refusal says the fix.
func testPools(t *testing.T, c client.Client) {
	window := func(start string, minutes int32, zone string, days ...v1alpha1.Weekday) v1alpha1.UpdatePoolSpec {
		return v1alpha1.UpdatePoolSpec{Windows: []v1alpha1.Window{{Start: start, DurationMinutes: minutes, TimeZone: zone, Days: days}}}
	}
	canary := func(n intstr.IntOrString) v1alpha1.UpdatePoolSpec {
		return v1alpha1.UpdatePoolSpec{Canary: &v1alpha1.Canary{Nodes: n}}
	}
	undo := func(seconds int32) v1alpha1.UpdatePoolSpec {
		return v1alpha1.UpdatePoolSpec{UndoDeadlineSeconds: &seconds}
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.UpdatePoolSpec
		want string // empty: accepted
	}{
		"a-night":            {window("22:00", 480, "Europe/Berlin", "Fri", "Sat"), ""},
		"no-zone-is-utc":     {window("00:00", 1440, ""), ""},
		"midnight-at-24":     {window("24:00", 60, ""), "HH:MM from 00:00 to 23:59"},
		"no-length":          {window("22:00", 0, ""), "leave windows out to start at any time"},
		"longer-than-a-week": {window("22:00", 10081, ""), "leave windows out to start at any time"},
		"the-servers-zone":   {window("22:00", 60, "Local"), "must be a name of the tz database"},
		"an-unknown-day":     {window("22:00", 60, "", "Funday"), "supported values"},
		"a-canary":           {canary(intstr.FromString("10%")), ""},
		"no-canary":          {canary(intstr.FromInt32(0)), "leave canary out to have none"},
		"no-percent":         {canary(intstr.FromString("0%")), "leave canary out to have none"},
		"bears-nothing":      {v1alpha1.UpdatePoolSpec{MaxFailures: -1}, "with 1 the first failed node halts"},
		"hasty":              {v1alpha1.UpdatePoolSpec{StepDeadlineSeconds: 30}, "at least 60 seconds"},
		"no-undo-deadline":   {undo(0), ""},
		"undo-at-once":       {undo(59), "must be 0 (a node never undoes steps by itself) or from 60 to 7200 seconds"},
		"undo-too-late":      {undo(7201), "must be 0 (a node never undoes steps by itself) or from 60 to 7200 seconds"},
		"for-ever":           {v1alpha1.UpdatePoolSpec{Attempts: 11}, "must be from 1 to 10"},
		"replaces":           {v1alpha1.UpdatePoolSpec{OnFailure: "Replace"}, "supported values"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.UpdatePool{ObjectMeta: meta("pace-" + name), Spec: tc.spec}
			err := c.Create(context.Background(), p)
			switch {
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Fatalf("want a refusal with %q, got %v", tc.want, err)
			case tc.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case err != nil:
				return
			}
			if p.Spec.MaxFailures != 1 || p.Spec.Attempts != 1 || p.Spec.OnFailure != v1alpha1.FailureHalt {
				t.Errorf("the defaults are one failure, one attempt, Halt: %+v", p.Spec)
			}
			want := int32(600)
			if tc.spec.UndoDeadlineSeconds != nil {
				want = *tc.spec.UndoDeadlineSeconds
			}
			if p.Spec.UndoDeadlineSeconds == nil || *p.Spec.UndoDeadlineSeconds != want {
				t.Errorf("undo deadline %v, want %d", p.Spec.UndoDeadlineSeconds, want)
			}
			if len(p.Spec.Windows) > 0 && p.Spec.Windows[0].TimeZone == "" {
				t.Error("a window without a zone is in UTC")
			}
		})
	}
}
