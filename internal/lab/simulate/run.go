package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller"
)

// look is how often it is looked whether something is done.
const look = 100 * time.Millisecond

// say is the interval of progress lines.
const say = 5 * time.Second

// arrive is how long what a dead controller wrote may still be on its way.
const arrive = 250 * time.Millisecond

// updateName of the ClusterUpdate.
const updateName = "simulated"

// run is a run in progress.
type run struct {
	Options
	servers    *servers
	fleet      *fleet
	controller *controllerProcess
	result     Result
	bundle     *simulatedMedium
	refused    chan error

	looks     *Looks
	said      time.Time
	killed    time.Time
	cpuBefore map[string]float64
}

// Run simulates. The result is also there, as far as it is known, with an error.
func Run(ctx context.Context, o Options) (Result, error) {
	r := &run{Options: o, looks: NewLooks(), refused: make(chan error, 1)}
	if err := o.check(); err != nil {
		return r.result, err
	}
	if o.HugePages {
		restore, err := useHugePages()
		if err != nil {
			return r.result, err
		}
		defer restore()
	}
	r.describe()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	err := r.runPhases(ctx, &wg)
	cancel()
	wg.Wait()
	if r.controller != nil {
		r.controller.end(syscall.SIGTERM)
	}
	err = errors.Join(err, r.servers.stop())
	r.result.Machine.After = LoadAverage()
	r.result.evaluate()
	if err != nil {
		r.result.OK = false
		r.result.Problems = append(r.result.Problems, err.Error())
	}
	return r.result, err
}

func (r *run) describe() {
	r.result = Result{APIVersion: "refit.dev/simulation/v1", Kind: "Simulation", Date: time.Now().UTC().Truncate(time.Second), Commit: r.Commit,
		Machine: DescribeMachine(), Nodes: r.Nodes, Budget: r.Budget, Seed: r.Seed, MeanSeconds: r.Mean.Seconds(), BoundSeconds: r.bound().Seconds(),
		Phases: map[string]float64{}, CPU: map[string]float64{},
		Notes: []string{
			"real: etcd (without fsync; both servers with GOGC=" + serversGC + " up to " + serversMemory + "), kube-apiserver with the Node authorizer, NodeRestriction and refit's policies, the controller in its own process",
			"simulated: the nodes, in the process that measures: one watch and one connection for all, every write as its own node (impersonation), one key for all agents",
			"a node pins at once, and its Node has no pods, heartbeat or image list. Its steps take a seeded time, uniform within a third of the mean; its kubelet writes twice",
			"the limit of decisions is on processorP99Seconds, their CPU time; p99Seconds and meanSeconds are wall clock time without requests, and include the wait for a busy core",
		}}
	r.result.Writes.Method = "apiserver_request_total of the API server, successful writes by verb and resource, differences between the marks; max of a node: its versions as the watches show them"
}

func (r *run) runPhases(ctx context.Context, wg *sync.WaitGroup) error {
	for _, phase := range []struct {
		name string
		do   func(context.Context, *sync.WaitGroup) error
	}{{"servers", r.start}, {"join", r.join}, {"prepare", r.prepare}, {"update", r.update}} {
		began := time.Now()
		r.reportf("%s ...", phase.name)
		if err := phase.do(ctx, wg); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		r.result.Phases[phase.name] = time.Since(began).Seconds()
	}
	return nil
}

