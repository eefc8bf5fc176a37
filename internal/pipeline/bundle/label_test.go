package bundle_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// A label comes from a process that a hostile bundle may have taken over. Each field with an
// impossible value is refused. A valid label leads to the same decision as its header.
func TestLabel(t *testing.T) {
	t.Parallel()
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1)))
	good, err := h.Label()
	if err != nil {
		t.Fatal(err)
	}
	again, err := good.Header()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]ed25519.PublicKey{"alice": public(1), "bob": public(2)}
	if by := again.SignedBy(keys); len(by) != 1 || by[0] != "alice" || again.Digest != h.Digest || again.Metadata.Name != "tiny" || again.FileSize() != h.FileSize() {
		t.Errorf("%+v signed by %v", again, by)
	}
	for name, change := range map[string]func(*bundle.Label){
		"digest":                func(l *bundle.Label) { l.Digest = "sha256:1" },
		"name":                  func(l *bundle.Label) { l.Name = "a b" },
		"version":               func(l *bundle.Label) { l.Version = "latest" },
		"minRefit":              func(l *bundle.Label) { l.MinRefit = "x" },
		"no header":             func(l *bundle.Label) { l.HeaderSize = 0 },
		"a negative header":     func(l *bundle.Label) { l.HeaderSize = -1 },
		"a header of 64 MiB +1": func(l *bundle.Label) { l.HeaderSize = bundle.MaxHeaderSize + 1; l.FileSize = 1 << 40 },
		"a file below a header": func(l *bundle.Label) { l.FileSize = l.HeaderSize - 1 },
		"a file without end":    func(l *bundle.Label) { l.FileSize = 1<<63 - 1 },
		"signatures":            func(l *bundle.Label) { l.Slot = []byte("{") },
		"too many signatures":   func(l *bundle.Label) { l.Slot = bytes.Repeat([]byte(" "), bundle.SignatureSlotSize+1) },
		"another name's":        func(l *bundle.Label) { l.Name = "other" },
		"another digest's":      func(l *bundle.Label) { l.Digest = "sha256:" + strings.Repeat("a", 64) },
	} {
		l := good
		change(&l)
		if _, err := l.Header(); err == nil || !strings.HasPrefix(err.Error(), "label of a bundle: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := good
	if content, err := bundle.EncodeSlot(h.Signatures); err == nil {
		full.Slot = content
	}
	if _, err := full.Header(); err != nil {
		t.Errorf("with its padding: %v", err)
	}
	full.HeaderSize, full.FileSize = bundle.MaxHeaderSize, bundle.MaxHeaderSize
	if _, err := full.Header(); err != nil {
		t.Errorf("the largest header: %v", err)
	}
	full.HeaderSize = 1
	if _, err := full.Header(); err != nil {
		t.Errorf("the smallest header: %v", err)
	}
}

func TestRefusedResource(t *testing.T) {
	t.Parallel()
	for object, says := range map[[3]string]string{
		{"v1", "ConfigMap", "a"}: "", {"", "ConfigMap", "a"}: "are needed", {"v1", "", "a"}: "are needed", {"v1", "ConfigMap", ""}: "are needed",
		{"v1", "Secret", "a"}: "Secret a is refused: every node reads a bundle", {"example.com/v1", "Secret", "a"}: "", {"refit.dev/v1alpha1", "Bundle", "a"}: "Bundle a is refused",
		{"refit.development/v1", "Bundle", "a"}: "",
	} {
		if why := bundle.RefusedResource(object[0], object[1], object[2]); (why == "") != (says == "") || !strings.Contains(why, says) {
			t.Errorf("%v: %q, want %q", object, why, says)
		}
	}
}
