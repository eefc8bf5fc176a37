package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/text"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"what fits stays":                {text.Truncate("four", 4), "four"},
		"a mark where it was cut":        {text.Truncate("five5", 4), "f..."},
		"not within a character":         {text.Truncate("aé234567", 5), "a..."},
		"a prefix has no mark":           {text.Prefix("ab€", 4), "ab"},
		"the end of a log":               {text.Tail("0123456789", 6), "...789"},
		"both ends":                      {text.TruncateMiddle("begin, and much, end", 5, 13, " ... "), "begin ... end"},
		"twelve digits and an algorithm": {text.ShortDigest("sha256:0123456789abcdef"), "sha256:0123456789ab"},
		"of another algorithm":           {text.ShortDigest("sha512:0123456789abcdef"), "sha512:0123456789ab"},
		"twelve digits alone":            {text.ShortDigest("0123456789abcdef"), "0123456789ab"},
		"a digest that is short":         {text.ShortDigest("sha256:01"), "sha256:01"},
		"no digest":                      {text.ShortDigest(""), ""},
		"all names fit":                  {text.FirstOf([]string{"a", "b"}, 2, ", "), "a, b"},
		"the first of many names":        {text.FirstOf([]string{"a", "b", "c", "d"}, 2, " "), "a b and 2 more"},
		"one":                            {text.Count(1, "policy"), "1 policy"},
		"none":                           {text.Count(0, "pod"), "0 pods"},
		"two of y":                       {text.Count(2, "policy"), "2 policies"},
		"two of ay":                      {text.Count(2, "delay"), "2 delays"},
		"two of x":                       {text.Count(2, "index"), "2 indexes"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, not %q", name, c.got, c.want)
		}
	}
}

func TestNeverTooLongNorBroken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, most := rapid.String().Draw(t, "s"), rapid.IntRange(8, 40).Draw(t, "most")
		for name, got := range map[string]string{
			"Truncate": text.Truncate(s, most), "Prefix": text.Prefix(s, most), "Tail": text.Tail(s, most),
			"TruncateMiddle": text.TruncateMiddle(s, 2, most, " ... "),
		} {
			if len(got) > most || !utf8.ValidString(got) || len(s) <= most && got != s {
				t.Fatalf("%s(%q, %d) = %q", name, s, most, got)
			}
		}
		if got := text.Truncate(s, most); !strings.HasPrefix(s, strings.TrimSuffix(got, "...")) && len(s) > most {
			t.Fatalf("%q is no beginning of %q", got, s)
		}
	})
}
