package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// runPeak runs a command. It returns its output and the largest resident size of its process in
// bytes, read every 20 ms. The size that the kernel reports at the end is of no use: it begins
// with that of this process.
func runPeak(c *exec.Cmd) (output []byte, peak int64, err error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		return nil, 0, err
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			peak = max(peak, peakOf(c.Process.Pid))
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	err = c.Wait()
	close(over)
	<-ended
	return out.Bytes(), peak, err
}

// peakOf is the largest resident size of a process so far; 0 if it has ended.
func peakOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib) // a process that ends has none
	return kib << 10
}
