package simhost

import (
	"fmt"
	"os"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
	"github.com/refit-dev/refit/internal/failpoint"
)

// cut is the panic that stands for a power cut at a failpoint.
type cut struct{}

// cutAt drives a step until the first pass of a point, at which the machine loses its
// power; it boots again.
func (n *node) cutAt(point string, task updaters.Task, do call) {
	n.t.Helper()
	n.cutAtNth(point, 1, task, do)
}

// cutAtNth is cutAt at a later pass.
func (n *node) cutAtNth(point string, nth int, task updaters.Task, do call) {
	n.t.Helper()
	killed := false
	restore := failpoint.OnHit(func(name string) {
		if name != point || killed {
			return
		}
		if nth--; nth == 0 {
			killed = true
			panic(cut{})
		}
	})
	defer restore()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(cut); !ok {
				panic(r)
			}
			n.PowerCut()
			n.Boot()
		}
	}()
	n.drive(task, do, n.Reboot)
	if !killed {
		n.t.Fatalf("the point %s was not passed", point)
	}
}

// The power goes at any point of our own: the run goes on to the image, or stops and
// says that the node came back; a retry gets there. The same on the way back. (Not in
// parallel: failpoints are the process's.)
func TestPowerCutAtFailpoints(t *testing.T) {
	Needs(t)
	for kind, points := range map[string][]string{
		osdriver.OSTree: {failpoint.OSImported, failpoint.OSDiscarded, failpoint.OSStaged, failpoint.OSNoted},
		osdriver.Bootc:  {failpoint.OSStaged, failpoint.OSNoted},
	} {
		n := newNode(t, kind)
		for i, point := range points {
			t.Run(kind+" "+point, func(t *testing.T) {
				n.t = t
				v := fmt.Sprint(i + 2)
				task := n.step(n.put(version(t, v, nil, "v="+v)), "v="+v)
				n.cutAt(point, task, (*osdeploy.Updater).Update)
				n.goesOn(task, (*osdeploy.Updater).Update)
				n.isOn(v, "v="+v)
			})
		}
	}
}

// goesOn is what the engine does after the machine is up again: the step goes on, and
// a person retries what failed with the reason that it may.
func (n *node) goesOn(task updaters.Task, do call) {
	n.t.Helper()
	r := n.drive(task, do, n.Reboot)
	if r.Failed {
		failed(n.t, r, v1alpha1.ReasonVersionReverted)
		task.Attempt++
		r = n.drive(task, do, n.Reboot)
	}
	done(n.t, r)
}

// writes are the calls by which libostree changes the disk.
const writes = "rename,renameat,renameat2,symlinkat,linkat,unlinkat,mkdirat,write,pwrite64,fsync,fdatasync,syncfs,ftruncate,fchmod,fsetxattr,copy_file_range"

// shutdownCut is a shutdown in which the power goes at libostree's nth write; ok is
// false if there were not so many.
func (n *node) shutdownCut(nth int) (ok bool) {
	n.t.Helper()
	_, err := n.Run(n.t.Context(), nil, "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+writes, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", writes, nth),
		"ostree", "admin", "finalize-staged")
	n.PowerCut()
	n.Boot()
	return err != nil
}

// The power goes between any two writes of libostree at shutdown: the node boots, into
// the old image or the new one, knows which, and gets there. With REFIT_E2E every
// write is tried, otherwise more and more of them.
func TestPowerCutBetweenWrites(t *testing.T) {
	n := newNode(t, osdriver.OSTree)
	a, b := 1, 1
	for i := 0; ; i++ {
		nth := a
		if os.Getenv("REFIT_E2E") != "" {
			nth = i + 1
		}
		a, b = b, a+b
		before, after := n.Must("cat", "/usr/share/version"), fmt.Sprint(2+i%2)
		if before == after {
			continue
		}
		task := n.step(n.put(version(t, after, nil, "v="+after)), "v="+after)
		cuts, ok := 0, false
		r := n.drive(task, (*osdeploy.Updater).Update, func() {
			if cuts++; cuts == 1 {
				ok = n.shutdownCut(nth)
				if now := n.Must("cat", "/usr/share/version"); now != before && now != after {
					t.Fatalf("cut at write %d it boots version %s", nth, now)
				}
				return
			}
			n.Reboot()
		})
		if r.Failed {
			failed(t, r, v1alpha1.ReasonVersionReverted)
			n.isOn(before)
			task.Attempt++
			r = n.there(task)
		}
		done(t, r)
		n.isOn(after, "v="+after)
		if !ok {
			t.Logf("%d cuts, the last at write %d", i, nth)
			if i < 5 {
				t.Fatal("libostree hardly writes anything: the test counts the wrong calls")
			}
			return
		}
	}
}
