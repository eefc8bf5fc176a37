package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

// situation is one thing that happens to a container. What refit predicts is
// asked before it is brought about, and compared with what the kubelet then does.
type situation struct {
	name string
	// app names the Deployment and its repository.
	app, event, registry string
	// policy of the container; pinned names it by digest.
	policy corev1.PullPolicy
	pinned bool
	// anywhere lets it run on both workers; it begins on n2.
	anywhere bool
	// change the site before refit predicts.
	change func(f *playedSituation, t *testing.T)
	// bring the event about.
	bring func(f *playedSituation, t *testing.T)
	// want is what this situation is about: a prediction of something else, or of
	// nothing, does not count. After is the image that is to run then.
	want  string
	after string
}

// More than twelve situations. The first three are
// part of the story of `make test`.
func situations() []situation {
	const always, ifNotPresent, never = corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever
	return []situation{
		{name: "a crash with policy Always runs the tag as it means now", app: "moved", event: restartforecast.Crash, registry: restartforecast.Up, policy: always,
			change: (*playedSituation).move, bring: (*playedSituation).crash, want: model.OutcomeChanges, after: "b"},
		{name: "a crash with the registry stopped starts what is on the node", app: "stopped", event: restartforecast.Crash, registry: restartforecast.Down, policy: ifNotPresent,
			change: (*playedSituation).stop, bring: (*playedSituation).crash, want: model.OutcomeSame, after: "a"},
		{name: "a crash with policy Always and the registry stopped starts nothing", app: "always", event: restartforecast.Crash, registry: restartforecast.Down, policy: always,
			change: (*playedSituation).stop, bring: (*playedSituation).crash, want: model.OutcomeFails},
		{name: "a crash does not see that the tag moved in the registry", app: "unseen", event: restartforecast.Crash, registry: restartforecast.Up, policy: ifNotPresent,
			change: (*playedSituation).move, bring: (*playedSituation).crash, want: model.OutcomeSame, after: "a"},
		{name: "a crash runs another image when another pod's pull moved the tag on the node", app: "other", event: restartforecast.Crash, registry: restartforecast.Down, policy: ifNotPresent,
			change: func(f *playedSituation, t *testing.T) {
				f.move(t)
				f.deploy(t, "other-puller", f.image(), always, false)
				f.stop(t)
			}, bring: (*playedSituation).crash, want: model.OutcomeChanges, after: "b"},
		{name: "a digest starts with the registry stopped", app: "digest", event: restartforecast.Crash, registry: restartforecast.Down, policy: ifNotPresent, pinned: true,
			change: (*playedSituation).stop, bring: (*playedSituation).crash, want: model.OutcomeSame, after: "a"},
		{name: "a digest with policy Always does not", app: "digestalways", event: restartforecast.Crash, registry: restartforecast.Down, policy: always, pinned: true,
			change: (*playedSituation).stop, bring: (*playedSituation).crash, want: model.OutcomeFails},
		{name: "a digest with policy Always runs the same though the tag moved", app: "digestup", event: restartforecast.Crash, registry: restartforecast.Up, policy: always, pinned: true,
			change: (*playedSituation).move, bring: (*playedSituation).crash, want: model.OutcomeSame, after: "a"},
		{name: "a pod that is made again on its node takes the copy that is there", app: "recreate", event: restartforecast.Recreate, registry: restartforecast.Down, policy: ifNotPresent,
			change: (*playedSituation).stop, bring: (*playedSituation).remake, want: model.OutcomeSame, after: "a"},
		{name: "a pod that moves to a node without the image does not start with the registry stopped", app: "missing", event: restartforecast.Reschedule, registry: restartforecast.Down, policy: ifNotPresent, anywhere: true,
			change: (*playedSituation).stop, bring: (*playedSituation).moveAway, want: model.OutcomeFails},
		{name: "a pod that moves to a node without the image runs the moved tag", app: "differs", event: restartforecast.Reschedule, registry: restartforecast.Up, policy: ifNotPresent, anywhere: true,
			change: (*playedSituation).move, bring: (*playedSituation).moveAway, want: model.OutcomeChanges, after: "b"},
		{name: "a pod with policy Never does not start where the image is not, with the registry up", app: "never", event: restartforecast.Reschedule, registry: restartforecast.Up, policy: never, anywhere: true,
			bring: (*playedSituation).moveAway, want: model.OutcomeFails},
		{name: "one more replica lands where the image is not, and runs the moved tag", app: "scaled", event: restartforecast.ScaleUp, registry: restartforecast.Up, policy: ifNotPresent, anywhere: true,
			change: (*playedSituation).move, bring: (*playedSituation).oneMore, want: model.OutcomeChanges, after: "b"},
		{name: "a node that never had the image runs the moved tag", app: "newnode", event: restartforecast.NewNode, registry: restartforecast.Up, policy: ifNotPresent, anywhere: true,
			change: (*playedSituation).move, bring: (*playedSituation).oneMore, want: model.OutcomeChanges, after: "b"},
		{name: "an image that a user removed from the node is missed at the next crash", app: "removed", event: restartforecast.Crash, registry: restartforecast.Down, policy: ifNotPresent,
			change: func(f *playedSituation, t *testing.T) { f.stop(t); f.remove(t) }, bring: (*playedSituation).crash, want: model.OutcomeFails},
		{name: "a reboot with the registry stopped starts a digest", app: "rebootdigest", event: restartforecast.Reboot, registry: restartforecast.Down, policy: ifNotPresent, pinned: true,
			change: (*playedSituation).stop, bring: (*playedSituation).reboot, want: model.OutcomeSame, after: "a"},
		{name: "a reboot with the registry stopped does not start what has policy Always", app: "rebootalways", event: restartforecast.Reboot, registry: restartforecast.Down, policy: always,
			change: (*playedSituation).stop, bring: (*playedSituation).reboot, want: model.OutcomeFails},
	}
}

