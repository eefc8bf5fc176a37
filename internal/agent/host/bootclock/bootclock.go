package bootclock

import (
	"os"
	"strings"
	"time"
)

// Stamp is a moment of a boot; zero is none.
type Stamp struct {
	Boot string        `json:"boot"`
	At   time.Duration `json:"at"`
}

// IsZero reports whether s is no moment.
func (s Stamp) IsZero() bool { return s == Stamp{} }

// At is the moment t, which this process has read from its clock: its monotonic reading
// counts.
func At(t time.Time) (Stamp, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Stamp{}, err
	}
	now, err := sinceBoot()
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{strings.TrimSpace(string(boot)), now - time.Since(t)}, nil
}

// Since is the time from an earlier moment to s. ok is false if that was in another boot.
func (s Stamp) Since(earlier Stamp) (d time.Duration, ok bool) {
	return s.At - earlier.At, s.Boot == earlier.Boot && !earlier.IsZero()
}
