package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// undoneMove is a server that was undone over a minor version.
type undoneMove struct {
	From string `json:"from"`
	To   string `json:"to"`
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

// sqliteRun is what each of the files results/lookalike-*.json of this test keeps.
type sqliteRun struct {
	Distribution string      `json:"distribution"`
	Datastore    string      `json:"datastore"`
	From         string      `json:"from"`
	To           string      `json:"to"`
	Undone       *undoneMove `json:"undone,omitempty"`
	Move         *sqliteMove `json:"move,omitempty"`
}

// sqliteMove is the move of all nodes after the undo.
type sqliteMove struct {
	*distributionMove
	// Retries that a person needed, and the containers that waited for an image in undo and
	// move.
	Retries int                  `json:"retries"`
	Waits   []scenario.ImageWait `json:"containersWithoutImage"`
}

// TestLookAlikeSQLite runs on the lab's look-alike of k3s whose server stores in SQLite
// through kine. The new server first does not become healthy. refit halts, and a person decides
// for the undo: the server returns over the minor version with its data. Then all nodes move.
func TestLookAlikeSQLite(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own: make e2e")
	}
	d := lookAlikes[0]
	o := scenario.Options{Distribution: d.name, Datastore: lab.DatastoreSQLite, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"}
	keep := func(t *testing.T, file string) *sqliteRun {
		r := &sqliteRun{Distribution: "look-alike of " + d.name, Datastore: "SQLite through kine", From: d.from, To: d.to}
		keepResult(t, file, func() any { return r })
		return r
	}
	o.Name = "sqlite-refit"
	s := prepared(t, o)
	watch, stop := context.WithCancel(t.Context())
	defer stop()
	var images *scenario.ImageMonitor
	step(t, "the only server is undone over the minor version, with its data", func(t *testing.T) {
		r := keep(t, "lookalike-sqlite.json")
		readyForUpdate(t, s)
		images = scenario.WatchImages(watch, s.Client)
		r.Undone = &undoneMove{}
		undoServer(t, s, r.Undone)
	})
	step(t, "then all nodes move over the minor version", func(t *testing.T) {
		r := keep(t, "lookalike-sqlite-move.json")
		r.Move = moveAfterUndo(t, s)
		if r.Move.Waits = images.Waits(); len(r.Move.Waits) > 0 {
			t.Errorf("containers waited for images: %+v", r.Move.Waits)
		}
		noRequestForARegistry(t, s)
	})
}

// readyForUpdate has nodes hold a bundle from a stick, in a pool that halts at a failed server.
func readyForUpdate(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(s.To, "v")})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, device))
	p := pool()
	p.Spec.OnFailure, p.Spec.StepDeadlineSeconds = v1alpha1.FailureHalt, 150
	must(t, s.Client.Create(ctx, p))
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Eject(ctx, s.MediumNode, device))
	plan, err := s.Run(ctx, "plan")
	must(t, err)
	if !strings.Contains(plan.Stdout, "An undo restores this copy: objects that changed after it was made are lost") {
		t.Errorf("the plan does not say what an undo loses:\n%s", plan.Stdout)
	}
}

// breakNewKubelet stops each kubelet of n1 that is not the one of now, while the file exists:
// it leaves a server whose API server works and whose kubelet hangs.
const (
	breakFile       = "/run/break-new-kubelet"
	breakNewKubelet = `touch ` + breakFile + `; old=$(readlink /proc/$(pgrep -x kubelet)/exe)
while [ -e ` + breakFile + ` ]; do for p in $(pgrep -x kubelet); do
	e=$(readlink /proc/$p/exe); [ -z "$e" ] || [ "$e" = "$old" ] || kill -STOP $p; done; sleep 0.05; done`
)

func undoServer(t *testing.T, s *scenario.Scenario, u *undoneMove) {
	t.Helper()
	ctx := t.Context()
	u.From, u.To = s.From, s.To
	must(t, writeMark(ctx, s, "before-update"))
	broken := make(chan error, 1)
	go func() { broken <- s.Exec(context.WithoutCancel(ctx), "n1", "sh", "-c", breakNewKubelet) }()
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
	step(t, "the update halts, and nothing is restored", func(t *testing.T) { haltedServer(t, s, u) })
	step(t, "a person decides for the undo: the server returns with its data", func(t *testing.T) { undoneByPerson(t, s, u) })
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
	awaitUndone(t, s)
	u.Seconds, u.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	returned(t, s, u)
}

// awaitUndone waits until n1 is Ready at its old version, and its run undone.
func awaitUndone(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	eventually(t, 10*time.Minute, "n1 is undone and Ready at "+s.From, func() (bool, string) {
		version, ready, err := s.Kubelet(t.Context(), "n1")
		nu, nerr := nodeUpdate(t, s, "n1")
		if err != nil || nerr != nil {
			return false, fmt.Sprint(err, nerr)
		}
		run := nu.Status.Run
		return ready && version == s.From && run != nil && run.State == v1alpha1.RunUndone, fmt.Sprintf("%s, ready: %v, %+v", version, ready, run)
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

// retryPause is the time after a retry in which the update may still be reported halted.
const retryPause = 30 * time.Second

// moveAfterUndo has a person try again: the server and the agents move.
func moveAfterUndo(t *testing.T, s *scenario.Scenario) *sqliteMove {
	t.Helper()
	ctx := t.Context()
	eventually(t, 8*time.Minute, "the update halted at the undone server", func() (bool, string) {
		v, ok := status(t, s)
		return ok && strings.HasPrefix(v.Headline, "Halted"), v.Headline
	})
	m := &sqliteMove{distributionMove: &distributionMove{To: s.To, Nodes: map[string]*movedNode{}}}
	before := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		before[n] = runningOn(t, s, n)
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	conf, err := s.Lab.RESTConfig()
	must(t, err)
	api, began := scenario.WatchAPI(watch, conf.Host+"/readyz"), time.Now()
	code := 5
	for ; code == 5 && m.Retries < 12; m.Retries++ {
		retry(t, s)
		time.Sleep(retryPause)
		done, err := s.Run(ctx, "status", "--watch", "--timeout", "15m")
		must(t, err)
		headline, _, _ := strings.Cut(done.Stdout, "\n")
		t.Logf("after %d retries: exit code %d: %s", m.Retries+1, done.Code, headline)
		code = done.Code
	}
	m.Seconds, m.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	if code != 0 {
		t.Fatalf("the update did not finish: exit code %d", code)
	}
	for _, n := range s.Lab.Nodes() {
		m.Nodes[n] = movedTo(t, s, n, s.To, before[n])
	}
	if _, there := mark(t, s, "before-update"); !there {
		t.Error("the object from before the update is gone")
	}
	waitsForImage(t, s)
	m.Restore = rehearseRestore(t, s)
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
