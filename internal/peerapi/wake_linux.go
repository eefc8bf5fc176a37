package peerapi

import (
	"net"
	"syscall"
)

// wakeBytes is how much of a chunk arrives before its reader wakes. A process that wakes for
// every packet spends most of its processor time on waking.
const wakeBytes = 64 << 10

// wakeAfter makes reads of a connection wait until so many bytes have arrived, or until the
// connection ends. Where the socket is out of reach, reads return as they do without it.
func wakeAfter(c net.Conn, bytes int) {
	for c != nil {
		if s, ok := c.(syscall.Conn); ok {
			raw, err := s.SyscallConn()
			if err != nil {
				return
			}
			_ = raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes) // only an economy
			})
			return
		}
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = inner.NetConn()
	}
}