// joining is the situation of a node that was not there before: a machine joins
// the cluster, and the next replica lands there.
func joining() situation {
	return situation{name: "a node that joins runs the moved tag", app: "joined", event: restartforecast.NewNode, registry: restartforecast.Up, policy: corev1.PullIfNotPresent, anywhere: true,
		change: (*playedSituation).move, bring: (*playedSituation).join, want: model.OutcomeChanges, after: "b"}
}

// laterNode of the lab joins when it is asked to.
const laterNode = "n4"

// join brings a new machine into the cluster; it is the only one with room.
func (f *playedSituation) join(t *testing.T) {
	t.Helper()
	f.listen(t, laterNode)
	must(t, f.s.Lab.Join(t.Context(), laterNode))
	f.cordon(t, "n3", true)
	f.oneMore(t)
}

// inStory is how many of the situations `make test` brings about.
const inStory = 3

// checkPredictions plays the situations of the story in its lab.
func checkPredictions(t *testing.T, s *scenario.Scenario) {
	w := newSite(t, s)
	for _, c := range situations()[:inStory] {
		t.Run(c.name, func(t *testing.T) { w.play(t, c) })
	}
}

// TestOracle brings about every situation, and keeps what was predicted and what
// came in results/oracle.json.
func TestOracle(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the story plays three of the situations; all of them: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "oracle", From: from, To: to, Nodes: 4, Later: 1, MediumNode: "n2"})
	must(t, s.Components(t.Context()))
	must(t, s.Up(t.Context()))
	w := newSite(t, s)
	// The last one leaves a cluster with one more node.
	for _, c := range append(situations(), joining()) {
		t.Run(c.name, func(t *testing.T) { w.play(t, c) })
	}
	keepResult(t, "oracle.json", func() any { return map[string]any{"kubernetes": from, "situations": w.kept} })
}

// kept is one situation as results/ has it.
type kept struct {
	Situation string `json:"situation"`
	Event     string `json:"event"`
	Registry  string `json:"registry"`
	// Predicted outcome, image and reason; Came is what the kubelet did.
	Predicted string `json:"predicted"`
	To        string `json:"to,omitempty"`
	Why       string `json:"why"`
	Came      string `json:"came"`
	Ran       string `json:"ran,omitempty"`
	Matched   bool   `json:"matched"`
}

// play one situation.
func (w *registrySite) play(t *testing.T, c situation) {
	w.up(t)
	f := &playedSituation{registrySite: w, c: c, digests: map[string]string{}}
	defer f.clean(t) // also when it fails: the next situation wants the nodes as they were
	f.push(t, "a")
	f.prepare(t)
	f.before = f.pod(t, c.app)
	if got := f.before.digest; got != f.digests["a"] {
		t.Fatalf("before anything happened %q runs, not %q", got, f.digests["a"])
	}
	if c.change != nil {
		c.change(f, t)
	}
	row := f.ask(t)
	t.Logf("predicted: %s %s: %s", row.Outcome, row.To, row.Why)
	if row.Outcome != c.want || c.after != "" && row.To != f.digests[c.after] {
		t.Errorf("predicted %s %s, this situation is about %s %s", row.Outcome, row.To, c.want, f.digests[c.after])
	}
	c.bring(f, t)
	came := f.came(t)
	t.Logf("came: %s %s", came.outcome(f.before), came.digest)
	k := kept{Situation: c.name, Event: c.event, Registry: c.registry, Predicted: row.Outcome, To: row.To, Why: row.Why, Came: came.outcome(f.before), Ran: came.digest}
	k.Matched = k.Predicted == k.Came && (k.To == "" || k.To == k.Ran)
	w.kept = append(w.kept, k)
	if !k.Matched {
		t.Errorf("predicted %s %s (%s), and %s %s came", k.Predicted, k.To, k.Why, k.Came, k.Ran)
	}
}

// playedSituation is a situation while it is played.
type playedSituation struct {
	*registrySite
	c       situation
	digests map[string]string // by the letter of the image
	before  seenPod
	made    []string
}

func (f *playedSituation) repository() string { return registryAddress + "/" + f.c.app + "/web" }

