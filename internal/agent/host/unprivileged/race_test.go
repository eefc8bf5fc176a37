//go:build race

package unprivileged

func init() { raceDetector = true }
