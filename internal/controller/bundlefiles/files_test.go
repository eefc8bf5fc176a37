package bundlefiles

import (
	"fmt"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func TestChunksOf(t *testing.T) {
	m := &bundle.Metadata{ChunkSize: 10, Blobs: []bundle.Blob{{Size: 25}, {Size: 0}, {Size: 10}, {Size: 11}}}
	for blob, want := range []string{"0 [10 10 5]", "3 []", "3 [10]", "4 [10 1]"} {
		first, sizes := chunksOf(m, blob)
		if got := fmt.Sprint(first, " ", sizes); got != want {
			t.Errorf("blob %d: %s, want %s", blob, got, want)
		}
	}
}
