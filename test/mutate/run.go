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

// baseline runs the tests without a mutant and returns the time a mutant gets.
func (s *subject) baseline() (time.Duration, error) {
	begin := time.Now()
	if verdict, out := s.test(s.binary, 0, 10*time.Minute); verdict != survived {
		return 0, fmt.Errorf("%s: the tests fail without a mutant (%s):\n%s", s.dir, verdict, out)
	}
	return max(20*time.Second, 10*time.Since(begin)), nil
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
		verdict, _ := s.test(s.binary, m.ID, limit)
		return verdict
	}
	binary, ok := s.buildAlone(m)
	if !ok {
		return uncompiled
	}
	defer os.Remove(binary)
	verdict, _ := s.test(binary, 0, limit)
	return verdict
}

// test runs a test binary in the package's folder, in a process group of its
// own that ends with it.
func (s *subject) test(binary string, id int, limit time.Duration) (string, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// A mutant that never stops to allocate ends at 4 GiB.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 4194304; exec "$0" "$@"`, binary, "-test.failfast"}, s.flags...)...)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), "REFIT_MUTANT="+strconv.Itoa(id), "TMPDIR="+s.work, "GOMAXPROCS=1", "GOMEMLIMIT=1GiB")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return timedOut, out
	case err != nil:
		return killed, out
	}
	return survived, out
}
