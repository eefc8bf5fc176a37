package lab

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/mains"
)

// Dial connects from inside a node's network: service addresses, pods and other
// nodes can be reached as the node reaches them. The address must be numeric.
// It fits http.Transport.DialContext and net.Resolver.Dial.
func (l *Lab) Dial(ctx context.Context, node, network, address string) (net.Conn, error) {
	if err := l.has(node); err != nil {
		return nil, err
	}
	p, err := mains.LoadProcess(l.nodeDir(node))
	if err != nil || !p.Alive() {
		return nil, fmt.Errorf("node %s is off", node)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	type result struct {
		conn net.Conn
		err  error
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
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// ownNetwork lets a process outlive this one, in a network namespace of its own.
func ownNetwork() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNET}
}
