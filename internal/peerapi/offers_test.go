package peerapi

import (
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// shelf is a Notifier with a few chunks.
type shelf struct {
	have   transfer.Bitmap
	chunks int
}

func (s shelf) Chunks(string) int              { return s.chunks }
func (s shelf) Has(_ string, n int) bool       { return s.have.Has(n) }
func (s shelf) Changed(string) <-chan struct{} { return nil }

// While a chunk exists that no peer got, no peer is offered one that another got: the node
// with the medium is not the bottleneck.
func TestEachChunkIsOfferedOnce(t *testing.T) {
	s := shelf{transfer.NewBitmap(64), 64}
	for n := range 60 { // four are not here
		s.have.Set(n)
	}
	o := &offers{}
	seen := map[int]bool{7: true}
	next := o.nextOffer(s, "sha256:a", 7) // the first is asked for by lot
	for next >= 0 {
		if seen[next] {
			t.Fatalf("chunk %d is offered to a second peer while others are left", next)
		}
		if !s.have.Has(next) {
			t.Fatalf("chunk %d is offered and not here", next)
		}
		seen[next] = true
		next = o.nextOffer(s, "sha256:a", next)
	}
	if len(seen) != 60 {
		t.Fatalf("%d of 60 chunks were given", len(seen))
	}
	s.have.Set(61)
	if next = o.nextOffer(s, "sha256:a", 1); next != 61 {
		t.Fatalf("chunk 61 came meanwhile, and %d is offered", next)
	}
	for _, wrong := range []int{-1, 64} {
		if next = o.nextOffer(s, "sha256:b", wrong); next != -1 {
			t.Fatalf("for chunk %d of 64 chunk %d is offered", wrong, next)
		}
	}
}
