package agent

import (
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/host/media"
)

// A disk that hangs (the kernel tries it for minutes) keeps nobody from what is
// known of the other media, nor from neighbours.
func TestADiskThatHangsHoldsUpNobody(t *testing.T) {
	began, let := make(chan struct{}), make(chan struct{})
	s := MediaSet{probe: func(m media.Medium) *Plugged {
		close(began)
		<-let
		return &Plugged{Medium: m}
	}}
	scanned := make(chan struct{})
	go func() {
		s.Scan([]media.Medium{{Path: "/dev/hangs", Device: true, Key: "1"}})
		close(scanned)
	}()
	<-began
	asked := make(chan struct{})
	go func() {
		s.With("sha256:x")
		s.Describe(Policy{}, nil)
		close(asked)
	}()
	select {
	case <-asked:
	case <-time.After(5 * time.Second):
		t.Error("the others wait for the disk")
	}
	close(let)
	<-scanned
	<-asked
}
