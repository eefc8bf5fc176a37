//go:build race

package confined

func init() { raceDetector = true }
