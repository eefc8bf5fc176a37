package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// KillFrom has every failpoint read a file, and the process die at the one that it names: at
// the count-th pass since. The file is removed first, so that the next process goes on.
func KillFrom(file string) {
	var mu sync.Mutex
	passes := map[string]int{}
	OnHit(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(file)
		if err != nil || !due(strings.TrimSpace(string(b)), name, passes) {
			return
		}
		_ = os.Remove(file)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing more may happen
	})
}

// due counts a pass of name and reports whether spec wants it to be the last.
func due(spec, name string, passes map[string]int) bool {
	want, n, hasCount := strings.Cut(spec, ":")
	if want != name {
		return false
	}
	count := 1
	if hasCount {
		if c, err := strconv.Atoi(n); err == nil {
			count = c
		}
	}
	passes[name]++
	return passes[name] >= count
}
