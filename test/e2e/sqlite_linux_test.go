package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// documentedMove is the update of a cluster by the distribution's own way.
type documentedMove struct {
	Steps []string `json:"steps"`
	// PauseSeconds between a node that is Ready and the next node.
	PauseSeconds int `json:"pauseSeconds"`
	// Waits are the containers that waited for an image.
	Waits []scenario.ImageWait `json:"containersWithoutImage"`
	// Requests for a registry that nodes made.
	Requests int64   `json:"requestsForRegistry"`
	Seconds  float64 `json:"seconds"`
}

// undoneMove is a server that was undone over a minor version.
type undoneMove struct {
	From, To string
	// Halt is what `refit status` said of the failed server.
	Halt string `json:"halt"`
	// CopiedFiles of the database.
	CopiedFiles []string `json:"copiedFiles"`
	// Objects written before the update, and by the new server after the copy: whether they
	// are there after the undo.
	BeforeUpdateIsThere bool `json:"objectFromBeforeTheUpdateIsThere"`
	AfterCopyIsThere    bool `json:"objectFromAfterTheCopyIsThere"`
	// APIUnavailableSeconds of the undo, Seconds from the decision of a person until the
	// node was reported undone and was Ready.
	APIUnavailableSeconds float64 `json:"apiUnavailableSeconds"`
	Seconds               float64 `json:"seconds"`
}

// sqliteRun is what results/lookalike-sqlite.json keeps.
type sqliteRun struct {
	Distribution string               `json:"distribution"`
	Datastore    string               `json:"datastore"`
	From         string               `json:"from"`
	To           string               `json:"to"`
	Documented   documentedMove       `json:"documentedWay"`
	Undone       undoneMove           `json:"undone"`
	Move         *distributionMove    `json:"move"`
	Waits        []scenario.ImageWait `json:"containersWithoutImage"`
	Requests     int64                `json:"requestsForRegistry"`
	Steps        []outcome            `json:"steps"`
}

// documentedPause is the time that a person takes for a node that is Ready.
const documentedPause = 30 * time.Second

// TestLookAlikeSQLite runs on the lab's look-alike of k3s whose server stores in SQLite
// through kine, and does the same update twice: by the distribution's documented way, and by
// refit from a stick. With refit the new server first does not become healthy. refit halts,
// and a person decides for the undo: the server returns over the minor version with its
// data. Then all nodes move.
func TestLookAlikeSQLite(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("two labs of its own: make e2e")
	}
	d := lookAlikes[0]
	r := &sqliteRun{Distribution: "look-alike of " + d.name, Datastore: "SQLite through kine", From: d.from, To: d.to}
	keepResult(t, "lookalike-sqlite.json", func() any {
		r.Steps = played[t.Name()+"/refit"]
		return r
	})
	o := scenario.Options{Distribution: d.name, Datastore: lab.DatastoreSQLite, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"}
	t.Run("documented", func(t *testing.T) {
		o.Name = "sqlite-documented"
		documentedWay(t, prepared(t, o), &r.Documented)
	})
	t.Run("refit", func(t *testing.T) {
		o.Name = "sqlite-refit"
		refitsWay(t, prepared(t, o), r, nil)
	})
}

// Lines of a run at which agents die, in the order in which a server with SQLite passes them
// in an attempt that fails, its undo, and the attempt after it; and in which an agent node
// passes them.
var (
	sqliteServerPoints = []string{
		failpoint.JournalRun, failpoint.StepBefore, failpoint.SQLiteStopped, failpoint.SQLiteCopied, failpoint.KubeletReplaced, failpoint.KubeletRestarted,
		failpoint.SQLiteStopped, failpoint.KubeletRestored, failpoint.SQLiteRenamed, failpoint.SQLiteRestored, failpoint.StepAfter,
		failpoint.JournalStep, failpoint.JournalFinish, failpoint.RunReported,
	}
	agentNodePoints = []string{
		failpoint.JournalRun, failpoint.StepBefore, failpoint.KubeletReplaced, failpoint.KubeletRestarted, failpoint.StepAfter,
		failpoint.JournalStep, failpoint.JournalFinish, failpoint.RunReported,
	}
)

