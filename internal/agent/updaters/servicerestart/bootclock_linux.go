package servicerestart

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
