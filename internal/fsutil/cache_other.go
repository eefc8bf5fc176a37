//go:build !linux

package fsutil

import "os"

// WriteOut is a hint that only Linux takes.
func WriteOut(*os.File, int64, int64) {}

// DropCache is a request that only Linux takes.
func DropCache(*os.File) error { return nil }
