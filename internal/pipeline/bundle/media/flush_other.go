//go:build !linux

package media

import "os"

// flush is a hint that only Linux takes.
func flush(*os.File, int64, int64) {}

// forget is a request that only Linux takes.
func forget(*os.File) error { return nil }
