package bundlewriter

import "os"

// sysfsPath is "": Windows has no sysfs.
func sysfsPath(os.FileInfo) string { return "" }

// usedBy is "": the system refuses to open a volume that is in use.
func usedBy(os.FileInfo) string { return "" }
