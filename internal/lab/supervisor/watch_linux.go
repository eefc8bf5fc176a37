package supervisor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// neverOutside are destinations that stay on the link by nature.
var neverOutside = []string{"0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"}

// manyKinds bounds how many different attempts are kept by name; all are counted.
const manyKinds = 1000

// watch counts what leaves, or tries to.
type watch struct {
	imageHosts []string
	socket     int

	mu       sync.Mutex
	outside  Outside
	attempts map[Attempt]*Attempt // key: From, To, Kind
}

// startWatch starts the inspection of every packet from a node, before the switch
// forwards it.
func startWatch(c *Config) (*watch, error) {
	w := newWatch(c.ImageHosts)
	filter, err := outsideFilter(append(slices.Clone(c.Inside), neverOutside...))
	if err != nil {
		return nil, err
	}
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return nil, err
	}
	// No protocol yet: nothing is received before the filter is in place.
	w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	_ = unix.SetsockoptInt(w.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(w.socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return nil, fmt.Errorf("packet filter: %w", err)
	}
	all := binary.BigEndian.Uint16([]byte{byte(unix.ETH_P_ALL & 0xff), byte(unix.ETH_P_ALL >> 8)})
	if err := unix.Bind(w.socket, &unix.SockaddrLinklayer{Protocol: all}); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	go w.receive(bridge.Attrs().Index)
	return w, nil
}

func newWatch(imageHosts []string) *watch {
	return &watch{imageHosts: imageHosts, socket: -1, attempts: map[Attempt]*Attempt{}, outside: Outside{AllNames: map[string]int{}}}
}

// outsideFilter is a kernel packet filter that lets through what is not
// outgoing here and not meant for one of the inside networks. For IPv6, which
// no node has a route for, everything but multicast and link-local counts.
func outsideFilter(inside []string) ([]unix.SockFilter, error) {
	drop, keep := bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 128}
	dropIf := func(value uint32) []bpf.Instruction {
		return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: 1}, drop}
	}
	var v4 []bpf.Instruction
	for _, text := range inside {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("network %q: %w", text, err)
		}
		if !prefix.Addr().Is4() {
			continue
		}
		mask := ^uint32(0) << (32 - prefix.Bits())
		network := prefix.Masked().Addr().As4()
		v4 = append(v4, bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
		v4 = append(v4, dropIf(binary.BigEndian.Uint32(network[:]))...)
	}
	v4 = append(v4, keep)
	v6 := append([]bpf.Instruction{bpf.LoadAbsolute{Off: 24, Size: 1}}, dropIf(0xff)...)
	v6 = append(v6, bpf.LoadAbsolute{Off: 24, Size: 2}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xffc0})
	v6 = append(append(v6, dropIf(0xfe80)...), keep)

	program := append([]bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType}}, dropIf(unix.PACKET_OUTGOING)...)
	program = append(program, bpf.LoadExtension{Num: bpf.ExtProto}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: uint8(len(v4))})
	program = append(program, v4...)
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: uint8(len(v6))})
	program = append(append(program, v6...), drop)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	var filter []unix.SockFilter
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return filter, nil
}

// receive notes each packet once: at the cable it came from, not again at the bridge.
func (w *watch) receive(bridge int) {
	buffer := make([]byte, 256)
	for {
		n, from, err := unix.Recvfrom(w.socket, buffer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Ifindex != bridge && link.Hatype == unix.ARPHRD_ETHER {
			w.packet(buffer[:n])
		}
	}
}

var protocols = map[byte]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}

// packet notes one IP packet to the outside.
func (w *watch) packet(p []byte) {
	from, to, kind := readPacket(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outside.Packets++
	w.countAttempt(Attempt{From: from, To: to, Kind: kind})
}

func readPacket(p []byte) (from, to, kind string) {
	if len(p) < 20 {
		return "?", "?", "short"
	}
	var source, target netip.Addr
	var protocol byte
	var rest []byte
	if p[0]>>4 == 6 && len(p) >= 40 {
		source, _ = netip.AddrFromSlice(p[8:24])
		target, _ = netip.AddrFromSlice(p[24:40])
		protocol, rest = p[6], p[40:]
	} else {
		source, _ = netip.AddrFromSlice(p[12:16])
		target, _ = netip.AddrFromSlice(p[16:20])
		protocol, rest = p[9], p[min(len(p), int(p[0]&15)*4):]
	}
	kind, known := protocols[protocol]
	if !known {
		kind = fmt.Sprint("protocol ", protocol)
	}
	to = target.String()
	if (kind == "tcp" || kind == "udp") && len(rest) >= 4 {
		to = netip.AddrPortFrom(target, binary.BigEndian.Uint16(rest[2:])).String()
	}
	return source.String(), to, kind
}

// question notes a name that was asked for.
func (w *watch) question(from net.Addr, name string) {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		host = from.String()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.outside.AllNames) < manyKinds {
		w.outside.AllNames[name]++
	}
	if isBelow(name, w.imageHosts) {
		w.outside.Questions++
		w.countAttempt(Attempt{From: host, To: name, Kind: "dns"})
	}
}

// isBelow tells whether name is one of hosts or in one of them.
func isBelow(name string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool { return name == h || strings.HasSuffix(name, "."+h) })
}

func (w *watch) countAttempt(a Attempt) {
	known := w.attempts[a]
	if known == nil {
		if len(w.attempts) >= manyKinds {
			return
		}
		known = &Attempt{From: a.From, To: a.To, Kind: a.Kind, First: time.Now()}
		w.attempts[a] = known
	}
	known.Count++
	known.Last = time.Now()
}

// counts is what was seen since the lab's start.
func (w *watch) counts() Outside {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Reading the kernel's statistics sets them back.
	if stats, err := unix.GetsockoptTpacketStats(w.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		w.outside.Lost += int(stats.Drops)
	}
	o := w.outside
	o.AllNames = maps.Clone(o.AllNames)
	o.Details = nil
	for _, a := range w.attempts {
		o.Details = append(o.Details, *a)
	}
	slices.SortFunc(o.Details, func(a, b Attempt) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
	})
	return o
}
