package supervisor

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/machine"
)

const bridgeName = "lab"

// hardware addresses are fixed, so that a node that comes back is known at once.
func hardware(number int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x72, 0x65, 0x66, byte(number >> 8), byte(number)}
}

// makeSwitch puts the bridge into the supervisor's network namespace.
func makeSwitch(c *Config) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName, HardwareAddr: hardware(0)}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	address, err := netlink.ParseAddr(c.Gateway)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(bridge, address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return err
	}
	return refuse()
}

// refuse makes the switch answer "unreachable" to everything it has no route
// for, at once and every time. A packet that vanishes would keep its sender
// waiting: a pod that asks for a service address before kube-proxy has set it
// up would hang in that connection for half a minute.
func refuse() error {
	for name, value := range map[string]string{"ip_forward": "1", "icmp_ratelimit": "0"} {
		// Below /proc/sys/net everyone sees the settings of the own network namespace.
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0")
	return netlink.RouteAdd(&netlink.Route{Dst: everywhere, Type: unix.RTN_UNREACHABLE})
}

// reachPods lets the switch answer pods, which are behind their nodes.
func reachPods(m *machine.Machine) error {
	_, pods, err := net.ParseCIDR(m.PodCIDR)
	if err != nil {
		return err
	}
	ip, _, err := net.ParseCIDR(m.Address)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: ip})
}

// connect plugs the network namespace of pid into the switch. The outer end of
// the last boot's cable goes first: the old namespace may outlive its processes.
func connect(m *machine.Machine, pid int) error {
	if old, err := netlink.LinkByName(m.Name); err == nil {
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
	}
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: m.Name, MasterIndex: bridge.Attrs().Index},
		PeerName: "eth0", PeerHardwareAddr: hardware(m.Number), PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("cable of %s: %w", m.Name, err)
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return err
	}
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
	return configure(inside, m)
}

// configure sets addresses and routes inside a node.
func configure(inside *netlink.Handle, m *machine.Machine) error {
	for _, name := range []string{"lo", "eth0"} {
		l, err := inside.LinkByName(name)
		if err != nil {
			return err
		}
		if name == "eth0" {
			address, err := netlink.ParseAddr(m.Address)
			if err != nil {
				return err
			}
			if err := inside.AddrAdd(l, address); err != nil {
				return err
			}
		}
		if err := inside.LinkSetUp(l); err != nil {
			return err
		}
	}
	if err := inside.RouteAdd(&netlink.Route{Gw: net.ParseIP(m.Gateway)}); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	for _, p := range m.Peers {
		_, pods, err := net.ParseCIDR(p.PodCIDR)
		if err != nil {
			return err
		}
		if err := inside.RouteAdd(&netlink.Route{Dst: pods, Gw: net.ParseIP(p.Address)}); err != nil {
			return fmt.Errorf("route to the pods of %s: %w", p.Name, err)
		}
	}
	return nil
}

// backends are the API servers.
func (s *supervisor) backends(port string) ([]string, error) {
	var all []string
	for _, name := range s.config.ControlPlanes {
		m, err := machine.Load(NodeDir(s.dir, name))
		if err != nil {
			return nil, err
		}
		ip, _, err := net.ParseCIDR(m.Address)
		if err != nil {
			return nil, err
		}
		all = append(all, net.JoinHostPort(ip.String(), port))
	}
	return all, nil
}

// forward passes connections on, to the next backend each time, and to another
// one if that does not answer.
func forward(l net.Listener, backends []string) {
	var turn atomic.Uint32
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			first := int(turn.Add(1))
			for i := range backends {
				b, err := net.DialTimeout("tcp", backends[(first+i)%len(backends)], 2*time.Second)
				if err != nil {
					continue
				}
				splice(c, b)
				return
			}
		}()
	}
}

// splice copies both ways until both have ended.
func splice(a, b net.Conn) {
	defer b.Close()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(b, a)
		endWrite(b)
		close(done)
	}()
	_, _ = io.Copy(a, b)
	endWrite(a)
	<-done
}

func endWrite(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}
