package hooks

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/outbound"
)

// An updater's address comes from an object: the controller calls nothing of its own
// machine, unless it was allowed.
func TestNoUpdaterOfThisMachine(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer s.Close()
	u := &v1alpha1.Updater{Spec: v1alpha1.UpdaterSpec{URL: s.URL, CABundle: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))}}
	u.Name = "firmware"
	ask := func(servers *outbound.Guard) string {
		r := register(u, registration{}, servers)
		defer r.ext.Close()
		_, silent := r.Ask(t.Context(), UpdateMachine, Request{})
		return silent
	}
	said := ask(nil)
	if asked.Load() != 0 {
		t.Errorf("%d requests", asked.Load())
	}
	for _, word := range []string{"firmware", "127.0.0.1", "loopback", "-local-server=127.0.0.1"} {
		if !strings.Contains(said, word) {
			t.Errorf("it does not say %s: %s", word, said)
		}
	}
	if said := ask(outbound.New(outbound.ServerFlag, "127.0.0.1")); asked.Load() == 0 {
		t.Errorf("allowed: %s", said)
	}
}