// TestLookAlikeSQLiteKills is the same without a person: the new server never starts, so no
// API server could order an undo. The node undoes its update by itself. Meanwhile the agent
// of every node dies once at each line of its run, also of the undo.
func TestLookAlikeSQLiteKills(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own: make e2e")
	}
	d := lookAlikes[0]
	r := &sqliteRun{Distribution: "look-alike of " + d.name, Datastore: "SQLite through kine", From: d.from, To: d.to}
	cut := map[string][]string{}
	keepResult(t, "lookalike-sqlite-kills.json", func() any {
		return map[string]any{"distribution": r.Distribution, "datastore": r.Datastore, "agentsKilledAt": cut, "undone": r.Undone, "move": r.Move, "steps": played[t.Name()]}
	})
	o := scenario.Options{Name: "sqlite-kills", Distribution: d.name, Datastore: lab.DatastoreSQLite, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"}
	withFailpoints(&o)
	refitsWay(t, prepared(t, o), r, cut)
}

// dieAtAll has the agents of all nodes die at each of their lines, until ctx ends; wait
// returns when they have stopped, with the lines in cut.
func dieAtAll(ctx context.Context, s *scenario.Scenario, cut map[string][]string) (wait func()) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, n := range s.Lab.Nodes() {
		points := agentNodePoints
		if i == 0 {
			points = sqliteServerPoints
		}
		wg.Go(func() {
			for _, p := range points {
				if diesAt(ctx, s, n, p) {
					mu.Lock()
					cut[n] = append(cut[n], p)
					mu.Unlock()
				}
			}
		})
	}
	return wg.Wait
}

// documentedWay updates node by node: images folder, program, restart.
func documentedWay(t *testing.T, s *scenario.Scenario, m *documentedMove) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	program, err := components.ForLookAlike(ctx, s.To, func(line string) { t.Log(line) })
	must(t, err)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	images, began := scenario.WatchImages(watch, s.Client), time.Now()
	m.PauseSeconds = int(documentedPause.Seconds())
	m.Steps = []string{"on each node, the server first: copy the new archives into the folder of images", "replace the program", "restart the unit and wait until the node is Ready", "pause, then the next node"}
	for _, n := range s.Lab.Nodes() {
		must(t, s.MoveAsDocumented(ctx, n, program))
		eventually(t, 3*time.Minute, n+" is Ready at "+s.To, func() (bool, string) {
			version, ready, err := s.Kubelet(ctx, n)
			return ready && version == s.To && err == nil, fmt.Sprint(version, ready, err)
		})
		time.Sleep(documentedPause)
	}
	m.Waits, m.Seconds = images.Waits(), time.Since(began).Seconds()
	out, err := s.Outside(ctx)
	must(t, err)
	if m.Requests = out.Requests; len(m.Waits) == 0 {
		t.Error("no container waited for an image: the comparison shows nothing")
	}
}

// refitsWay updates from a stick. With cut not nil, agents die at all lines, and cut gets them.
func refitsWay(t *testing.T, s *scenario.Scenario, r *sqliteRun, cut map[string][]string) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(s.To, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, device))
	must(t, s.Client.Create(ctx, sqlitePool(cut != nil)))
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Eject(ctx, s.MediumNode, device))
	watch, stop := context.WithCancel(ctx)
	defer stop()
	images := scenario.WatchImages(watch, s.Client)
	if cut != nil {
		wait := dieAtAll(watch, s, cut)
		defer func() { stop(); wait(); diedAtAll(t, s, cut) }()
	}
	step(t, "the plan says what an undo of the server loses", func(t *testing.T) {
		plan, err := s.Run(ctx, "plan")
		must(t, err)
		if !strings.Contains(plan.Stdout, "An undo restores this copy: objects that changed after it was made are lost") {
			t.Errorf("the plan does not say it:\n%s", plan.Stdout)
		}
	})
	undoServer(t, s, &r.Undone, cut != nil)
	step(t, "after the undo, all nodes move", func(t *testing.T) {
		r.Move = moveAfterUndo(t, s)
	})
	r.Waits = images.Waits()
	if len(r.Waits) > 0 {
		t.Errorf("containers waited for images: %+v", r.Waits)
	}
	out, err := s.Outside(ctx)
	must(t, err)
	r.Requests = out.Requests
	noRequestForARegistry(t, s)
}

