package cloud

import (
	"slices"
	"strconv"
	"strings"
)

// dateDigits are how many digits a date in a version has at least.
const dateDigits = 8

// Family returns the pattern of versions of the same release line: the date and the last part are
// replaced. That is 9.6.* for 9.6.20251023-0, and 41.*.3.* for 41.20250105.3.0.
func Family(version string) string {
	parts := strings.Split(version, ".")
	for n, p := range parts {
		if len(p) >= dateDigits || n == len(parts)-1 {
			parts[n] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// Newer reports whether version a is above b, number by number.
func Newer(a, b string) bool {
	return slices.Compare(numbers(a), numbers(b)) > 0
}

// numbers of a version; other characters separate them.
func numbers(version string) []uint64 {
	var out []uint64
	for _, f := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.ParseUint(f, 10, 64) // the largest number, if it is larger
		out = append(out, n)
	}
	return out
}
