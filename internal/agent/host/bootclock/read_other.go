//go:build !linux

package bootclock

import (
	"errors"
	"time"
)

func sinceBoot() (time.Duration, error) { return 0, errors.ErrUnsupported }
