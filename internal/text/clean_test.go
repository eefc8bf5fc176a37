package text

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestWriter(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ in, want string }{
		"plain text, tabs and line feeds":  {"Größe 5\t€ 日本\n", "Größe 5\t€ 日本\n"},
		"an escape sequence":               {"a\x1b[2Jb", `a\u001b[2Jb`},
		"the title of a terminal":          {"\x1b]0;owned\a", `\u001b]0;owned\u0007`},
		"a carriage return over a line":    {"bad\rgood", `bad\u000dgood`},
		"backspaces":                       {"no\b\byes", `no\u0008\u0008yes`},
		"C1: a sequence without an escape": {"\u009b2J", `\u009b2J`},
		"bidirectional override":           {"abc\u202efed", `abc\u202efed`},
		"bidirectional isolate":            {"\u2066x\u2069", `\u2066x\u2069`},
		"zero width":                       {"adm\u200bin\ufeff", `adm\u200bin\ufeff`},
		"line separators":                  {"a\u2028b\u2029c\u0085d", `a\u2028b\u2029c\u0085d`},
		"tags beyond the first plane":      {"\U000e0041", `\udb40\udc41`},
		"an invisible letter":              {"a\u3164b", `a\u3164b`},
		"a soft hyphen":                    {"a\u00adb", `a\u00adb`},
		"invalid bytes":                    {"a\xff\xc3(b", `a\ufffd\ufffd(b`},
		"delete":                           {"a\x7fb", `a\u007fb`},
		"NUL":                              {"a\x00b", `a\u0000b`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var whole, bytewise bytes.Buffer
			w := CleanWriter(&whole)
			if n, err := w.Write([]byte(tc.in)); n != len(tc.in) || err != nil {
				t.Errorf("wrote %d of %d: %v", n, len(tc.in), err)
			}
			if whole.String() != tc.want {
				t.Errorf("%q, want %q", whole.String(), tc.want)
			}
			one := CleanWriter(&bytewise)
			for i := range len(tc.in) {
				if _, err := one.Write([]byte{tc.in[i]}); err != nil {
					t.Fatal(err)
				}
			}
			if bytewise.String() != tc.want {
				t.Errorf("byte by byte %q, want %q", bytewise.String(), tc.want)
			}
		})
	}
}

// JSON that goes through is the same document.
func TestWriterKeepsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		var b bytes.Buffer
		enc := json.NewEncoder(CleanWriter(&b))
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text); err != nil {
			rt.Fatal(err)
		}
		var got string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got != text {
			rt.Fatalf("%q became %q: %v", text, got, err)
		}
	})
}

// For any text in any pieces, the output is clean.
func TestWriterProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var b bytes.Buffer
		w := CleanWriter(&b)
		for range rapid.IntRange(1, 5).Draw(rt, "pieces") {
			if _, err := w.Write(rapid.SliceOf(rapid.Byte()).Draw(rt, "piece")); err != nil {
				rt.Fatal(err)
			}
		}
		out := b.String()
		if !utf8.ValidString(out) {
			rt.Fatalf("not UTF-8: %q", out)
		}
		for _, r := range out {
			if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				rt.Fatalf("%U in %q", r, out)
			}
		}
	})
}

func TestControlPassesAndWriterIsMadeOnce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := CleanWriter(CleanWriter(&b))
	WriteControl(w, "\x1b[2A")
	if _, err := w.Write([]byte("\x1b")); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != "\x1b[2A"+`\u001b` {
		t.Errorf("%q", got)
	}
	if RawWriter(w) != &b {
		t.Error("the writer below is not the one that was given")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if d, ok := CleanWriter(f).(interface{ Fd() uintptr }); !ok || d.Fd() != f.Fd() {
		t.Error("a terminal is not recognized behind the writer")
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	if got := CleanLine("a\nVerified: yes\tb\r\x1b"); strings.ContainsAny(got, "\n\t\r\x1b") || !strings.HasPrefix(got, "a") {
		t.Errorf("%q", got)
	}
	if got := CleanLine("plain"); got != "plain" {
		t.Errorf("%q", got)
	}
}
