package coldstart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// heartbeatFile, below the run directory, changes while the check is watched: the kubelet's
// unit gives up a check whose process makes no progress.
const heartbeatFile = "preflight.alive"

// stalledError is an attempt that neither ends nor makes progress.
type stalledError struct {
	after time.Duration
	// hangs: the attempt did not end when it was canceled.
	hangs bool
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("the check made no progress for %s: a disk or the container runtime hangs", e.after.Round(time.Second))
}

// outcome of an attempt.
type outcome struct {
	report Report
	err    error
}

// watchAttempt makes an attempt, and gives it up if it hangs, panics or takes too long.
func (c *check) watchAttempt(ctx context.Context, last bool) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := len(c.intact) + len(c.report.Restored)
	c.inRuntime.Store(false)
	end := make(chan outcome, 1) // an attempt that was given up still ends some time
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			end <- o
		}()
		o.report, o.err = c.attempt(ctx, last)
	}()
	o := c.await(ctx, cancel, end)
	var stalled *stalledError
	if !errors.As(o.err, &stalled) && len(c.intact)+len(c.report.Restored) > before {
		c.lastProgress = time.Now()
	}
	return o.report, o.err
}

// await waits for the end of an attempt while it makes progress.
func (c *check) await(ctx context.Context, cancel func(), end <-chan outcome) outcome {
	moved, seen := time.Now(), c.countTraffic()
	tick := time.NewTicker(min(time.Second, c.ErrorPatience/4+time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case o := <-end:
			return o
		case <-tick.C:
		}
		c.writeHeartbeat()
		if now := c.countTraffic(); now-seen > minTraffic {
			moved, seen = time.Now(), now
		}
		limit := c.ErrorPatience
		if c.inRuntime.Load() {
			limit = max(limit, runtimeTime)
		}
		if ctx.Err() == nil && time.Since(moved) < limit && time.Since(c.started) < maxCheckTime {
			continue
		}
		return c.giveUp(cancel, end, time.Since(moved))
	}
}

// giveUp cancels an attempt, and waits a moment for it to end.
func (c *check) giveUp(cancel func(), end <-chan outcome, after time.Duration) outcome {
	cancel()
	select {
	case o := <-end:
		if o.err != nil {
			o.err = fmt.Errorf("%w (%w)", &stalledError{after: after}, o.err)
		}
		return o
	case <-time.After(min(time.Second, c.ErrorPatience)):
		return outcome{err: &stalledError{after: after, hangs: true}}
	}
}

// minTraffic is what counts as progress between two observations; observing costs some bytes.
const minTraffic = 4096

// writeHeartbeat changes the file that the kubelet's unit reads.
func (c *check) writeHeartbeat() {
	c.heartbeats++
	_ = os.WriteFile(c.Config.RunPath(heartbeatFile), []byte(strconv.Itoa(os.Getpid())+" "+strconv.Itoa(c.heartbeats)+"\n"), 0o600) // a hint
}

// countTraffic is how many bytes were read and written so far.
func (c *check) countTraffic() (sum int64) {
	if c.traffic != nil {
		return c.traffic()
	}
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return time.Now().UnixNano() // not counted by this kernel: only the longest time counts
	}
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && (string(name) == "rchar" || string(name) == "wchar") {
			sum += n
		}
	}
	return sum
}

// DisabledBy says why the check is switched off; empty if it is not. cmdline is the kernel's
// command line, file the one that an administrator makes.
func DisabledBy(cmdline, file string) string {
	if b, err := os.ReadFile(cmdline); err == nil {
		for _, w := range bytes.Fields(b) {
			if string(w) == "refit.preflight=off" {
				return "refit.preflight=off is on the kernel command line"
			}
		}
	}
	if _, err := os.Stat(file); err == nil {
		return file + " exists"
	}
	return ""
}

// Paths for DisabledBy on a node.
const (
	KernelCommandLine = "/proc/cmdline"
	OffFile           = "/etc/refit/preflight.off"
)

// Skip stamps this boot without a check.
func Skip(o Options, why string) (Report, error) {
	r := Report{BootID: o.BootID, At: time.Now(), OK: true, Off: true, Released: "the check is switched off: " + why}
	o.Log.Error("THE KUBELET STARTS WITHOUT A CHECK OF ITS IMAGES", "error", r.Released)
	return r, r.write(o)
}

// releasedFile, below the run directory, is written by the kubelet's unit: the boot for
// which it gave up the check, and why.
const releasedFile = "preflight.released"
