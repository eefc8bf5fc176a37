package kernel

import (
	"os"
	"testing"
)

// children are what the test binary does when a test starts it again, by the environment
// variable that asks for it.
var children = map[string]func(value string){}

func TestMain(m *testing.M) {
	for name, run := range children {
		if value := os.Getenv(name); value != "" {
			run(value)
			return
		}
	}
	os.Exit(m.Run())
}
