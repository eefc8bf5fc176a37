package kernel

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	switchName = "switch0"
	// segment is the largest packet that is not cut up: with the usual 64 KiB a
	// bucket of a few milliseconds would be coarse.
	segment = 16 << 10
	// queue is for how long a host's packets may wait at its port.
	queueMillis = 60
)

// Network is a switch and the hosts at it. Not safe for concurrent use.
type Network struct {
	before, space netns.NsHandle
	handle        *netlink.Handle
	ports         map[int]netlink.Link
}

// NewNetwork makes the switch. The calling goroutine keeps its thread until Close, which
// it must call itself: what it starts meanwhile is in the switch's namespace.
func NewNetwork() (*Network, error) {
	runtime.LockOSThread()
	n := &Network{ports: map[int]netlink.Link{}}
	var err error
	if n.before, err = netns.Get(); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("this network namespace: %w", err)
	}
	if n.space, err = netns.New(); err != nil {
		_ = n.before.Close()
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("a network namespace (needs root): %w", err)
	}
	if err := n.plugIn(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) plugIn() error {
	var err error
	if n.handle, err = netlink.NewHandle(); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: switchName}}
	if err := n.handle.LinkAdd(bridge); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	return n.handle.LinkSetUp(bridge)
}

// Close takes the switch away; processes that still run at it are without a network
// once they have ended, and are the caller's to end.
func (n *Network) Close() error {
	if n.handle != nil {
		n.handle.Close()
	}
	err := netns.Set(n.before)
	if err == nil {
		runtime.UnlockOSThread() // otherwise the thread ends with its goroutine
	}
	return errors.Join(err, n.space.Close(), n.before.Close())
}

// HostAddress of host k, 1 to 254.
func HostAddress(k int) string { return fmt.Sprintf("10.231.7.%d", k) }

// Start starts a command as host k with a rate in Mbit/s each way. The command is killed
// when the caller's goroutine ends. Its network comes up after it started: the command must
// wait until the caller signals it.
func (n *Network) Start(cmd *exec.Cmd, k int, rate uint64) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("host %d: %w", k, err)
	}
	if err := n.connect(k, cmd.Process.Pid, rate); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed just now
		return fmt.Errorf("host %d: %w", k, err)
	}
	return nil
}

func (n *Network) connect(k, pid int, rate uint64) error {
	bridge, err := n.handle.LinkByName(switchName)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("host%d", k)
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	if err := n.handle.LinkAdd(cable); err != nil {
		return err
	}
	port, err := n.handle.LinkByName(name)
	if err != nil {
		return err
	}
	n.ports[k] = port
	space, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer space.Close()
	inside, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer inside.Close()
	end, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(HostAddress(k) + "/24")
	if err != nil {
		return err
	}
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(inside.AddrAdd(end, address),
		limitRate(inside, end, rate), limitRate(n.handle, port, rate),
		inside.LinkSetUp(lo), inside.LinkSetUp(end), n.handle.LinkSetUp(port))
}

// limitRate puts a token bucket on what leaves a link: 2 ms and a segment of burst.
func limitRate(h *netlink.Handle, link netlink.Link, megabits uint64) error {
	if err := h.LinkSetGSOMaxSize(link, segment); err != nil {
		return fmt.Errorf("segments: %w", err)
	}
	rate := megabits * 1_000_000 / 8
	burst := uint32(rate*2/1000) + segment
	return h.QdiscReplace(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate: rate, Buffer: netlink.Xmittime(rate, burst), Limit: uint32(rate*queueMillis/1000) + burst})
}

// SentBytes is how many bytes host k has put on the wire, headers of packets included.
func (n *Network) SentBytes(k int) (uint64, error) {
	port, err := n.handle.LinkByIndex(n.ports[k].Attrs().Index)
	if err != nil {
		return 0, fmt.Errorf("port of host %d: %w", k, err)
	}
	return port.Attrs().Statistics.RxBytes, nil
}

// ReceivedBytes is how many bytes have come to host k, headers of packets included.
func (n *Network) ReceivedBytes(k int) (uint64, error) {
	port, err := n.handle.LinkByIndex(n.ports[k].Attrs().Index)
	if err != nil {
		return 0, fmt.Errorf("port of host %d: %w", k, err)
	}
	return port.Attrs().Statistics.TxBytes, nil
}

// Cut unplugs host k.
func (n *Network) Cut(k int) error { return n.handle.LinkSetDown(n.ports[k]) }
