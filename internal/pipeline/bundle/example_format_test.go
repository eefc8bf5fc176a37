package bundle_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

var update = flag.Bool("update", false, "write the example into the documentation")

const (
	formatDoc    = "../../../docs/reference/bundle-format.md"
	exampleBegin = "<!-- example begin -->\n"
	exampleEnd   = "<!-- example end -->"
)

// The example in docs/reference/bundle-format.md is what is written, byte by
// byte: the format cannot change without its page.
func TestTheExampleOfTheFormat(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), exampleBegin)
	have, after, ok2 := strings.Cut(rest, exampleEnd)
	if !ok || !ok2 {
		t.Fatal("the page has no example")
	}
	want := exampleText(t)
	if *update {
		if err := os.WriteFile(formatDoc, []byte(before+exampleBegin+want+exampleEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the format and its page differ (go test -run Example -update rewrites the example; a change of version 1 breaks bundles that exist): %s", diff)
	}
}

func exampleText(t *testing.T) string {
	t.Helper()
	file := bundletest.Bytes(t, bundletest.Spec{Name: "example", Version: "1.0.0",
		Images:   []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{[]byte(strings.Repeat("layer ", 100))}}},
		Payloads: []bundletest.Payload{{Name: "hello", Version: "1.0.0", Platform: "linux/amd64", Content: []byte("hello\n")}}}, bundletest.Key(1))
	h := parse(t, file)
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("Digest of the bundle: `%s`, %d bytes, digest of the whole file `%s`.\n", h.Digest, len(file), bundle.DigestOf(file))
	line("The first tar header, bytes that are not zero:\n\n```")
	for at := 0; at < 512; at += 16 {
		if row := file[at : at+16]; strings.Trim(string(row), "\x00") != "" {
			line("%08x  % x", at, row)
		}
	}
	line("```\n\n| offset of the content | size | entry |\n| --- | --- | --- |")
	type content struct {
		at, size int
		name     string
	}
	var all []content
	for at := 0; at < len(file)-bundle.EndSize; {
		name := strings.TrimRight(string(file[at:at+100]), "\x00")
		var size int
		if _, err := fmt.Sscanf(string(file[at+124:at+135]), "%o", &size); err != nil {
			t.Fatal(err)
		}
		all = append(all, content{at + bundle.BlockSize, size, name})
		line("| 0x%06x | %d | `%s` |", at+bundle.BlockSize, size, name)
		at += bundle.BlockSize + int(bundle.PaddedSize(int64(size)))
	}
	line("| 0x%06x | %d | end |", len(file)-bundle.EndSize, bundle.EndSize)
	for i, title := range []string{"", "`index.json`", "Top manifest", "Signatures (the spaces after it left out)", "Metadata manifest", "Metadata (the spaces after it left out)"} {
		if title != "" {
			line("\n%s:\n\n```\n%s\n```", title, strings.TrimRight(string(file[all[i].at:all[i].at+all[i].size]), " "))
		}
	}
	line("\nChunk table:\n\n```")
	table := all[6]
	for n := range table.size / bundle.HashSize {
		c := h.Chunks.Chunk(n)
		line("%s  chunk %d: blob %d, offset %d, size %d", hex.EncodeToString(file[table.at+n*bundle.HashSize:][:bundle.HashSize]), n, c.Blob, c.Offset, c.Size)
	}
	line("```")
	return b.String()
}
