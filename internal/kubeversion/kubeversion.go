// Package kubeversion compares Kubernetes versions, with the build that follows the
// plus sign.
//
// Promise: distributions publish another build of the same Kubernetes release as
// v1.35.4+k3s2 after v1.35.4+k3s1, or v1.35.4+rke2r2 after +rke2r1, often for a
// security fix. By semantic versioning alone the two are equal (section 10 of
// semver.org ignores build metadata); here the second is newer. Builds of two
// distributions have no order.
//
// Inputs: two versions, with or without a leading v. Callers: packages that compare the
// versions of nodes.
package kubeversion

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Same reports whether two versions are equal, build included; v1.2.3 equals 1.2.3.
// Two that cannot be read are the same if their text is.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	if x, y, ok := plainPair(a, b); ok {
		return x == y
	}
	va, vb := Parse(a), Parse(b)
	if va == nil || vb == nil {
		return a == b
	}
	return va.Equal(vb) && va.Metadata() == vb.Metadata()
}

// Less reports whether a is older than b; false if either cannot be read, and for two
// builds of one release that have no order.
func Less(a, b string) bool {
	if x, y, ok := plainPair(a, b); ok {
		return slices.Compare(x[:], y[:]) < 0
	}
	va, vb := Parse(a), Parse(b)
	if va == nil || vb == nil {
		return false
	}
	if c := va.Compare(vb); c != 0 {
		return c < 0
	}
	return lessBuild(va.Metadata(), vb.Metadata())
}

// Parse reads a version, nil if it is none.
func Parse(v string) *semver.Version {
	p, err := semver.NewVersion(v)
	if err != nil {
		return nil
	}
	return p
}

// lessBuild compares what follows the plus sign as runs of digits and of other
// characters: k3s2 is older than k3s10. No build is older than any, a build older than
// one that goes on (k3s1, k3s1.1). Other names (k3s1, rke2r1) have no order.
func lessBuild(a, b string) bool {
	for a != "" && b != "" {
		x, restA, numberA := run(a)
		y, restB, numberB := run(b)
		switch {
		case numberA != numberB, !numberA && x != y:
			return false
		case x != y:
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) < 0
		}
		a, b = restA, restB
	}
	return a == "" && b != ""
}

// run cuts the first run of digits, without leading zeros, or of other characters off.
func run(s string) (first, rest string, number bool) {
	number = digit(s[0])
	end := 1
	for end < len(s) && digit(s[end]) == number {
		end++
	}
	if first = s[:end]; number {
		first = strings.TrimLeft(first, "0")
	}
	return first, s[end:], number
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// plainPair reads two versions of the form v1.2.3, as almost all are: thirty
// thousand nodes are compared with the target at every plan.
func plainPair(a, b string) (x, y [3]int, ok bool) {
	x, okA := Plain(a)
	y, okB := Plain(b)
	return x, y, okA && okB
}

// Plain reads a version of the form v1.2.3 or 1.2.3; false for any other.
func Plain(v string) (out [3]int, ok bool) {
	v = strings.TrimPrefix(v, "v")
	for part := range out {
		text, rest, dot := strings.Cut(v, ".")
		n, ok := digits(text)
		if !ok || dot != (part < 2) {
			return out, false
		}
		out[part], v = n, rest
	}
	return out, true
}

// digits without a leading zero.
func digits(s string) (n int, ok bool) {
	if s == "" || len(s) > 9 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
