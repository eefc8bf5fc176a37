package componentversion

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
		less bool // a is older than b
		more bool // b is older than a
	}{
		{a: "v1.35.4", b: "1.35.4", same: true},
		{a: "v1.35.4", b: "v1.35.10", less: true},
		{a: "v1.36.0-rc.1", b: "v1.36.0", less: true},
		{a: "v1.35.4+k3s1", b: "v1.35.4+k3s1", same: true},
		{a: "v1.35.4+k3s1", b: "1.35.4+k3s1", same: true},
		{a: "v1.35.4+k3s1", b: "v1.35.4+k3s2", less: true},
		{a: "v1.35.4+k3s9", b: "v1.35.4+k3s10", less: true},
		{a: "v1.35.4+k3s2", b: "v1.35.5+k3s1", less: true},
		{a: "v1.35.4+rke2r1", b: "v1.35.4+rke2r2", less: true},
		{a: "v1.35.4+k0s.0", b: "v1.35.4+k0s.1", less: true},
		{a: "v1.35.4+k0s.9", b: "v1.35.4+k0s.10", less: true},
		{a: "v1.35.4+k0s", b: "v1.35.4+k0s.1"}, // its kubelet does not say the number
		{a: "v1.35.4-rc.1+k3s2", b: "v1.35.4+k3s1", less: true},
		{a: "v1.35.4+rke2r2", b: "v1.35.4+rke2r2.1"}, // not a form of RKE2
		{a: "v1.35.4", b: "v1.35.4+k3s1"},            // another distribution
		{a: "v1.35.4", b: "v1.35.5+k3s1", less: true},
		{a: "v1.35.4+vendor1", b: "v1.35.4+vendor2"}, // unknown builds
		{a: "v1.35.4", b: "v1.35.4+vendor2"},
		{a: "v1.35.4-eks-0a1b2c3", b: "v1.35.4"},
		{a: "v1.35.4-eks-0a1b2c3", b: "v1.35.4-eks-1a1b2c3"}, // hashes
		{a: "v1.35.4-eks-0a1b2c3", b: "v1.35.5-eks-1a1b2c3", less: true},
		{a: "v1.35.4+k3s1", b: "v1.35.4+rke2r1"},
		{a: "v1.35.4+k3s1", b: "v1.36.0+rke2r1", less: true},
		{a: "v1.35.4+1", b: "v1.35.4+k3s1"},
		{a: "v1.35.4+k3s01", b: "v1.35.4+k3s1"}, // other text, no order
		{a: "no version", b: "no version", same: true},
		{a: "no version", b: "v1.35.4"},
		{a: "no version", b: "nor this"},
	} {
		if got := SameKubernetes(c.a, c.b); got != c.same {
			t.Errorf("Same(%s, %s) = %t", c.a, c.b, got)
		}
		if got := LessKubernetes(c.a, c.b); got != c.less {
			t.Errorf("Less(%s, %s) = %t", c.a, c.b, got)
		}
		if got := LessKubernetes(c.b, c.a); got != c.more {
			t.Errorf("Less(%s, %s) = %t", c.b, c.a, got)
		}
	}
}

func TestOrderIsStrict(t *testing.T) {
	t.Parallel()
	version := rapid.Custom(func(t *rapid.T) string {
		v := fmt.Sprintf("%s1.%d.%d", rapid.SampledFrom([]string{"v", ""}).Draw(t, "v"), rapid.IntRange(34, 36).Draw(t, "minor"), rapid.IntRange(0, 11).Draw(t, "patch"))
		v += rapid.SampledFrom([]string{"", "", "-rc.1"}).Draw(t, "pre")
		build := rapid.SampledFrom([]string{"", "+k3s", "+rke2r", "+k0s.", "+vendor", "+k3s0", "-eks-0"}).Draw(t, "build")
		if build != "" {
			build += fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "n"))
		}
		return v + build
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		if LessKubernetes(a, a) {
			t.Fatalf("%s is older than itself", a)
		}
		if LessKubernetes(a, b) && (LessKubernetes(b, a) || SameKubernetes(a, b)) {
			t.Fatalf("%s is older than %s, and not", a, b)
		}
		if LessKubernetes(a, b) && LessKubernetes(b, c) && !LessKubernetes(a, c) {
			t.Fatalf("%s < %s < %s, but not %s < %s", a, b, c, a, c)
		}
		if SameKubernetes(a, b) && LessKubernetes(a, c) != LessKubernetes(b, c) {
			t.Fatalf("%s and %s are the same, and %s tells them apart", a, b, c)
		}
	})
}

// Within a distribution every two versions are ordered: one is older, or they are the same
// but for a v in front.
func TestOrderWithinADistributionIsTotal(t *testing.T) {
	t.Parallel()
	for _, build := range []string{"", "+k3s", "+rke2r", "+k0s."} {
		version := rapid.Custom(func(t *rapid.T) string {
			v := fmt.Sprintf("1.%d.%d%s", rapid.IntRange(35, 36).Draw(t, "minor"), rapid.IntRange(0, 2).Draw(t, "patch"), rapid.SampledFrom([]string{"", "-rc.1", "-rc.2"}).Draw(t, "pre"))
			if build != "" {
				v += build + fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "n"))
			}
			return rapid.SampledFrom([]string{"v", ""}).Draw(t, "v") + v
		})
		rapid.Check(t, func(t *rapid.T) {
			a, b := version.Draw(t, "a"), version.Draw(t, "b")
			one := 0
			for _, yes := range []bool{LessKubernetes(a, b), LessKubernetes(b, a), SameKubernetes(a, b)} {
				if yes {
					one++
				}
			}
			if one != 1 {
				t.Fatalf("%s and %s: %d of older, newer and the same", a, b, one)
			}
			if same := strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v"); SameKubernetes(a, b) != same {
				t.Fatalf("%s and %s are the same: %t", a, b, !same)
			}
		})
	}
}

func TestOrderOfBundles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1.2.3", "1.2.4", true}, {"1.2.3+build2", "1.2.3+build10", true}, {"1.2.3", "1.2.3+1", true}, {"1.2.3+k3s1", "1.2.3+k3s1.1", true},
		{"1.2.3+a1", "1.2.3+b2", false}, {"1.2.3+1", "1.2.3+1", false}, {"1.2.4", "1.2.3", false}, {"x", "1.2.3", false},
	} {
		if LessBundle(c.a, c.b) != c.want || c.want && LessBundle(c.b, c.a) {
			t.Errorf("%s is older than %s: not %t", c.a, c.b, c.want)
		}
	}
}

// The fast comparison of plain versions agrees with semantic versioning.
func TestPlainVersions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`v?[0-9]{1,3}(\.[0-9]{1,3}){0,3}(-rc\.1)?(\+k)?`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		x, y, ok := plainPair(a, b)
		if !ok {
			return
		}
		va, vb := ParseKubernetes(a), ParseKubernetes(b)
		if va == nil || vb == nil {
			t.Fatalf("%s or %s is no version, and was compared", a, b)
		}
		if (x == y) != va.Equal(vb) || LessKubernetes(a, b) != va.LessThan(vb) {
			t.Fatalf("%s and %s", a, b)
		}
	})
	for _, v := range []string{"v1.36.3", "1.36.3"} {
		if _, ok := PlainKubernetes(v); !ok {
			t.Errorf("%s is not compared the short way", v)
		}
	}
}
