package lab

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Dial connects from inside a node's network: service addresses, pods and other
// nodes can be reached as the node reaches them. The address must be numeric.
// It fits http.Transport.DialContext and net.Resolver.Dial.
func (l *Lab) Dial(ctx context.Context, node, network, address string) (net.Conn, error) {
	return inNetwork(l, node, func() (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	})
}

// Listen listens inside a node's network, until the listener is closed or the
// node restarts: its programs reach this process at the address, 127.0.0.1:5000
// for example, which must be numeric.
func (l *Lab) Listen(ctx context.Context, node, network, address string) (net.Listener, error) {
	return inNetwork(l, node, func() (net.Listener, error) {
		var c net.ListenConfig
		return c.Listen(ctx, network, address)
	})
}

// inNetwork makes a socket in a node's network.
func inNetwork[S any](l *Lab, node string, open func() (S, error)) (S, error) {
	var none S
	if err := l.has(node); err != nil {
		return none, err
	}
	p, err := supervisor.LoadProcess(l.nodeDir(node))
	if err != nil || !p.Alive() {
		return none, fmt.Errorf("node %s is off", node)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, err
	}
	defer unix.Close(fd)
	type result struct {
		socket S
		err    error
	}
	done := make(chan result, 1)
	go func() {
		// A socket belongs to the network of the thread that makes it. The thread
		// stays locked, so that it ends here and nothing else runs in there.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		socket, err := open()
		done <- result{socket, err}
	}()
	r := <-done
	return r.socket, r.err
}

// ownNetwork lets a process outlive this one, in a network namespace of its own.
func ownNetwork() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNET}
}
