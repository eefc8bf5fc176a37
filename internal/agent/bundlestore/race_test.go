//go:build race

package bundlestore

func init() { raceDetector = true }
