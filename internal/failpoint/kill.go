package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PausedSuffix is what a program that pauses appends to the name of its file.
const PausedSuffix = ".paused"

// pauseWord, after the point in the file, has the program pause there instead of dying.
const pauseWord = "pause"

// KillFrom has every failpoint read a file, and the process die at the one that it names: at
// the count-th pass since. The file is removed first, so that the next process goes on.
//
// With "name[:count] pause" the process renames the file to file.paused instead and waits at
// the point until that is gone: time to kill another program at exactly this line.
func KillFrom(file string) {
	var mu sync.Mutex
	passes := map[string]int{}
	OnHit(func(name string) {
		mu.Lock()
		b, err := os.ReadFile(file)
		spec, word, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
		if err != nil || !due(spec, name, passes) {
			mu.Unlock()
			return
		}
		if word == pauseWord {
			clear(passes)
			err := os.Rename(file, file+PausedSuffix)
			mu.Unlock()
			for err == nil {
				time.Sleep(10 * time.Millisecond)
				_, err = os.Lstat(file + PausedSuffix)
			}
			return
		}
		_ = os.Remove(file)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
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
