package servicerestart

import (
	"os"
	"strings"
	"time"
)

// BootStamp is a moment of a boot; the zero value is none.
type BootStamp struct {
	Boot string        `json:"boot"`
	At   time.Duration `json:"at"`
}

// IsZero reports whether s is no moment.
func (s BootStamp) IsZero() bool { return s == BootStamp{} }

// StampAt converts a moment that this process has read from its clock: the monotonic
// reading counts.
func StampAt(t time.Time) (BootStamp, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return BootStamp{}, err
	}
	now, err := sinceBoot()
	if err != nil {
		return BootStamp{}, err
	}
	return BootStamp{strings.TrimSpace(string(boot)), now - time.Since(t)}, nil
}

// Since is the time from an earlier moment to s. ok is false if that was in another boot.
func (s BootStamp) Since(earlier BootStamp) (d time.Duration, ok bool) {
	return s.At - earlier.At, s.Boot == earlier.Boot && !earlier.IsZero()
}
