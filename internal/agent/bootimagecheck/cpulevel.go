package bootimagecheck

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cpuLevels of x86-64 and the flags that each adds, as /proc/cpuinfo names them.
// abm is LZCNT, pni is SSE3.
var cpuLevels = [][]string{
	{"cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"},
	{"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
	{"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
	{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}

// CPULevelPrefix is the prefix of the names of x86-64's levels.
const CPULevelPrefix = "x86-64-v"

// CPULevel reads the CPU level of the machine below root.
func CPULevel(root, arch string) string {
	if arch != "amd64" {
		return arch
	}
	f, err := os.Open(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	least, seen := len(cpuLevels), ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, flags, ok := strings.Cut(lines.Text(), ":")
		if !ok || strings.TrimSpace(name) != "flags" || flags == seen {
			continue
		}
		seen, least = flags, min(least, levelOfFlags(flags))
	}
	if lines.Err() != nil || seen == "" || least == 0 {
		return ""
	}
	return CPULevelPrefix + strconv.Itoa(least)
}

func levelOfFlags(flags string) int {
	have := strings.Fields(flags)
	for i, needed := range cpuLevels {
		if slices.ContainsFunc(needed, func(f string) bool { return !slices.Contains(have, f) }) {
			return i
		}
	}
	return len(cpuLevels)
}
