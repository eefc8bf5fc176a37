package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// writePart writes part number of count parts of a bundle as a stick that begins with it.
func writePart(t *testing.T, path string, raw []byte, digest string, number, count int) {
	t.Helper()
	parts, err := bundle.SplitParts(digest, int64(len(raw)), int64((len(raw)+count-1)/count))
	if err != nil || len(parts) != count {
		t.Fatalf("%d parts: %v", len(parts), err)
	}
	p := parts[number-1]
	data := raw[p.Offset : p.Offset+p.Length]
	p.Digest = bundle.DigestOf(data)
	if err := os.WriteFile(path+".new", append(p.Header(), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Sticks with the parts of a bundle come one after the other. The node says which part is missing,
// keeps what it had, and supplies its peer.
func TestPartsOneAfterTheOther(t *testing.T) {
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, bytes.Repeat([]byte("a layer in three parts "), 3000))
	path, h := mediumWith(t, spec, 1)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	port := filepath.Join(t.TempDir(), "port")
	a, b := newTestNode(t, "n1", 17994, port), newTestNode(t, "n2", 17995)
	introduce(a, b)
	approve(t, h, everything(h), a, b)
	plug := func(number int, what string) {
		t.Helper()
		writePart(t, port, raw, h.Digest, number, 3)
		wake(a.agent.wakeMedia)
		a.reported(what, func(s *v1alpha1.NodeUpdateStatus) bool {
			return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionImagesReady && c.Reason == v1alpha1.ReasonPartMissing && strings.Contains(c.Message, what)
			})
		})
	}
	plug(2, "part 1 with its header")
	plug(1, "parts 2, 3 of 3 missing")
	a.reported("the first stick may be pulled", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumCopied && strings.Contains(s.Media[0].Message, "Missing: parts 2, 3 of 3.")
	})
	plug(3, "part 2 of 3 missing")
	a.reported("the third stick may be pulled", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumCopied && strings.Contains(s.Media[0].Message, "Missing: part 2 of 3.")
	})
	writePart(t, port, raw, h.Digest, 2, 3)
	wake(a.agent.wakeMedia)
	a.reported("held", held)
	if s := b.reported("held by the peer", held); s.Pins.BytesFromPeers == 0 || len(s.Media) != 0 {
		t.Errorf("%+v %+v", s.Pins, s.Media)
	}
}

// Two nodes have a stick each: together they have the bundle.
func TestPartsInTwoNodes(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	// No chunk is in both parts: a node would have to give a half of one.
	first := h.BlobOffset(2) - bundle.BlockSize
	for i, p := range []string{one, two} {
		parts, err := bundle.SplitParts(h.Digest, int64(len(raw)), first)
		if err != nil || len(parts) != 2 {
			t.Fatalf("%d parts, %v", len(parts), err)
		}
		data := raw[parts[i].Offset : parts[i].Offset+parts[i].Length]
		parts[i].Digest = bundle.DigestOf(data)
		if err := os.WriteFile(p, append(parts[i].Header(), data...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, b := newTestNode(t, "n1", 17996, one), newTestNode(t, "n2", 17997, two)
	introduce(a, b)
	approve(t, h, everything(h), a, b)
	a.reported("held", held)
	b.reported("held by the other", held)
}
