package updatecmd

import (
	"strings"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

func TestARiskHasANameAReasonAndAnEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		check string
		flags acceptFlags
		code  int
		says  string
	}{
		"all said":                 {"clock", acceptFlags{reason: "no NTP here", until: time.Hour}, console.ExitOK, ""},
		"no such check":            {"clocks", acceptFlags{reason: "no NTP here", until: time.Hour}, console.ExitUsage, "refit gate lists them"},
		"it can never be accepted": {"quorum", acceptFlags{reason: "be quick", until: time.Hour}, console.ExitBlocked, "cannot be accepted"},
		"no reason":                {"clock", acceptFlags{until: time.Hour}, console.ExitUsage, "--reason"},
		"no end":                   {"clock", acceptFlags{reason: "no NTP here"}, console.ExitUsage, "--until"},
		"an end that has gone by":  {"clock", acceptFlags{reason: "no NTP here", until: -time.Hour}, console.ExitUsage, "--until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := riskFor(tc.check, tc.flags, now)
			if console.ExitCode(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%v, exit code %d", err, console.ExitCode(err))
			}
			if err == nil && (r.Check != tc.check || r.By != inputs.CurrentUser() || !r.Until.Time.Equal(now.Add(time.Hour))) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestDrainOptionsAreLaidOverEachOther(t *testing.T) {
	t.Parallel()
	first := drainFlags{skip: "tier=local", grace: 30 * time.Second}.apply(nil, map[string]bool{"skip": true, "grace": true})
	if got := DrainWords(first); got != "drains nodes with: pods with tier=local stay; every pod has 30 s to end" {
		t.Error(got)
	}
	second := drainFlags{timeout: time.Minute, keepData: true, unowned: "may in (go)"}.apply(first, map[string]bool{"timeout": true, "keep-emptydir-data": true, "evict-unowned": true})
	if got := DrainWords(second); got != strings.Join([]string{"drains nodes with: pods with tier=local stay", "pods with may in (go) are evicted without an owner", "pods with emptyDir data are refused",
		"every pod has 30 s to end", "a drain halts the update after 60 s"}, "; ") {
		t.Error(got)
	}
	if got := (drainFlags{reset: true}).apply(second, nil); got != nil {
		t.Errorf("%+v", got)
	}
	if got := (drainFlags{}).apply(&v1alpha1.DrainOptions{SkipSelector: first.SkipSelector}, map[string]bool{"skip": true}); got != nil {
		t.Errorf("an empty selector takes it back: %+v", got)
	}
	for name, f := range map[string]drainFlags{"no selector": {skip: "a in"}, "force": {grace: time.Millisecond}, "before the start": {timeout: -time.Second}} {
		if console.ExitCode(f.check()) != console.ExitUsage {
			t.Errorf("%s is accepted", name)
		}
	}
}
