package componentversion

import (
	"fmt"
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
		{a: "v1.35.4+rke2r2", b: "v1.35.4+rke2r2.1", less: true},
		{a: "v1.35.4", b: "v1.35.4+k3s1", less: true},
		{a: "v1.35.4+k3s1", b: "v1.35.4+rke2r1"},
		{a: "v1.35.4+k3s1", b: "v1.36.0+rke2r1", less: true},
		{a: "v1.35.4+1", b: "v1.35.4+k3s1"},
		{a: "v1.35.4+k3s01", b: "v1.35.4+k3s1"}, // other text, no order
		{a: "no version", b: "no version", same: true},
		{a: "no version", b: "v1.35.4"},
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
		build := rapid.SampledFrom([]string{"", "+k3s", "+rke2r", "+k3s1."}).Draw(t, "build")
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
