package media

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group of the kernel's own events; those of udev
// are not listened to, since a node may have no udev.
const kernelGroup = 1

// Events calls changed at every event about a block device, until the context
// ends. Events may be lost when very many come at once: scan now and then too.
func Events(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("kernel events of devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("kernel events of devices: %w", err)
	}
	f := os.NewFile(uintptr(fd), "uevent")
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	defer f.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			changed() // an overrun: something was missed
			continue
		}
		if isBlock(buf[:n]) {
			changed()
		}
	}
}

// isBlock reports whether a kernel event is about a block device.
func isBlock(event []byte) bool {
	for _, field := range bytes.Split(event, []byte{0}) {
		if bytes.Equal(field, []byte("SUBSYSTEM=block")) {
			return true
		}
	}
	return false
}
