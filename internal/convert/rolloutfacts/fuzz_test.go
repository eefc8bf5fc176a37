package rolloutfacts

import (
	"encoding/json"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// For every status that a node writes: it counts only for its spec.run, and never as an
// earlier attempt.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"run":{"uid":"u","planDigest":"p","attempt":1,"state":"Succeeded","finishedAt":"2026-11-20T11:00:00Z"},"agent":{"heartbeat":"2026-11-20T10:00:00Z"}}`), int32(1))
	f.Add([]byte(`{"run":{"uid":"u","planDigest":"p","attempt":-5,"state":"Failed"}}`), int32(2))
	f.Add([]byte(`{"run":{"uid":"u","planDigest":"other","attempt":2147483647,"state":"Undone"}}`), int32(1))
	f.Fuzz(func(t *testing.T, status []byte, attempt int32) {
		nu := &v1alpha1.NodeUpdate{}
		nu.Spec.Run = &v1alpha1.NodeRun{UID: "u", PlanDigest: "p", Attempt: attempt}
		if json.Unmarshal(status, &nu.Status) != nil {
			return
		}
		run := Run(nu, "u", "p")
		if run == nil || run.Attempt.Number < attempt || run.EndedAgo < 0 {
			t.Fatalf("%+v", run)
		}
		if s := nu.Status.Run; run.State == rollout.RunSucceeded && (s.UID != "u" || s.PlanDigest != "p" || s.Attempt < attempt) {
			t.Fatalf("a report of another run counts: %+v", s)
		}
		if Run(nu, "v", "p") != nil || Run(nu, "u", "q") != nil {
			t.Fatal("a permission of another update counts")
		}
	})
}
