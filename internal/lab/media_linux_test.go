package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab"
)

func TestAStickIsInOneNodeOnly(t *testing.T) {
	l := cluster(t)
	file := filepath.Join(t.TempDir(), "stick.img")
	content := bytes.Repeat([]byte("refit stick "), 1<<16)
	content = content[:len(content)/4096*4096]
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	events := listenEvents(t)
	ctx := timeLimit(t, patience)
	device, err := l.Insert(ctx, "n2", file)
	if err != nil {
		t.Fatal(err)
	}
	inNode, err := l.Path("n2", device)
	if err != nil {
		t.Fatal(err)
	}
	waitForEvent(t, events, filepath.Base(device), func() bool { _, err := os.Stat(inNode); return err == nil })
	readable := func() bool {
		var got bytes.Buffer
		return l.Exec(ctx, "n2", nil, &got, nil, "cat", device) == nil && bytes.Equal(got.Bytes(), content)
	}
	if !readable() {
		t.Error("n2 cannot read what is on the stick")
	}
	for _, node := range []string{"n1", "n3"} {
		if found := output(t, l, node, "sh", "-c", "ls /dev | grep loop || true"); found != "" {
			t.Errorf("%s sees %s", node, found)
		}
	}
	if _, err := l.Insert(ctx, "n3", file); err == nil {
		t.Error("one stick could be plugged into two nodes")
	}
	if err := l.Crash(ctx, "n2"); err != nil {
		t.Fatal(err)
	}
	if !readable() {
		t.Error("the stick is gone after a power cut")
	}
	if err := l.Eject(ctx, "n2", file); err != nil {
		t.Fatal(err)
	}
	if found := output(t, l, "n2", "sh", "-c", "ls /dev | grep loop || true"); found != "" {
		t.Errorf("n2 still sees %s", found)
	}
	if attached := look().loops[file]; attached != "" {
		t.Errorf("%s is still attached to %s", file, attached)
	}
}

// listenEvents opens the socket on which the kernel announces devices.
func listenEvents(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		t.Fatal(err)
	}
	// Other labs' devices are announced too: a queue that overflows loses ours.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// waitForEvent reads announcements until one of the device comes while seen holds.
func waitForEvent(t *testing.T, fd int, device string, seen func() bool) {
	t.Helper()
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue // a signal of the Go runtime: calls with a time limit are not taken up again by the kernel
		}
		if err != nil {
			t.Fatalf("no announcement of %s that counts: %v", device, err)
		}
		if bytes.HasPrefix(buffer[:n], []byte("change@")) && bytes.Contains(buffer[:n], []byte("DEVNAME="+device)) && seen() {
			return
		}
	}
}

// A node that is shut down stays off until it is switched on; a reboot through
// its console brings it back by itself.
func TestANodeThatIsShutDownStaysOff(t *testing.T) {
	needsRoot(t)
	base := t.TempDir()
	ctx := timeLimit(t, 2*patience)
	t.Cleanup(func() { _ = lab.DownIn(context.Background(), "power", base) })
	l, err := lab.Up(ctx, lab.Options{Name: "power", StateDir: base, Nodes: 1, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Exec(ctx, "n1", nil, nil, nil, "systemctl", "poweroff") // may be killed by what it asks for
	eventually(t, patience, func(ctx context.Context) string {
		s, err := l.Status(ctx)
		if err != nil {
			return err.Error()
		}
		if n := s.Nodes[0]; n.On || n.Last != "powered off" {
			return fmt.Sprintf("the node is not off: %+v", n)
		}
		return ""
	})
	if err := l.Exec(ctx, "n1", nil, nil, nil, "true"); err == nil {
		t.Error("a command ran in a node that is off")
	}
	for range 2 { // the second time it is on already
		if err := l.PowerOn(ctx, "n1"); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Nodes[0]; !n.On || n.Boots != 2 {
		t.Errorf("after switching on: %+v", n)
	}
	output(t, l, "n1", "systemctl", "is-active", "containerd")
}
