//go:build race

package agent

func init() { raceDetector = true }
