package simulate

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine on which a run was made.
type Machine struct {
	Cores  int    `json:"cores"`
	Memory int64  `json:"memoryBytes"`
	Load   string `json:"loadBefore"`
	After  string `json:"loadAfter"`
	// HugePages is the kernel's setting for transparent huge pages during the run: always,
	// madvise or never.
	HugePages string `json:"hugePages,omitempty"`
}

// hugePages is the kernel's setting: https://docs.kernel.org/admin-guide/mm/transhuge.html
const hugePages = "/sys/kernel/mm/transparent_hugepage/enabled"

// useHugePages sets always, and returns what sets it back. Without huge pages the large heaps of
// the servers cost a sixth of their processor time on a virtual machine.
func useHugePages() (restore func(), err error) {
	before := hugePagesSetting()
	if err := os.WriteFile(hugePages, []byte("always"), 0); err != nil {
		return nil, fmt.Errorf("set transparent huge pages to always: %w; run as root, or leave out --huge-pages", err)
	}
	return func() { _ = os.WriteFile(hugePages, []byte(before), 0) }, nil
}

// hugePagesSetting reads "always [madvise] never"; empty if the kernel has none.
func hugePagesSetting() string {
	text, _ := os.ReadFile(hugePages)
	_, rest, _ := strings.Cut(string(text), "[")
	setting, _, _ := strings.Cut(rest, "]")
	return setting
}

// ProcessMemory reads a size of /proc/PID/status, in bytes; 0 if there is none.
func ProcessMemory(pid int, field string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// ProcessCPU is the processor time of a process in seconds.
func ProcessCPU(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(text), ") ") // the name may hold spaces
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100 // USER_HZ is 100 on every Linux that Go knows
}

// ListChildren of this process by the name of their program.
func ListChildren(names ...string) map[string]int {
	out := map[string]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		name, rest, ok := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 2 || f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, n := range names {
			if strings.HasSuffix(name, "("+n) {
				out[n] = pid
			}
		}
	}
	return out
}

// DescribeMachine is the machine now.
func DescribeMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Load: LoadAverage(), HugePages: hugePagesSetting()}
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			m.Memory = n << 10
		}
	}
	return m
}

// LoadAverage is the load average of the machine, over one, five and fifteen minutes.
func LoadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}
