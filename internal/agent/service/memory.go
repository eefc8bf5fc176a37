package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// gcPercent keeps the heap close to what lives in it: the agent makes little garbage per
	// byte that it moves, and a node has other uses for memory.
	gcPercent = 50
	// memoryPeriod is how often the agent looks whether it is idle.
	memoryPeriod = time.Minute
	// idleShare is how many CPU seconds of such a period an idle agent takes at most.
	idleShare = memoryPeriod / 40
	// grown is by how many bytes the agent must be larger than after the last release.
	grown = 4 << 20
)

// keepSmall makes the garbage collector frugal, and returns memory to the kernel whenever
// the agent has become idle. An administrator's GOGC takes precedence.
func keepSmall(ctx context.Context, log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	m := &memoryWatch{}
	t := time.NewTicker(memoryPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now, err := usage()
		if err == nil && m.releases(now) {
			err = releaseMemory()
		}
		if err != nil {
			log.Warn("failed to return unused memory", "error", err)
		}
	}
}

// processUsage is what this process has taken: CPU time since its start, and its resident bytes.
type processUsage struct {
	cpu      time.Duration
	resident int64
}

// memoryWatch decides when to release memory.
type memoryWatch struct {
	last processUsage
	// floor is the resident memory one period after the last release, 0 if not known yet.
	floor    int64
	released bool
}

// releases is called once in a period. It is true if the agent was idle in the last period, and
// has grown since its memory was released.
func (m *memoryWatch) releases(now processUsage) bool {
	idle := now.cpu-m.last.cpu <= idleShare
	m.last = now
	if !idle {
		return false
	}
	if m.released {
		// What it needs to be idle is back in memory by now.
		m.floor, m.released = now.resident, false
	}
	if m.floor > 0 && now.resident < m.floor+grown {
		return false
	}
	m.released = true
	return true
}

func usage() (processUsage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return processUsage{}, fmt.Errorf("CPU time of this process: %w", err)
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return processUsage{}, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return processUsage{}, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return processUsage{cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()), resident: resident * int64(os.Getpagesize())}, nil
}

// releaseMemory gives the kernel the unused part of the heap, and the pages of the program that
// were read from its file. Of these, an idle agent reads again only what it uses: some half. The
// kernel has the memory then, for it removes the pages from its cache too.
func releaseMemory() error {
	debug.FreeOSMemory()
	maps, err := programPages()
	if err != nil {
		return err
	}
	for _, m := range maps {
		// By address: these pages are no Go memory.
		_, _, e := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_PAGEOUT)
		if e != 0 && !errors.Is(e, unix.EINVAL) { // a kernel before 5.4 does not know it
			return fmt.Errorf("release pages of the program: %w", e)
		}
	}
	return nil
}

type pages struct{ start, end uintptr }

// programPages are the parts of this process's memory that are its program's file, unchanged.
func programPages() ([]pages, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	var out []pages
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var p pages
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &p.start, &p.end, &mode); err != nil {
			return nil, fmt.Errorf("/proc/self/maps: %w", err)
		}
		// What may be written may have changed, and would have to be written first.
		if strings.HasSuffix(lines.Text(), " "+self) && !strings.Contains(mode, "w") {
			out = append(out, p)
		}
	}
	return out, lines.Err()
}