// sqlitePool halts at a failed server, or lets it undo its update by itself.
func sqlitePool(alone bool) *v1alpha1.UpdatePool {
	p, minute := pool(), int32(60)
	if p.Spec.OnFailure, p.Spec.StepDeadlineSeconds = v1alpha1.FailureHalt, 150; alone {
		p.Spec.OnFailure, p.Spec.StepDeadlineSeconds, p.Spec.UndoDeadlineSeconds = v1alpha1.FailureUndo, 0, &minute
	}
	return p
}

func diedAtAll(t *testing.T, s *scenario.Scenario, cut map[string][]string) {
	t.Helper()
	for i, n := range s.Lab.Nodes() {
		want := agentNodePoints
		if i == 0 {
			want = sqliteServerPoints
		}
		if !slices.Equal(cut[n], want) {
			t.Errorf("the agent of %s died at %v, want %v", n, cut[n], want)
		}
	}
}

// breakNewKubelet sends a signal to each kubelet of n1 that is not the one of now, while the
// file exists. STOP leaves a server whose API server works and whose kubelet hangs. KILL
// leaves a server that starts again and again.
const (
	breakFile       = "/run/break-new-kubelet"
	breakNewKubelet = `touch ` + breakFile + `; old=$(readlink /proc/$(pgrep -x kubelet)/exe)
while [ -e ` + breakFile + ` ]; do for p in $(pgrep -x kubelet); do
	e=$(readlink /proc/$p/exe); [ -z "$e" ] || [ "$e" = "$old" ] || kill -$0 $p; done; sleep 0.05; done`
)

func undoServer(t *testing.T, s *scenario.Scenario, u *undoneMove, alone bool) {
	t.Helper()
	ctx := t.Context()
	u.From, u.To = s.From, s.To
	must(t, writeMark(ctx, s, "before-update"))
	signal, broken := "STOP", make(chan error, 1)
	if alone {
		signal = "KILL"
	}
	go func() { broken <- s.Exec(context.WithoutCancel(ctx), "n1", "sh", "-c", breakNewKubelet, signal) }()
	step(t, "a new server stores objects and does not become healthy", func(t *testing.T) {
		startUpdate(t, s)
		eventually(t, 5*time.Minute, "the new server stores an object", func() (bool, string) {
			version, err := serverVersion(s)
			if err != nil || version != s.To {
				return false, fmt.Sprint(version, err)
			}
			err = writeMark(ctx, s, "after-copy")
			return err == nil, fmt.Sprint(err)
		})
	})
	if alone {
		step(t, "the server undoes its update by itself, with its data", func(t *testing.T) { undoneAlone(t, s, u) })
	} else {
		step(t, "the update halts, and nothing is restored", func(t *testing.T) { haltedServer(t, s, u) })
		step(t, "a person decides for the undo: the server returns with its data", func(t *testing.T) { undoneByPerson(t, s, u) })
	}
	must(t, s.Exec(ctx, "n1", "rm", breakFile))
	must(t, <-broken)
}

func haltedServer(t *testing.T, s *scenario.Scenario, u *undoneMove) {
	t.Helper()
	said := halted(t, s)
	u.Halt, _, _ = strings.Cut(said, "\n")
	if !strings.Contains(said, "n1") {
		t.Errorf("the halt does not name n1: %s", said)
	}
	files, err := s.Output(t.Context(), "n1", "sh", "-c", "cd /var/lib/refit/rollback/*/sqlite-snapshot && ls")
	must(t, err)
	u.CopiedFiles = strings.Fields(files)
	if _, there := mark(t, s, "after-copy"); !there {
		t.Error("refit restored something before a person decided")
	}
}

func undoneAlone(t *testing.T, s *scenario.Scenario, u *undoneMove) {
	t.Helper()
	began := time.Now()
	awaitUndone(t, s, func(run *v1alpha1.NodeRunStatus) bool {
		u.Halt = run.Message
		return run.State == v1alpha1.RunFailed && run.Reason == v1alpha1.ReasonUndoneByDeadline
	})
	u.Seconds = time.Since(began).Seconds()
	returned(t, s, u)
}

func undoneByPerson(t *testing.T, s *scenario.Scenario, u *undoneMove) {
	t.Helper()
	ctx := t.Context()
	var p v1alpha1.UpdatePool
	must(t, s.Client.Get(ctx, client.ObjectKey{Name: "all"}, &p))
	p.Spec.OnFailure = v1alpha1.FailureUndo
	watch, stop := context.WithCancel(ctx)
	defer stop()
	conf, err := s.Lab.RESTConfig()
	must(t, err)
	api, began := scenario.WatchAPI(watch, conf.Host+"/readyz"), time.Now()
	must(t, s.Client.Update(ctx, &p))
	awaitUndone(t, s, func(run *v1alpha1.NodeRunStatus) bool { return run.State == v1alpha1.RunUndone })
	u.Seconds, u.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	returned(t, s, u)
}

