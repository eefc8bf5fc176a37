package bundlewriter

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// A tar of CNI plugins has the platform of its programs, so that one bundle has a tar for
// each platform.
func TestPluginsHaveAPlatform(t *testing.T) {
	program := func(machine byte, order byte) string {
		head := "\x7fELF\x02" + string(order) + "\x01" + strings.Repeat("\x00", 11)
		if order == 2 { // the most significant byte first
			return head + "\x00" + string(machine)
		}
		return head + string([]byte{machine, 0})
	}
	pack := func(packed bool, files ...string) string {
		var buf bytes.Buffer
		var out io.WriteCloser = nopCloser{&buf}
		if packed {
			out = gzip.NewWriter(&buf)
		}
		w := tar.NewWriter(out)
		for i, data := range files {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("./%d", i), Mode: 0o755, Size: int64(len(data))}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), out.Close()); err != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	amd64, s390x := program(62, 1), program(22, 2)
	many := append(slices.Repeat([]string{"text"}, maxPlugins), amd64)
	for name, c := range map[string]struct{ data, want string }{
		"a tar": {pack(false, "a long enough license of the plugins", amd64), "linux/amd64"}, "gzip": {pack(true, "short", "", s390x), "linux/s390x"},
		"text only": {pack(true, "text", "more text than the beginning of a program"), ""}, "no tar": {"no tar", ""}, "nothing": {"", ""},
		"half of a tar": {pack(false, "text", amd64)[:700], ""}, "gzip of no tar": {"\x1f\x8b", ""}, "too many files": {pack(true, many...), ""},
		"another machine": {pack(true, program(99, 1)), ""}, "a program, not a tar": {amd64, ""},
	} {
		if got := pluginsPlatform(strings.NewReader(c.data), int64(len(c.data))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	_, h := create(t, Options{Version: "1.0.0", Sources: []string{"payload:cni-plugins@v1.9.1=" + writeFile(t, "a.tgz", pack(true, amd64), 0o600), "payload:cni-plugins@v1.9.1=" + writeFile(t, "s.tgz", pack(true, s390x), 0o600)}})
	a, s := h.PayloadByName("cni-plugins", "linux/amd64"), h.PayloadByName("cni-plugins", "linux/s390x")
	if a == nil || s == nil || a.Digest == s.Digest || h.PayloadByName("cni-plugins", "linux/arm64") != nil {
		t.Errorf("payloads: %+v", h.Metadata.Payloads)
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
