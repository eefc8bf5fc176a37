package crio

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	// Ports that the system keeps for root; those below are services of their own.
	firstReserved, firstFree = 512, 1024
	unprivilegedStart        = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
)

// errNoReserved says that any process may listen on any port.
var errNoReserved = errors.New("every port of this node is open to every process (net.ipv4.ip_unprivileged_port_start), and one of them could answer the container runtime in the agent's place; set it to 1024")

// listenMirror takes a loopback port that only root can take. The runtime's file may
// outlive this process (a kill, a power cut): until it is removed no process without
// rights can listen there and answer for the repositories that it names. Who is not
// root, in tests, gets any port.
func listenMirror() (net.Listener, error) {
	if os.Geteuid() != 0 {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	ports := reserved(unprivilegedStart)
	if ports <= 0 {
		return nil, errNoReserved
	}
	first := rand.IntN(ports)
	var last error
	for i := range ports {
		at := firstReserved + (first+i)%ports
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
		if err == nil {
			return l, nil
		}
		if last = err; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, last
}

// reserved is how many ports from firstReserved on only root can take; file is the
// kernel's setting.
func reserved(file string) int {
	end := firstFree
	if b, err := os.ReadFile(file); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			end = min(end, n)
		}
	}
	return end - firstReserved
}
