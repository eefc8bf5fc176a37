package crio

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// After a kill the runtime's file names a port that no process without rights can take.
func TestNoOtherProcessBindsTheMirrorsPort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it takes a port of root's")
	}
	blobs := blobMap{}
	m, err := newMirror([]cri.Target{makeImage(blobs, "reg.test/a:1", "one", true)}, blobs)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = m.server.Close() // as a kill does
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if err := bindWithoutRights(number); !errors.Is(err, unix.EACCES) {
		t.Errorf("a process without rights takes port %s: %v", port, err)
	}
}

// bindWithoutRights binds a loopback port from a thread without capabilities.
func bindWithoutRights(port int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has dropped its rights
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			done <- err
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			done <- err
			return
		}
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		done <- errors.Join(err, unix.Close(fd))
	}()
	return <-done
}

func TestReserved(t *testing.T) {
	for text, want := range map[string]int{"1024": 512, "600": 88, "512": 0, "0": -512, "65535": 512, "": 512} {
		file := filepath.Join(t.TempDir(), "start")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := reserved(file); got != want {
			t.Errorf("%q: %d ports, want %d", text, got, want)
		}
	}
}
