//go:build !linux

package servicerestart

import (
	"errors"
	"time"
)

func sinceBoot() (time.Duration, error) { return 0, errors.ErrUnsupported }