// awaitUndone waits until n1 is Ready at its old version, and its run is as it should be.
func awaitUndone(t *testing.T, s *scenario.Scenario, is func(*v1alpha1.NodeRunStatus) bool) {
	t.Helper()
	eventually(t, 10*time.Minute, "n1 is undone and Ready at "+s.From, func() (bool, string) {
		version, ready, err := s.Kubelet(t.Context(), "n1")
		nu, nerr := nodeUpdate(t, s, "n1")
		if err != nil || nerr != nil {
			return false, fmt.Sprint(err, nerr)
		}
		run := nu.Status.Run
		return ready && version == s.From && run != nil && is(run), fmt.Sprintf("%s, ready: %v, %+v", version, ready, run)
	})
}

// returned checks programs and data of a server that was undone.
func returned(t *testing.T, s *scenario.Scenario, u *undoneMove) {
	t.Helper()
	version, err := serverVersion(s)
	must(t, err)
	program, err := s.Output(t.Context(), "n1", s.Distribution, "--version")
	must(t, err)
	if version != s.From || !strings.Contains(program, s.From+" ") {
		t.Errorf("the API server runs %s, and the program is %s, want %s", version, program, s.From)
	}
	_, u.BeforeUpdateIsThere = mark(t, s, "before-update")
	_, u.AfterCopyIsThere = mark(t, s, "after-copy")
	if !u.BeforeUpdateIsThere || u.AfterCopyIsThere {
		t.Errorf("the object from before the update is there: %v, that from after the copy: %v", u.BeforeUpdateIsThere, u.AfterCopyIsThere)
	}
}

// moveAfterUndo has a person try again: the server and the agents move.
func moveAfterUndo(t *testing.T, s *scenario.Scenario) *distributionMove {
	t.Helper()
	ctx := t.Context()
	eventually(t, 8*time.Minute, "the update halted at the undone server", func() (bool, string) {
		v, ok := status(t, s)
		return ok && strings.Contains(v.Headline, "n1"), v.Headline
	})
	m := &distributionMove{To: s.To, Nodes: map[string]*movedNode{}}
	before := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		before[n] = runningOn(t, s, n)
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	conf, err := s.Lab.RESTConfig()
	must(t, err)
	api, began := scenario.WatchAPI(watch, conf.Host+"/readyz"), time.Now()
	retry(t, s)
	eventually(t, 3*time.Minute, "the controller has seen the retry", func() (bool, string) {
		v, ok := status(t, s)
		return ok && !strings.HasPrefix(v.Headline, "Halted"), v.Headline
	})
	done, err := s.Run(ctx, "status", "--watch", "--timeout", "15m")
	must(t, err)
	if done.Code != 0 {
		t.Fatalf("status --watch: exit code %d\n%s", done.Code, done.Stdout)
	}
	m.Seconds, m.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	for _, n := range s.Lab.Nodes() {
		m.Nodes[n] = movedTo(t, s, n, s.To, before[n])
	}
	if _, there := mark(t, s, "before-update"); !there {
		t.Error("the object from before the update is gone")
	}
	waitsForImage(t, s)
	return m
}

func serverVersion(s *scenario.Scenario) (string, error) {
	conf, err := s.Lab.RESTConfig()
	if err != nil {
		return "", err
	}
	conf.Timeout = 5 * time.Second
	c, err := discovery.NewDiscoveryClientForConfig(conf)
	if err != nil {
		return "", err
	}
	v, err := c.ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

// writeMark writes an object with data.
func writeMark(ctx context.Context, s *scenario.Scenario, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := s.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"written": "yes"}})
	return client.IgnoreAlreadyExists(err)
}

func mark(t *testing.T, s *scenario.Scenario, name string) (*corev1.ConfigMap, bool) {
	t.Helper()
	var m corev1.ConfigMap
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &m)
	if !apierrors.IsNotFound(err) {
		must(t, err)
	}
	return &m, err == nil && m.Data["written"] == "yes"
}
