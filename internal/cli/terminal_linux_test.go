package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/model"
)

// asRefit is set in the processes that are the command line itself.
const asRefit = "REFIT_CLI_TEST_AS_REFIT"

func TestMain(m *testing.M) {
	if os.Getenv(asRefit) != "" {
		os.Exit(Main(os.Args))
	}
	os.Exit(apitest.Main(m))
}

// Keys of a terminal.
const (
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// terminal is a process of the command line with a pseudo-terminal of its own, on
// which it reads and writes everything.
type terminal struct {
	t     *testing.T
	cmd   *exec.Cmd
	keys  *os.File
	heard chan []byte
	said  bytes.Buffer
}

// at starts a command at a terminal of 80 columns.
func (p *person) at(t *testing.T, args ...string) *terminal {
	t.Helper()
	keys, screen := pseudoTerminal(t)
	w := &terminal{t: t, cmd: command(p, args), keys: keys, heard: make(chan []byte, 64)}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = screen, screen, screen
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = screen.Close() // the process has it
	go func() {
		defer close(w.heard)
		for {
			b := make([]byte, 4096)
			n, err := keys.Read(b)
			if n > 0 {
				w.heard <- b[:n]
			}
			if err != nil {
				return // the terminal is closed
			}
		}
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // it has ended, unless the test failed
		_ = keys.Close()
	})
	return w
}

func command(p *person, args []string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{"--kubeconfig", p.kubeconfig}, args...)...)
	cmd.Args[0] = "refit"
	cmd.Env = append(os.Environ(), asRefit+"=1")
	return cmd
}

func pseudoTerminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	raw, err := keys.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number, failed := 0, error(nil)
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		if failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); failed != nil {
			return
		}
		number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	return keys, screen
}

const patience = 2 * time.Minute

// until reads on until the words are on the screen; without words, until the end.
func (w *terminal) until(words string) {
	w.t.Helper()
	end := time.After(patience)
	for words == "" || !strings.Contains(w.said.String(), words) {
		select {
		case b, ok := <-w.heard:
			if !ok && words != "" {
				w.t.Fatalf("it ended and never said %q:\n%s", words, w.said.String())
			}
			if !ok {
				return
			}
			w.said.Write(b)
		case <-end:
			w.t.Fatalf("it has neither ended nor said %q:\n%s", words, w.said.String())
		}
	}
}

func (w *terminal) types(keys string) {
	w.t.Helper()
	if _, err := io.WriteString(w.keys, keys); err != nil {
		w.t.Fatal(err)
	}
}

// ends waits for the end, and gives all that was on the screen.
func (w *terminal) ends(code int) string {
	w.t.Helper()
	w.until("")
	err := w.cmd.Wait()
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("exit code %d (%v), want %d", got, err, code)
	}
	return w.said.String()
}

// answers are what people press at a question, and what becomes of it.
var answers = map[string]struct {
	keys string
	yes  bool
	code int
	says string
}{
	"y":                     {"y\n", true, console.ExitOK, ""},
	"the whole word":        {"Yes\n", true, console.ExitOK, ""},
	"no":                    {"n\n", false, console.ExitBlocked, "error: not started\r\n"},
	"Return alone":          {"\n", false, console.ExitBlocked, "not started: no answer"},
	"another language":      {"ja\n", false, console.ExitBlocked, `not started: "ja" is not an answer; only y or yes starts it`},
	"a cat on the keyboard": {"yyyyyy;;;\n", false, console.ExitBlocked, "only y or yes starts it"},
	"Ctrl-D":                {ctrlD, false, console.ExitBlocked, "[y/N] \r\nerror: not started: no answer"},
	"Ctrl-D behind a y":     {"y" + ctrlD + ctrlD, false, console.ExitBlocked, "only y or yes starts it"},
	"Ctrl-C":                {ctrlC, false, console.ExitInterrupted, "error: not started: interrupted before an answer"},
}

func TestQuestionsAtATerminal(t *testing.T) {
	p := newPerson(t)
	t.Run("refit apply", func(t *testing.T) { testApplyAsks(t, p) })
	t.Run("refit drill", func(t *testing.T) { testDrillAsks(t, p) })
}

