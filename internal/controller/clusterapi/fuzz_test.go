package clusterapi

import (
	"encoding/json"
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
)

// FuzzHooks: every body gets an answer of the protocol or HTTP 400; no body makes a
// machine done or moves a node that Cluster API did not mark.
func FuzzHooks(f *testing.F) {
	f.Add([]byte(claim("", same, version136)))
	f.Add([]byte(claim(`{"fallback":"Replace"}`, same, bothChanged)))
	f.Add([]byte(`{` + apiVersion + `,"kind":"UpdateMachineRequest","desired":{"machine":{"metadata":{"namespace":"default","name":"m1"},"spec":{"version":"v1.36.3"}}}}`))
	f.Add([]byte(`{` + apiVersion + `,"kind":"CanUpdateMachineRequest","current":{"machine":{}},"desired":{"machine":{"metadata":{"labels":{"cluster.x-k8s.io/control-plane-name":"cp"}}}}}`))
	f.Add([]byte(`{` + apiVersion + `,"kind":"UpdateMachineRequest","desired":{"machine":{"metadata":[]}}}`))
	w := newTestClusters(f)
	w.machine("m1", newVersion, false)
	w.node("node-m1", oldVersion, oldVersion)
	w.bundle("approved", newVersion, digestA)
	w.s.Events = &events.FakeRecorder{} // keeps nothing
	f.Fuzz(func(t *testing.T, body []byte) {
		w.t = t
		for _, h := range hooks.All() {
			code, text := w.post(w.s, h, string(body))
			if code == 400 {
				continue
			}
			a, err := h.DecodeAnswer([]byte(text))
			if code != 200 || err != nil {
				t.Fatalf("%s: %d %v: %s", h.Name, code, err, text)
			}
			if !h.Claims && !a.Failed && a.RetryAfter == 0 {
				t.Fatalf("called done by a body: %s", text)
			}
			var plain map[string]any
			if json.Unmarshal([]byte(text), &plain) != nil {
				t.Fatal("no JSON")
			}
		}
		if us := w.updates(); len(us) != 0 {
			t.Fatalf("a node is moved: %+v", us)
		}
	})
}
