package cloud

import "testing"

func TestFamily(t *testing.T) {
	for version, want := range map[string]string{"9.6.20251023-0": "9.6.*", "41.20250105.3.0": "41.*.3.*", "412.86.202301311551-0": "412.86.*", "3815.2.0": "3815.2.*"} {
		if got := Family(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

func TestNewer(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"9.6.20251023-0", "9.6.20250101-5", true}, {"419.6.9", "419.6.10", false}, {"419.6.10", "419.6.9", true}, {"9.6.1", "9.6.1", false}, {"9.6.1.1", "9.6.1", true}} {
		if got := Newer(tc.a, tc.b); got != tc.want {
			t.Errorf("%s above %s: %v", tc.a, tc.b, got)
		}
	}
}
