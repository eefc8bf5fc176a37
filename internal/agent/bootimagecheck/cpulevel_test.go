package bootimagecheck_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
)

const (
	level1 = "fpu cx8 cmov mmx fxsr sse sse2 syscall lm"
	level2 = level1 + " pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
	level3 = level2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
	level4 = level3 + " avx512f avx512dq avx512cd avx512bw avx512vl"
)

// Trap 18: a virtual machine with a masked processor fails in the first boot of a
// newer operating system.
func TestCPULevel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cpus []string
		arch string
		want string
	}{
		"the first level":                         {[]string{level1}, "amd64", "x86-64-v1"},
		"the second":                              {[]string{level2, level2}, "amd64", "x86-64-v2"},
		"the third":                               {[]string{level3}, "amd64", "x86-64-v3"},
		"the fourth":                              {[]string{level4}, "amd64", "x86-64-v4"},
		"one flag of the third is masked":         {[]string{strings.Replace(level3, " movbe", "", 1)}, "amd64", "x86-64-v2"},
		"a flag of the fourth without the third":  {[]string{strings.Replace(level4, " avx2", "", 1)}, "amd64", "x86-64-v2"},
		"the least of several processors":         {[]string{level4, level2, level4}, "amd64", "x86-64-v2"},
		"another architecture is its own":         {nil, "arm64", "arm64"},
		"less than the first level is not known":  {[]string{"fpu"}, "amd64", ""},
		"a file without flags is not a statement": {[]string{}, "amd64", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			var text strings.Builder
			for _, c := range tc.cpus {
				text.WriteString("processor\t: 0\nvmx flags\t: " + level4 + "\nflags\t\t: " + c + "\nbugs\t\t: x\n\n")
			}
			if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "proc/cpuinfo"), []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := bootimagecheck.CPULevel(root, tc.arch); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if got := bootimagecheck.CPULevel(t.TempDir(), "amd64"); got != "" {
		t.Errorf("without a file: %q", got)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		if got := bootimagecheck.CPULevel("/", runtime.GOARCH); !strings.HasPrefix(got, bootimagecheck.CPULevelPrefix) {
			t.Errorf("this machine: %q", got)
		}
	}
}
