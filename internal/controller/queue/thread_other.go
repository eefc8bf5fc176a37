//go:build !linux

package queue

import "time"

// threadTime is not known here: the controller runs on Linux.
func threadTime() time.Duration { return 0 }
