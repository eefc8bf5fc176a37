package componentversion_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Versions of several schemes; other texts are refused.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text         string
		scheme       componentversion.OSScheme
		major, minor int
		built        string
	}{
		"a Kubernetes version":                    {"v1.36.3", componentversion.SemVer, 1, 36, ""},
		"a minor alone":                           {"1.36", componentversion.SemVer, 1, 36, ""},
		"a release before its release":            {"4.19.0-rc.1", componentversion.SemVer, 4, 19, ""},
		"RHEL CoreOS, new":                        {"9.6.20251023-0", componentversion.RHCOS, 9, 6, "2025-10-23"},
		"RHEL CoreOS, new, with the minute":       {"9.8.202603011200-1", componentversion.RHCOS, 9, 8, "2026-03-01"},
		"RHEL CoreOS as image names spell it":     {"9-6-20251023-0", componentversion.RHCOS, 9, 6, "2025-10-23"},
		"RHEL CoreOS, legacy, RHEL 8.4":           {"48.84.202208021106-0", componentversion.RHCOSLegacy, 8, 4, "2022-08-02"},
		"RHEL CoreOS, legacy, RHEL 8.10":          {"416.810.202405021106-0", componentversion.RHCOSLegacy, 8, 10, "2024-05-02"},
		"RHEL CoreOS, marketplace, one digit":     {"419.6.20250523", componentversion.RHCOSMarket, 9, 6, "2025-05-23"},
		"RHEL CoreOS, marketplace, two digits":    {"418.94.20250122", componentversion.RHCOSMarket, 9, 4, "2025-01-22"},
		"RHEL CoreOS, legacy, three digits":       {"418.94.202501221327-0", componentversion.RHCOSLegacy, 9, 4, "2025-01-22"},
		"Fedora CoreOS":                           {"38.20230918.3.0", componentversion.FCOS, 38, 0, "2023-09-18"},
		"Flatcar":                                 {"3815.2.0", componentversion.Flatcar, 3815, 2, ""},
		"Amazon Linux":                            {"2023.6.20241010", componentversion.Amazon, 2023, 6, "2024-10-10"},
		"Ubuntu without a serial":                 {"24.04", componentversion.Ubuntu, 24, 4, ""},
		"Ubuntu with a serial":                    {"24.04.20250115.1", componentversion.Ubuntu, 24, 4, "2025-01-15"},
		"a build date":                            {"20250115", componentversion.Date, 0, 0, "2025-01-15"},
		"nothing":                                 {"", "", 0, 0, ""},
		"a word":                                  {"latest", "", 0, 0, ""},
		"an AMI":                                  {"ami-0abcdef", "", 0, 0, ""},
		"a month that is none":                    {"9.6.20251323-0", "", 0, 0, ""},
		"a legacy version of another product":     {"918.94.202501221327-0", "", 0, 0, ""},
		"a number alone":                          {"36", "", 0, 0, ""},
		"a version with something behind it":      {"1.36.3 or later", "", 0, 0, ""},
		"a text that is too long to be a version": {"1.36." + strings.Repeat("1", 500), "", 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := componentversion.ParseOS(tc.text)
			if (err == nil) != (tc.scheme != "") {
				t.Fatalf("%q: %v %v", tc.text, v, err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "no known scheme") {
					t.Error(err)
				}
				return
			}
			built := ""
			if !v.Built.IsZero() {
				built = v.Built.Format("2006-01-02")
			}
			if v.Scheme != tc.scheme || v.Major != tc.major || v.Minor != tc.minor || built != tc.built {
				t.Errorf("%q is %s %d.%d of %q", tc.text, v.Scheme, v.Major, v.Minor, built)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b string
		want int // 2: cannot be compared
	}{
		"a patch":                                {"1.36.3", "1.36.4", -1},
		"with and without v":                     {"v1.36.3", "1.36.3", 0},
		"a candidate is older than its release":  {"4.19.0-rc.1", "4.19.0", -1},
		"marketplace and new RHEL CoreOS":        {"419.6.20250523", "9.6.20251023-0", -1},
		"two of the marketplace":                 {"419.6.20250523", "418.94.20250122", 1},
		"legacy and new RHEL CoreOS":             {"418.94.202501221327-0", "9.6.20251023-0", -1},
		"RHEL 8.10 is newer than 8.4":            {"416.810.202405021106-0", "48.84.202208021106-0", 1},
		"the same RHEL minor, a later build":     {"9.6.20251023-0", "9.6.20251023-1", -1},
		"9.10 is newer than 9.8":                 {"9.10.20270101-0", "9.8.20260101-0", 1},
		"Fedora CoreOS by its major first":       {"38.20230918.3.0", "37.20231231.3.0", 1},
		"Flatcar by number":                      {"3815.2.0", "3760.2.0", 1},
		"Ubuntu and its serial":                  {"24.04", "24.04.20250115", -1},
		"dates":                                  {"20250115", "20250116", -1},
		"a release and an OS build":              {"4.19.0", "9.6.20251023-0", 2},
		"Fedora and RHEL":                        {"38.20230918.3.0", "9.6.20251023-0", 2},
		"Flatcar and Kubernetes look alike only": {"3815.2.0", "1.36.3", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, errA := componentversion.ParseOS(tc.a)
			b, errB := componentversion.ParseOS(tc.b)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			got, err := a.Compare(b)
			if err != nil {
				got = 2
			}
			if got != tc.want {
				t.Errorf("%s to %s: %d (%v), want %d", tc.a, tc.b, got, err, tc.want)
			}
		})
	}
	if _, err := (componentversion.OSVersion{}).Compare(componentversion.OSVersion{}); err == nil {
		t.Error("versions that were never read are the same")
	}
}