// image is the reference of the situation's container.
func (f *playedSituation) image() string {
	if f.c.pinned {
		return f.repository() + "@" + f.digests["a"]
	}
	return f.repository() + ":1.0"
}

// prepare has the container run image a on n2.
func (f *playedSituation) prepare(t *testing.T) {
	t.Helper()
	if f.c.policy == corev1.PullNever { // another user brought it to the node
		f.deploy(t, f.c.app+"-first", f.image(), corev1.PullIfNotPresent, false)
	}
	if f.c.anywhere {
		f.cordon(t, "n3", true)
		defer f.cordon(t, "n3", false)
	}
	f.deploy(t, f.c.app, f.image(), f.c.policy, f.c.anywhere)
}

// deploy makes a Deployment of one replica, and waits until it runs.
func (f *playedSituation) deploy(t *testing.T, name, image string, policy corev1.PullPolicy, anywhere bool) {
	t.Helper()
	one, grace := int32(1), int64(1)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: oracleNamespace, Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &one,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "web", Image: image, ImagePullPolicy: policy}}}}}}
	if !anywhere {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n2"}
	}
	must(t, f.s.Client.Create(t.Context(), d))
	f.made = append(f.made, name)
	eventually(t, time.Minute, name+" runs", func() (bool, string) {
		p, said := f.look(t, name, "")
		return p.digest != "" && p.running, said
	})
}

// move lets the tag mean image b in the registry.
func (f *playedSituation) move(t *testing.T) { f.push(t, "b") }

func (f *playedSituation) push(t *testing.T, letter string) {
	t.Helper()
	f.digests[letter] = f.publish(t, f.c.app+"/web:1.0", f.c.app+" "+letter)
}

func (f *playedSituation) stop(*testing.T) { f.registry.Stop() }

func (f *playedSituation) crash(t *testing.T) {
	t.Helper()
	must(t, f.s.KillContainer(t.Context(), f.before.node, oracleNamespace, f.before.name, "web"))
}

func (f *playedSituation) remake(t *testing.T) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracleNamespace, Name: f.before.name}}
	must(t, f.s.Client.Delete(t.Context(), p))
}

// moveAway makes the pod again on the other worker.
func (f *playedSituation) moveAway(t *testing.T) {
	t.Helper()
	f.cordon(t, f.before.node, true)
	f.remake(t)
}

// oneMore adds a replica, for which only the other worker has room.
func (f *playedSituation) oneMore(t *testing.T) {
	t.Helper()
	f.cordon(t, f.before.node, true)
	var d appsv1.Deployment
	must(t, f.s.Client.Get(t.Context(), client.ObjectKey{Namespace: oracleNamespace, Name: f.c.app}, &d))
	patch := client.MergeFrom(d.DeepCopy())
	two := int32(2)
	d.Spec.Replicas = &two
	must(t, f.s.Client.Patch(t.Context(), &d, patch))
}

// remove takes the image off its node, and waits until the node says so: a list
// that is older than the container proves nothing.
func (f *playedSituation) remove(t *testing.T) {
	t.Helper()
	must(t, f.s.RemoveImage(t.Context(), f.before.node, f.image()))
	eventually(t, 3*time.Minute, "the node's list is without the image", func() (bool, string) {
		a, err := f.forecast(t)
		return err == nil && a.Outcome != model.OutcomeSame, fmt.Sprintf("%s %v", a.Outcome, err)
	})
}

// reboot the node, and give it its way to the registry again.
func (f *playedSituation) reboot(t *testing.T) {
	t.Helper()
	must(t, f.s.Lab.Reboot(t.Context(), f.before.node))
	f.listen(t, f.before.node)
}

func (f *playedSituation) clean(t *testing.T) {
	t.Helper()
	for _, name := range f.made {
		must(t, client.IgnoreNotFound(f.s.Client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: oracleNamespace, Name: name}}, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
	for _, n := range []string{"n2", "n3"} {
		f.cordon(t, n, false)
	}
}

// ask is what refit predicts, by its command line.
func (f *playedSituation) ask(t *testing.T) render.ForecastRow {
	t.Helper()
	row, err := f.forecast(t)
	must(t, err)
	return row
}

func (f *playedSituation) forecast(t *testing.T) (render.ForecastRow, error) {
	t.Helper()
	file := f.s.Path("published-" + f.c.app + ".json")
	text, err := json.Marshal(map[string]any{"repository": f.repository(), "tags": f.answers(t, f.c.app+"/web", "1.0")})
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	r, err := f.s.Run(t.Context(), "tags", "check", "-n", oracleNamespace, "--event", f.c.event, "--registry", f.c.registry, "--published", file, "-o", "json")
	if err != nil {
		return render.ForecastRow{}, err
	}
	var v render.Forecast
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		return render.ForecastRow{}, fmt.Errorf("tags check: exit code %d: %w: %s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	for _, row := range v.Answers {
		if row.Pod == oracleNamespace+"/"+f.before.name && row.Container == "web" {
			return row, nil
		}
	}
	return render.ForecastRow{}, fmt.Errorf("tags check says nothing of pod %s:\n%s", f.before.name, r.Stdout)
}
