package text

import (
	"fmt"
	"strings"
)

// mark stands where something was cut.
const mark = "..."

// Truncate returns s in at most most bytes; "..." ends a text that was cut.
func Truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Prefix(s, most-len(mark)) + mark
}

// Prefix returns the first bytes of s, at most most, without a mark.
func Prefix(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, most)], "")
}

// Tail returns the last bytes of s, at most most; "..." begins a text that was cut.
func Tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return mark + suffix(s, most-len(mark))
}

// TruncateMiddle returns s in at most most bytes: the first head of them, then between, then
// the end, because the cause stands last in a wrapped error and in a program's output.
func TruncateMiddle(s string, head, most int, between string) string {
	if len(s) <= most {
		return s
	}
	return Prefix(s, head) + between + suffix(s, most-head-len(between))
}

func suffix(s string, most int) string {
	return strings.ToValidUTF8(s[len(s)-max(0, most):], "")
}

// ShortDigest returns the algorithm and the first twelve digits of a digest; without an
// algorithm twelve digits.
func ShortDigest(digest string) string {
	most := strings.IndexByte(digest, ':') + 1 + 12
	return digest[:min(len(digest), most)]
}

// FirstOf returns the first most names, and how many more there are: "a, b and 3 more".
func FirstOf(names []string, most int, separator string) string {
	if len(names) <= most {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], separator), len(names)-most)
}

// Count returns a number with its noun: "1 pod", "2 pods", "3 policies".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, Plural(noun))
}

// Plural returns the regular plural of an English noun.
func Plural(noun string) string {
	for _, ending := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, ending) {
			return noun + "es"
		}
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return stem + "ies"
	}
	return noun + "s"
}
