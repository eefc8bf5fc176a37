package simulate

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sampleEvery is how often the controller's memory is sampled.
const sampleEvery = 500 * time.Millisecond

// memoryLimit is what the controller's Deployment tells it to stay below.
const memoryLimit = "540MiB"

// controllerProcess is the process that is measured.
type controllerProcess struct {
	start   func(kubeconfig, metrics string) *exec.Cmd
	config  string
	logFile string
	metrics string

	mu   sync.Mutex
	cmd  *exec.Cmd
	peak int64
	// cpu seconds of processes that have ended.
	cpu  float64
	dead chan struct{}
}

func newController(o Options, kubeconfig string) (*controllerProcess, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return &controllerProcess{start: o.Controller, config: kubeconfig, logFile: filepath.Join(o.Dir, "controller.log"), metrics: l.Addr().String()}, nil
}

// up starts the process.
func (c *controllerProcess) up() error {
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := c.start(c.config, c.metrics)
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "GOMEMLIMIT="+memoryLimit)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	dead := make(chan struct{})
	c.mu.Lock()
	c.cmd, c.dead = cmd, dead
	c.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		close(dead)
	}()
	go c.sample(cmd.Process.Pid, dead)
	return nil
}

// alive is nil while the process runs.
func (c *controllerProcess) alive() error {
	select {
	case <-c.dead:
		return fmt.Errorf("the controller ended by itself; its last words: %s", lastLines(c.logFile))
	default:
		return nil
	}
}

func lastLines(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// end ends the process and waits until it is gone.
func (c *controllerProcess) end(with syscall.Signal) {
	c.mu.Lock()
	cmd, dead := c.cmd, c.dead
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	c.mu.Lock()
	c.cpu += ProcessCPU(cmd.Process.Pid)
	c.mu.Unlock()
	_ = cmd.Process.Signal(with)
	select {
	case <-dead:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-dead
	}
	c.mu.Lock()
	c.cmd = nil
	c.mu.Unlock()
}

// sample keeps the peak of the resident memory, as the kernel keeps it.
func (c *controllerProcess) sample(pid int, dead chan struct{}) {
	for {
		if n := ProcessMemory(pid, "VmHWM"); n > 0 {
			c.mu.Lock()
			c.peak = max(c.peak, n)
			c.mu.Unlock()
		}
		select {
		case <-dead:
			return
		case <-time.After(sampleEvery):
		}
	}
}

func (c *controllerProcess) rss() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peak
}

func (c *controllerProcess) seconds() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return c.cpu
	}
	return c.cpu + ProcessCPU(c.cmd.Process.Pid)
}
