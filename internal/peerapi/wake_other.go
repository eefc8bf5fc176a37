//go:build !linux

package peerapi

import "net"

// wakeBytes is without effect here.
const wakeBytes = 64 << 10

// wakeAfter does nothing: only Linux nodes exchange chunks.
func wakeAfter(net.Conn, int) {}
