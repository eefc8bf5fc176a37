package bootimage

import (
	"strings"
	"testing"
)

// checkVersionStep refuses a wanted version that must be a mistake: each limit with the last
// good value and the next.
func TestStep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, to, why string }{
		{"v1.36.3", "v1.36.3", ""}, {"v1.36.3", "v1.36.4", ""}, {"v1.36.3", "v1.37.0", ""}, {"v1.36.3", "v1.38.0", "more than one minor version away"},
		{"v1.36.3", "v2.0.0", "more than one minor version away"}, {"v1.36.3", "v2.36.3", "more than one minor version away"}, {"v1.36.3", "v2.37.0", "more than one minor version away"},
		{"v1.36.3", "v1.36.2", "is older than"}, {"v2.0.0", "v1.36.3", "is older than"}, {"", "v1.36.3", "cannot compare version"}, {"v1.36.3", "next", "cannot compare version"},
		{"9.6.20251023-0", "v1.36.3", "cannot compare version"}, {"v1.36.3", "9.6.20251023-0", "cannot compare version"}, {"9.6.20251023-0", "9.6.20251024-0", "cannot compare version"},
	} {
		if why := checkVersionStep(tc.from, tc.to); !strings.Contains(why, tc.why) || (why == "") != (tc.why == "") {
			t.Errorf("%s to %s: %q, want %q", tc.from, tc.to, why, tc.why)
		}
	}
}

// Only what carries both marks is refit's, and may be collected.
func TestOurs(t *testing.T) {
	t.Parallel()
	object := func(labels map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": labels}}
	}
	for name, tc := range map[string]struct {
		o    map[string]any
		ours bool
	}{
		"both marks":               {object(map[string]any{labelManagedBy: managedBy, labelSource: "s"}), true},
		"another manager":          {object(map[string]any{labelManagedBy: "helm", labelSource: "s"}), false},
		"no manager":               {object(map[string]any{labelSource: "s"}), false},
		"no source":                {object(map[string]any{labelManagedBy: managedBy}), false},
		"a source that is no text": {object(map[string]any{labelManagedBy: managedBy, labelSource: 1}), false},
		"no labels":                {map[string]any{}, false},
	} {
		if _, ours := CloneSource(tc.o); ours != tc.ours {
			t.Errorf("%s: ours %t", name, ours)
		}
	}
}

// What an image that is written does, by effect, mode and window: the whole table.
// Nothing is replaced unless the mode says so.
func TestWriteTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{NewMachinesOnly, Piggyback, Roll} {
		for _, effect := range []string{"NewMachines", "Drifts", "Replaces"} {
			for _, held := range []bool{false, true} {
				for _, open := range []bool{false, true} {
					d := decideWrite(&Input{Mode: mode, Effect: effect, DriftHeld: held, WindowOpen: open, Version: "v1.36.3"})
					harmless := effect == "NewMachines" || effect == "Drifts" && held
					want := harmless && mode != Roll || mode == Roll && open
					if (d.Action == Write) != want {
						t.Errorf("mode %s, effect %s, drift held %t, window open %t: %s", mode, effect, held, open, d.Action)
					}
				}
			}
		}
	}
}
