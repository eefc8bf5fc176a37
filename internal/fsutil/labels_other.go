//go:build !linux

package fsutil

import "os"

// labelOpen: only Linux has SELinux.
func labelOpen(*os.File, string) error { return nil }

// LabelAs does nothing.
func LabelAs(_, _, _ string) error { return nil }
