package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// What the tests made of a mutant.
const (
	killed     = "killed"
	timedOut   = "timed out"
	survived   = "survived"
	uncompiled = "does not compile"
)

// baseline runs the tests without a mutant and returns the time of the processor
// that a mutant gets: a busy machine makes no mutant time out.
func (s *subject) baseline() (time.Duration, error) {
	verdict, used, out := s.test(s.binary, 0, 10*time.Minute)
	if verdict != survived {
		return 0, fmt.Errorf("%s: the tests fail without a mutant (%s):\n%s", s.dir, verdict, out)
	}
	return max(10*time.Second, 5*used), nil
}

// run tests the mutants, n at a time. The order of the verdicts is that of the mutants.
func (s *subject) run(mutants []*mutant, n int, limit time.Duration) []string {
	verdicts := make([]string, len(mutants))
	next := make(chan int)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := range next {
				verdicts[i] = s.verdict(mutants[i], limit)
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	wg.Wait()
	return verdicts
}

func (s *subject) verdict(m *mutant, limit time.Duration) string {
	if s.broken[m.ID] {
		return uncompiled
	}
	if !m.alone {
		verdict, _, _ := s.test(s.binary, m.ID, limit)
		return verdict
	}
	binary, ok := s.buildAlone(m)
	if !ok {
		return uncompiled
	}
	defer os.Remove(binary)
	verdict, _, _ := s.test(binary, 0, limit)
	return verdict
}

// maxWall ends a mutant that waits for ever and uses no processor.
const maxWall = 15 * time.Minute

// test runs a test binary in the package's folder, in a process group of its
// own that ends with it. A mutant that never stops to allocate ends at 4 GiB.
func (s *subject) test(binary string, id int, limit time.Duration) (string, time.Duration, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), maxWall)
	defer cancel()
	limited := fmt.Sprintf(`ulimit -v 4194304; ulimit -t %d; exec "$0" "$@"`, int(limit.Seconds()))
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, binary, "-test.short", "-test.failfast"}, s.flags...)...)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), "REFIT_MUTANT="+strconv.Itoa(id), "TMPDIR="+s.work, "GOMAXPROCS=1", "GOMEMLIMIT=1GiB")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	switch {
	case ctx.Err() != nil, err != nil && used >= limit:
		return timedOut, used, out
	case err != nil:
		return killed, used, out
	}
	return survived, used, out
}
