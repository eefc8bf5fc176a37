package bootstreams_test

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// A stream's URL comes from an object: it must not reach services on this machine.
func TestNoStreamOfThisMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.l.Servers = nil
	s.create(v1alpha1.StreamURL{URL: s.server.URL, CABundle: s.ca()})
	got, said := s.load()
	if got != nil || s.requests != 0 {
		t.Errorf("%d requests: %s", s.requests, said)
	}
	for _, word := range []string{"127.0.0.1", "loopback", "-local-server"} {
		if !strings.Contains(said, word) {
			t.Errorf("it does not say %s: %s", word, said)
		}
	}
}