// The question of refit apply, at a terminal, by the command line itself: the plan is
// shown first, a yes starts exactly that plan, and everything else nothing.
func testApplyAsks(t *testing.T, p *person) {
	ctx := context.Background()
	plan := model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: "sha256:" + strings.Repeat("b", 64), Name: "demo", Version: "1.36.3"},
		Nodes: []model.NodePlan{{Node: "w1", Pool: "default", Role: model.RoleWorker, From: "v1.35.4", To: "v1.36.3", Steps: []model.Step{{ID: "drain", Updater: "drain", Verb: "apply", By: model.ByController, Disruption: model.DisruptionDrain}}}}}
	p.keep("plan-1", v1alpha1.ContentPlan, string(plan.JSON()))
	p.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}})
	ready := func(t *testing.T, name string) *v1alpha1.ClusterUpdate {
		u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: plan.Target.Bundle, Start: v1alpha1.StartManual}}
		p.create(t, u)
		u.Status = v1alpha1.ClusterUpdateStatus{ObservedGeneration: u.Generation, Phase: v1alpha1.PhaseReady, Plan: "plan-1", PlanDigest: plan.Digest()}
		says(t, p.controller, u)
		return u
	}
	started := func(t *testing.T, u *v1alpha1.ClusterUpdate) bool {
		t.Helper()
		if err := p.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		if u.Spec.Start == v1alpha1.StartImmediate && u.Spec.PlanDigest != plan.Digest() {
			t.Errorf("it was started with plan %q", u.Spec.PlanDigest)
		}
		return u.Spec.Start == v1alpha1.StartImmediate
	}
	n := 0
	for name, c := range answers {
		t.Run(name, func(t *testing.T) {
			n++
			u := ready(t, fmt.Sprint("u", n))
			w := p.at(t, "apply", u.Name, "--no-wait")
			w.until("Start this update? [y/N] ")
			if shown := w.said.String(); !strings.Contains(shown, "Plan "+plan.Digest()) || !strings.Contains(shown, "w1") || started(t, u) {
				t.Errorf("it asks about what it has not shown, or has not asked about:\n%s", shown)
			}
			w.types(c.keys)
			if said := w.ends(c.code); !strings.Contains(said, c.says) || started(t, u) != c.yes {
				t.Errorf("started: %t, want %t\n%q", started(t, u), c.yes, said)
			}
		})
	}
	t.Run("a plan that was started is not asked about again; Ctrl-C ends the watching alone", func(t *testing.T) {
		u := ready(t, "again")
		w := p.at(t, "apply", u.Name)
		w.until("[y/N] ")
		w.types("y\n")
		w.until("this command only watches")
		w.types(ctrlC)
		if said := w.ends(console.ExitInterrupted); !strings.Contains(said, "a started update continues in the cluster") || !started(t, u) {
			t.Errorf("%s", said)
		}
		w = p.at(t, "apply", u.Name, "--no-wait")
		if said := w.ends(console.ExitOK); strings.Contains(said, "[y/N]") || !strings.Contains(said, "nothing to start") {
			t.Errorf("%s", said)
		}
	})
	t.Run("without a terminal nothing is asked and nothing started", func(t *testing.T) {
		u := ready(t, "script")
		cmd := command(p, []string{"apply", u.Name})
		cmd.Stdin = strings.NewReader("y\n")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != console.ExitUsage || !strings.Contains(string(out), "use --yes") || started(t, u) {
			t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
		}
	})
}

// The question of refit drill: a yes restarts the node, and the proof is what the node
// says afterwards; everything else leaves the node alone.
func testDrillAsks(t *testing.T, p *person) {
	ctx := context.Background()
	list, err := json.Marshal(model.PinSet{Images: []model.PinSetImage{{Name: "r.example/a:1", Digest: "sha256:" + strings.Repeat("a", 64), Bundle: "sha256:" + strings.Repeat("b", 64)}}})
	if err != nil {
		t.Fatal(err)
	}
	p.keep("pins-1", v1alpha1.ContentPins, string(list))
	node := func(t *testing.T, name string) *v1alpha1.NodeUpdate {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.create(t, n)
		n.Status.NodeInfo.BootID = "boot-1"
		says(t, p, n)
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Spec: v1alpha1.NodeUpdateSpec{Pins: "pins-1"}}
		if err := p.controller.Create(ctx, nu); err != nil {
			t.Fatal(err)
		}
		nu.Status.Pins = &v1alpha1.PinStatus{Content: "pins-1", ImagesTotal: 1, ImagesReady: 1, ImagesPinned: 1}
		nu.Status.ColdStart = &v1alpha1.ColdStart{Copies: 1, CheckedBoot: "boot-1"}
		says(t, p, nu)
		return nu
	}
	asked := func(t *testing.T, nu *v1alpha1.NodeUpdate) string {
		t.Helper()
		if err := p.Get(ctx, client.ObjectKeyFromObject(nu), nu); err != nil {
			t.Fatal(err)
		}
		return nu.Annotations[v1alpha1.AnnotationDrill]
	}
	n := 0
	for name, c := range answers {
		t.Run(name, func(t *testing.T) {
			n++
			nu := node(t, fmt.Sprint("n", n))
			w := p.at(t, "drill", "--node", nu.Name, "--run")
			w.until("remove 1 image from its runtime? [y/N] ")
			if shown := w.said.String(); !strings.Contains(shown, "would recover by itself") || asked(t, nu) != "" {
				t.Errorf("it asks about what it has not shown, or has not asked about:\n%s", shown)
			}
			w.types(c.keys)
			if c.yes {
				w.until("requested a restart of node")
				p.restarts(t, nu, asked(t, nu))
				c.says = "Node " + nu.Name + " recovered by itself"
			}
			if said := w.ends(c.code); !strings.Contains(said, c.says) || (asked(t, nu) != "") != c.yes {
				t.Errorf("asked to restart: %q, want that %t\n%q", asked(t, nu), c.yes, said)
			}
		})
	}
	t.Run("without a terminal nothing is asked and no node restarted", func(t *testing.T) {
		nu := node(t, "script")
		cmd := command(p, []string{"drill", "--node", nu.Name, "--run"})
		cmd.Stdin = strings.NewReader("y\n")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != console.ExitUsage || !strings.Contains(string(out), "use --yes") || asked(t, nu) != "" {
			t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
		}
	})
}

// restarts is what a node says after the drill that it was asked for.
func (p *person) restarts(t *testing.T, nu *v1alpha1.NodeUpdate, drill string) {
	t.Helper()
	var n corev1.Node
	if err := p.Get(context.Background(), client.ObjectKey{Name: nu.Name}, &n); err != nil {
		t.Fatal(err)
	}
	n.Status.NodeInfo.BootID = "boot-2"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	says(t, p, &n)
	nu.Status.ColdStart = &v1alpha1.ColdStart{Copies: 1, CheckedBoot: "boot-2", Drill: drill, Restored: 1}
	says(t, p, nu)
}

func (p *person) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := p.Create(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

// says writes an object's status.
func says(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Status().Update(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

// keep makes a Content, as the controller does.
func (p *person) keep(name, kind, data string) {
	p.t.Helper()
	if err := p.controller.Create(context.Background(), &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Type: kind, Data: data}); err != nil {
		p.t.Fatal(err)
	}
}
