package supervisor

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
)

type supervisor struct {
	dir    string
	config *Config
	nodes  map[string]*node
	watch  *watch
	quit   chan struct{}
}

// Run runs the supervisor until a request to quit.
func Run(dir string) error {
	ready := os.NewFile(ReadyFD, "ready")
	unix.CloseOnExec(ReadyFD)
	unix.CloseOnExec(ListenerFD)
	s, control, err := setUp(dir)
	if err != nil {
		fmt.Fprintln(ready, err)
		ready.Close()
		return err
	}
	ready.Close()
	go s.serve(control)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-s.quit:
	case <-ended:
		s.killAll()
	}
	return nil
}

func setUp(dir string) (*supervisor, net.Listener, error) {
	config, err := LoadConfig(dir)
	if err != nil {
		return nil, nil, err
	}
	// Move from the cgroup of the caller to the lab's own, so that Down finds the process.
	if err := kernel.JoinCgroup(filepath.Join(config.Group, "switch")); err != nil {
		return nil, nil, err
	}
	self, err := Self()
	if err != nil {
		return nil, nil, err
	}
	if err := save(filepath.Join(dir, PIDName), self); err != nil {
		return nil, nil, err
	}
	s := &supervisor{dir: dir, config: config, nodes: map[string]*node{}, quit: make(chan struct{})}
	if err := makeSwitch(config); err != nil {
		return nil, nil, fmt.Errorf("making the switch: %w", err)
	}
	if s.watch, err = startWatch(config); err != nil {
		return nil, nil, err
	}
	for _, name := range config.Nodes {
		s.nodes[name] = &node{name: name, dir: NodeDir(dir, name)}
		m, err := machine.Load(NodeDir(dir, name))
		if err != nil {
			return nil, nil, err
		}
		if err := reachPods(m); err != nil {
			return nil, nil, fmt.Errorf("route to the pods of %s: %w", name, err)
		}
	}
	if err := s.startServices(); err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, SocketName)
	_ = os.Remove(socket)
	control, err := net.Listen("unix", socket)
	return s, control, err
}

func (s *supervisor) startServices() error {
	entrance, err := net.FileListener(os.NewFile(ListenerFD, "listener"))
	if err != nil {
		return fmt.Errorf("taking over the listener: %w", err)
	}
	host, port, err := net.SplitHostPort(s.config.Endpoint)
	if err != nil {
		return err
	}
	backends, err := s.backends(port)
	if err != nil {
		return err
	}
	go forward(entrance, backends)
	gateway, _, err := net.ParseCIDR(s.config.Gateway)
	if err != nil {
		return err
	}
	if host == gateway.String() { // several control planes: the endpoint is here
		l, err := net.Listen("tcp", s.config.Endpoint)
		if err != nil {
			return err
		}
		go forward(l, backends)
	}
	return serveNames(gateway.String(), s.watch)
}

// killAll cuts the power of every node.
func (s *supervisor) killAll() {
	var all sync.WaitGroup
	for _, n := range s.nodes {
		all.Go(n.cut)
	}
	all.Wait()
	log.Print("all nodes are off")
}