func (r *run) reportf(format string, args ...any) {
	r.said = time.Now()
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// start brings the servers up and registers the nodes.
func (r *run) start(ctx context.Context, wg *sync.WaitGroup) error {
	var err error
	if r.servers, err = startServers(ctx, r.Options); err != nil {
		return err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	if r.bundle, err = newMedium(); err != nil {
		return err
	}
	chunks, err := serveChunks(r.bundle)
	if err != nil {
		return err
	}
	wg.Go(func() {
		<-ctx.Done()
		_ = chunks.server.Close()
	})
	refuse := func(err error) {
		select {
		case r.refused <- err:
		default:
		}
	}
	if r.fleet, err = newFleet(ctx, r.servers.admin, scheme, r.Options, chunks, refuse); err != nil {
		return err
	}
	var sum time.Duration
	for _, n := range r.fleet.nodes {
		sum += n.takes
	}
	r.result.DrawnMeanSeconds = (sum / time.Duration(r.Nodes)).Seconds()
	wg.Go(func() { r.fleet.run(ctx) })
	return errors.Join(r.fleet.create(ctx), r.createCluster(ctx))
}

// createCluster creates the objects of users and kubeadm: a control-plane node at the
// target, and a pool of all others.
func (r *run) createCluster(ctx context.Context) error {
	budget := intstr.FromInt32(int32(r.Budget))
	master := (&node{name: "control-plane", kubelet: to, ready: true}).kubeNode()
	master.Labels = map[string]string{"kubernetes.io/hostname": master.Name, "node-role.kubernetes.io/control-plane": ""}
	for _, o := range []client.Object{master,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, Data: map[string]string{"ClusterConfiguration": "kubernetesVersion: " + to + "\n"}},
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &budget,
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"simulated": "true"}}}},
	} {
		if err := r.fleet.api.Create(ctx, o); err != nil {
			return fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// join starts the controller and waits until every agent has its peers and its right to
// read them, and all writes have ended.
func (r *run) join(ctx context.Context, _ *sync.WaitGroup) error {
	var err error
	if r.controller, err = newController(r.Options, r.servers.kubeconfig); err != nil {
		return err
	}
	if err := r.controller.up(); err != nil {
		return err
	}
	quiet := 3*time.Second + time.Duration(r.Nodes)*time.Millisecond/2
	return r.wait(ctx, func() (bool, string) {
		joined, _, _, _, last, _ := r.fleet.seen.snapshot()
		if joined < r.Nodes || time.Since(last) <= quiet {
			return false, fmt.Sprintf("%d of %d agents have their peers", joined, r.Nodes)
		}
		granted, err := r.grants(ctx)
		return err == nil && granted >= r.Nodes, fmt.Sprintf("%d of %d nodes may read their NodeUpdate", granted, r.Nodes)
	})
}

// grants counts the RoleBindings of refit-nodes.
func (r *run) grants(ctx context.Context) (int, error) {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBindingList"))
	if err := r.fleet.api.List(ctx, page, client.InNamespace(v1alpha1.NodesNamespace), client.Limit(1)); err != nil {
		return 0, err
	}
	n := len(page.Items)
	if page.RemainingItemCount != nil {
		n += int(*page.RemainingItemCount)
	}
	return n, nil
}

// prepare plugs the stick in, approves it, and waits for the gate.
func (r *run) prepare(ctx context.Context, _ *sync.WaitGroup) error {
	before, err := CountWrites(ctx, r.servers.admin)
	if err != nil {
		return err
	}
	r.result.Writes.Joining = before
	if err := r.looks.Begin(ctx, r.controller.metrics); err != nil {
		return err
	}
	r.fleet.seen.mark()
	r.fleet.plugIn()
	for _, o := range []client.Object{
		&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "simulated"}, Spec: v1alpha1.BundleSpec{Digest: r.bundle.digest}},
		&v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: updateName}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: r.bundle.digest, Start: v1alpha1.StartManual}},
	} {
		if err := r.fleet.api.Create(ctx, o); err != nil {
			return fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	if err := r.waitPhase(ctx, v1alpha1.PhaseReady, nil); err != nil {
		return err
	}
	after, err := CountWrites(ctx, r.servers.admin)
	r.result.Writes.Preparing = after.Minus(before)
	return err
}

// update starts it as a person would, and waits for the end.
func (r *run) update(ctx context.Context, _ *sync.WaitGroup) error {
	before, err := CountWrites(ctx, r.servers.admin)
	if err != nil {
		return err
	}
	r.cpuBefore = r.cpu()
	if err := r.approve(ctx); err != nil {
		return err
	}
	began := time.Now()
	restart := r.restart
	if !r.Restart {
		restart = nil
	}
	if err := r.waitPhase(ctx, v1alpha1.PhaseDone, restart); err != nil {
		return err
	}
	r.result.WallSeconds = time.Since(began).Seconds()
	r.result.WallOfBound = r.result.WallSeconds / r.result.BoundSeconds
	return r.measure(ctx, before)
}

// approve sets what `refit apply` sets.
func (r *run) approve(ctx context.Context) error {
	var u v1alpha1.ClusterUpdate
	if err := r.fleet.api.Get(ctx, client.ObjectKey{Name: updateName}, &u); err != nil {
		return err
	}
	p := u.DeepCopy()
	p.Spec.Start, p.Spec.PlanDigest = v1alpha1.StartImmediate, u.Status.PlanDigest
	return r.fleet.api.Patch(ctx, p, client.MergeFrom(&u))
}

// measure puts together what was counted.
func (r *run) measure(ctx context.Context, before Counts) error {
	after, err := CountWrites(ctx, r.servers.admin)
	if err != nil {
		return err
	}
	res, n := &r.result, float64(r.Nodes)
	res.Writes.Updating = after.Minus(before)
	prepared, _, eventsPreparing := Counts(res.Writes.Preparing).Split()
	updated, kubelet, events := Counts(res.Writes.Updating).Split()
	res.WritesPerNode, res.Writes.KubeletPerNode, res.Writes.EventsPerNode = (prepared+updated)/n, kubelet/n, (events+eventsPreparing)/n
	_, _, res.MaxUnavailable, res.MaxWritesOfANode, _, _ = r.fleet.seen.snapshot()
	for name, seconds := range r.cpu() {
		res.CPU[name] = seconds - r.cpuBefore[name]
	}
	if err := r.looks.Read(ctx, r.controller.metrics); err != nil {
		return err
	}
	res.Decisions = r.looks.Summary()
	res.ControllerRSS = r.controller.rss()
	return nil
}

func (r *run) cpu() map[string]float64 {
	out := map[string]float64{"controller": r.controller.seconds(), "simulation": ProcessCPU(os.Getpid())}
	for name, pid := range ListChildren("kube-apiserver", "etcd") {
		out[name] = ProcessCPU(pid)
	}
	return out
}

// restart kills the controller once half of the nodes are done, and measures
// until the new one writes to a node. done reports that there is no more to do.
func (r *run) restart(ctx context.Context) (done bool, err error) {
	_, succeeded, _, _, _, wrote := r.fleet.seen.snapshot()
	switch {
	case r.result.Restart == nil && succeeded < r.Nodes/2:
		return false, nil
	case r.result.Restart == nil:
		if err := r.looks.Read(ctx, r.controller.metrics); err != nil {
			return false, err
		}
		r.killed = time.Now()
		r.controller.end(syscall.SIGKILL)
		r.result.Restart = &Restart{DoneBefore: succeeded}
		time.Sleep(arrive)
		return false, r.controller.up()
	case r.result.Restart.GapSeconds == 0:
		if wrote.Sub(r.killed) > arrive {
			r.result.Restart.GapSeconds = wrote.Sub(r.killed).Seconds()
			r.reportf("the controller was killed at %d nodes; its successor wrote to a node %.1f s later", r.result.Restart.DoneBefore, r.result.Restart.GapSeconds)
		}
		return false, nil
	}
	return true, nil
}

// waitPhase waits for a phase of the update; between is asked to do its part
// until it is done.
func (r *run) waitPhase(ctx context.Context, phase string, between func(context.Context) (bool, error)) error {
	var failed error
	err := r.wait(ctx, func() (bool, string) {
		if between != nil {
			done, err := between(ctx)
			if err != nil {
				failed = err
				return true, ""
			}
			if done {
				between = nil
			}
		}
		var u v1alpha1.ClusterUpdate
		if err := r.fleet.api.Get(ctx, client.ObjectKey{Name: updateName}, &u); err != nil {
			return false, err.Error()
		}
		if u.Status.Phase == v1alpha1.PhaseHalted && phase == v1alpha1.PhaseDone {
			failed = fmt.Errorf("halted: %s", u.Status.WaitingFor)
			return true, ""
		}
		_, _, out, _, _, _ := r.fleet.seen.snapshot()
		return u.Status.Phase == phase, fmt.Sprintf("%s, %s nodes, at most %d unavailable at once, waits: %s", u.Status.Phase, u.Status.Progress, out, u.Status.WaitingFor)
	})
	return errors.Join(err, failed)
}

// wait looks until it is done, and says now and then how far it is.
func (r *run) wait(ctx context.Context, done func() (bool, string)) error {
	for {
		ok, how := done()
		if ok {
			return nil
		}
		if err := r.controller.alive(); err != nil {
			return err
		}
		if time.Since(r.said) > say {
			r.reportf("  %s", how)
			select {
			case err := <-r.refused:
				r.reportf("  a write was refused and is tried again: %v", err)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %s", ctx.Err(), how)
		case <-time.After(look):
		}
	}
}

// each does something for all, some at a time, and stops at the first error.
func each[T any](workers int, all []T, do func(T) error) error {
	jobs := make(chan T)
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	stop := make(chan struct{})
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				if err := do(j); err != nil {
					once.Do(func() {
						failed = err
						close(stop)
					})
				}
			}
		})
	}
feed:
	for _, j := range all {
		select {
		case jobs <- j:
		case <-stop:
			break feed
		}
	}
	close(jobs)
	wg.Wait()
	return failed
}