func TestLegacyHoldsItsRelease(t *testing.T) {
	t.Parallel()
	v, err := componentversion.ParseOS("410.84.202208021106-0")
	if err != nil {
		t.Fatal(err)
	}
	r, ok := v.Release()
	if !ok || r.Text != "4.10.0" {
		t.Errorf("%v %v, want 4.10.0", r, ok)
	}
	if n, _ := componentversion.ParseOS("9.6.20251023-0"); n.MajorMinor() != "9.6" {
		t.Error(n.MajorMinor())
	} else if _, ok := n.Release(); ok {
		t.Error("the new scheme holds no release")
	}
}

// The order is total: a<b and b<c make a<c, and Compare(a,b) is -Compare(b,a).
func TestCompareIsAnOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var vs []componentversion.OSVersion
		for _, n := range []string{"a", "b", "c"} {
			text := rapid.SampledFrom([]string{"9.%d.2025102%d-%d", "4%d.9%d.20250122132%d-0", "3%d.2023091%d.%d.0", "1.%d.%d-rc.%d"}).Draw(rt, n)
			for strings.Contains(text, "%d") {
				text = strings.Replace(text, "%d", string(rune('1'+rapid.IntRange(0, 8).Draw(rt, n))), 1)
			}
			v, err := componentversion.ParseOS(text)
			if err != nil {
				rt.Fatal(err)
			}
			vs = append(vs, v)
		}
		ab, err1 := vs[0].Compare(vs[1])
		ba, err2 := vs[1].Compare(vs[0])
		if (err1 == nil) != (err2 == nil) || ab != -ba {
			rt.Fatalf("%v %v: %d and %d", vs[0], vs[1], ab, ba)
		}
		bc, err3 := vs[1].Compare(vs[2])
		if ac, err := vs[0].Compare(vs[2]); err1 == nil && err3 == nil && ab <= 0 && bc <= 0 && (err != nil || ac > 0) {
			rt.Fatalf("%v <= %v <= %v, but %d %v", vs[0], vs[1], vs[2], ac, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"v1.36.3", "9.6.20251023-0", "418.94.202501221327-0", "38.20230918.3.0", "2023.6.20241010", "24.04.20250115", "20250115", "1.2.3-rc.1+b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := componentversion.ParseOS(s)
		if err != nil {
			return
		}
		if c, err := v.Compare(v); err != nil || c != 0 {
			t.Errorf("%q is not itself: %d %v", s, c, err)
		}
		if v.Scheme == "" || v.Major < 0 || v.Minor < 0 {
			t.Errorf("%q: %+v", s, v)
		}
	})
}

func TestOnlyIgnition3(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"9.6.20251023-0": true, "41.20250105.3.0": true, "418.94.202501221327-0": true, "418.94.20250122": true, "46.82.202012051820-0": true,
		"45.82.202007141718-0": false, "3815.2.0": false, "24.04.20250115": false} {
		v, err := componentversion.ParseOS(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.OnlyIgnition3(); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
