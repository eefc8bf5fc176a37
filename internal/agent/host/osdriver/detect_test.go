package osdriver

import (
	"testing"
)

const (
	fromImage = `{"kind":"BootcHost","spec":{},"status":{"booted":{"image":{"image":{"image":"q","transport":"registry"},"imageDigest":"sha256:a"},"incompatible":false}}}`
	layered   = `{"kind":"BootcHost","spec":{},"status":{"booted":{"image":null,"incompatible":true}}}`
	plain     = `{"kind":"BootcHost","spec":{},"status":{"booted":{"image":null,"incompatible":false}}}`
	silent    = `{"kind":"BootcHost","spec":{},"status":{"staged":null,"booted":null,"rollback":null,"type":null}}`
)

// The order of 2.3 of the specification.
func TestFind(t *testing.T) {
	knows, old := Answer{Out: "rpm-ostree:\n Features:\n  - container\n"}, Answer{Out: "rpm-ostree:\n Features:\n  - rust\n"}
	bootc := func(text string) Answer { return Answer{Out: text} }
	for name, c := range map[string]struct {
		deployed bool
		programs map[string]Answer
		want     string // empty: an error
	}{
		"bootc that was booted from an image":                 {true, map[string]Answer{"bootc status": bootc(fromImage), "rpm-ostree --version": knows}, Bootc},
		"bootc with its own storage, without libostree":       {false, map[string]Answer{"bootc status": bootc(fromImage)}, Bootc},
		"packages were layered: rpm-ostree keeps them":        {true, map[string]Answer{"bootc status": bootc(layered), "rpm-ostree --version": knows}, RPMOSTree},
		"not from an image yet: the first rebase makes it so": {true, map[string]Answer{"bootc status": bootc(plain), "rpm-ostree --version": knows}, RPMOSTree},
		"rpm-ostree alone":                             {true, map[string]Answer{"rpm-ostree --version": knows}, RPMOSTree},
		"an rpm-ostree that knows no containers":       {true, map[string]Answer{"rpm-ostree --version": old}, Package},
		"libostree alone":                              {true, map[string]Answer{"ostree --version": {}}, OSTree},
		"bootc says nothing and nothing else is there": {true, map[string]Answer{"bootc status": bootc(silent)}, ""},
		"bootc says nothing on a host of packages":     {false, map[string]Answer{"bootc status": bootc(silent)}, Package},
		"bootc fails: not known":                       {true, map[string]Answer{"bootc status": {Code: 1, Out: "boom"}, "ostree --version": {}}, ""},
		"systemd-sysext":                               {false, map[string]Answer{"systemd-sysext status": {Out: "[]"}}, Sysext},
		"systemd-sysext fails: not known":              {false, map[string]Answer{"systemd-sysext status": {Code: 1}}, ""},
		"packages":                                     {false, nil, Package},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			if c.deployed {
				files["run/ostree-booted"] = ""
			}
			s := &Script{Answers: c.programs}
			d, err := Detect(t.Context(), s.Host(t, files), Openers{})
			if c.want == "" {
				if err == nil {
					t.Fatalf("taken for %s", d.Name())
				}
				return
			}
			if err != nil || d.Name() != c.want {
				t.Fatal(d, err)
			}
			if d.Name() != Package {
				return
			}
			st, err := d.Status(t.Context())
			if err != nil || st.Unsupported == "" || d.Stage(t.Context(), Target{}) == nil {
				t.Fatalf("%+v %v", st, err)
			}
		})
	}
}
