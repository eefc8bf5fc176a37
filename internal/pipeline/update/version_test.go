package update

import (
	"testing"

	"pgregory.net/rapid"
)

// The short way to compare versions says what the long way says.
func TestPlainVersionsCompareAsAllDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`v?[0-9]{1,3}(\.[0-9]{1,3}){0,3}(-rc\.1)?(\+k)?`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		x, y, ok := plainPair(a, b)
		va, vb := parse(a), parse(b)
		if !ok {
			return
		}
		if va == nil || vb == nil {
			t.Fatalf("%s or %s is no version, and was compared", a, b)
		}
		if (x == y) != va.Equal(vb) || less(a, b) != va.LessThan(vb) || minorsBetween(a, b) != minorsBetween(b, a) {
			t.Fatalf("%s and %s", a, b)
		}
		if va.Major() == vb.Major() && minorsBetween(a, b) != max(int(va.Minor())-int(vb.Minor()), int(vb.Minor())-int(va.Minor())) {
			t.Fatalf("minors between %s and %s", a, b)
		}
	})
	for _, v := range []string{"v1.36.3", "1.36.3"} {
		if _, ok := plain(v); !ok {
			t.Errorf("%s is not compared the short way", v)
		}
	}
}
