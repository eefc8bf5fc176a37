package service

import (
	"runtime"
	"testing"
	"time"
)

// The agent releases memory once when work is over, and again only when it has grown. It never
// does while it works.
func TestMemoryIsReleasedWhenIdle(t *testing.T) {
	const mib, busy = 1 << 20, idleShare + time.Second
	m := &memoryWatch{}
	var cpu time.Duration
	for i, p := range []struct {
		took     time.Duration
		resident int64
		want     bool
	}{
		{busy, 40 * mib, false},      // starts
		{0, 40 * mib, true},          // is idle for the first time
		{0, 24 * mib, false},         // what it needs to be idle
		{idleShare, 25 * mib, false}, // polls
		{busy, 60 * mib, false},      // works
		{busy, 70 * mib, false},
		{0, 50 * mib, true},
		{busy, 70 * mib, false}, // works again before the next look
		{0, 26 * mib, false},    // a new floor
		{0, 26*mib + grown, true},
	} {
		cpu += p.took
		if got := m.releases(processUsage{cpu: cpu, resident: p.resident}); got != p.want {
			t.Errorf("period %d: %v", i, got)
		}
	}
}

// The kernel gets memory that is not used any more, and the program still runs.
func TestReleaseMemory(t *testing.T) {
	const size = 64 << 20
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	before, err := usage()
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(b)
	if err := releaseMemory(); err != nil {
		t.Fatal(err)
	}
	after, err := usage()
	if err != nil {
		t.Fatal(err)
	}
	if after.resident > before.resident-size/2 {
		t.Errorf("%d bytes of %d are still resident", after.resident, before.resident)
	}
	if maps, err := programPages(); err != nil || len(maps) == 0 {
		t.Errorf("no pages of the program: %v %v", maps, err)
	}
}
