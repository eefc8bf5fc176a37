package cri

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// A runtime that takes connections and never answers (stopped, or its disk hangs)
// must not hold up whoever asks for ever.
func TestARuntimeThatHangsIsAnError(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.limit = 200 * time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := c.Images(t.Context())
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Fatal("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}
