package peertransfer

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// The process that has a port is named, for any address it listens on.
func TestHolder(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // no IPv6 here
			continue
		}
		at := l.Addr().(*net.TCPAddr).Port
		if got := FindPortHolder("/proc", at); !strings.Contains(got, fmt.Sprintf("(process %d", os.Getpid())) || !strings.HasPrefix(got, "peertransfer") {
			t.Errorf("%s: %q", address, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := FindPortHolder("/proc", at); got != "" {
			t.Errorf("closed, and held by %q", got)
		}
	}
}
