package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// shared is the one cluster that all tests of this package use.
var shared struct {
	once     sync.Once
	lab      *lab.Lab
	err      error
	stateDir string
	before   machineState
	inside   []string // namespaces of the lab
}

// sharedName differs between two runs of these tests at once.
var sharedName = fmt.Sprintf("test-%d", os.Getpid())

func TestMain(m *testing.M) {
	status := m.Run()
	if shared.stateDir != "" {
		if err := endShared(); err != nil {
			fmt.Fprintln(os.Stderr, "taking down the shared lab, whose supervisor was killed:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// endShared takes the cluster down the hard way: its supervisor is killed first.
func endShared() error {
	dir := filepath.Join(shared.stateDir, sharedName)
	down := ticksNow()
	if p, err := supervisor.LoadProcess(dir); err == nil && p.Alive() {
		if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := lab.DownIn(ctx, sharedName, shared.stateDir); err != nil {
		return err
	}
	if left := leftBehind(dir, shared.before, shared.inside, down); left != "" {
		return fmt.Errorf("left behind: %s", left)
	}
	return os.RemoveAll(shared.stateDir)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a lab is made of namespaces, mounts and loop devices")
	}
	if testing.Short() {
		t.Skip("a lab takes about a minute: left out by -short")
	}
	if err := lab.Preflight(); err != nil {
		t.Skip("this machine cannot run a lab: ", err)
	}
}

// cluster is the shared lab, made when first asked for.
func cluster(t *testing.T) *lab.Lab {
	t.Helper()
	needsRoot(t)
	shared.once.Do(func() {
		if shared.stateDir, shared.err = os.MkdirTemp("/var/tmp", "refit-lab-test-"); shared.err != nil {
			return
		}
		shared.before = look()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		shared.lab, shared.err = lab.Up(ctx, lab.Options{Name: sharedName, StateDir: shared.stateDir, Progress: func(line string) {
			fmt.Fprintln(os.Stderr, line)
		}})
		if shared.err == nil {
			shared.inside, shared.err = namespaces(ctx, shared.lab)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.lab
}

// patience is how long anything may take on a machine that is busy with other things.
const patience = 4 * time.Minute

func timeLimit(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, l *lab.Lab) *kubernetes.Clientset {
	t.Helper()
	config, err := l.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func output(t *testing.T, l *lab.Lab, node string, argv ...string) string {
	t.Helper()
	out, err := l.Output(timeLimit(t, patience), node, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// eventually asks until the answer is "", or fails with the last answer.
func eventually(t *testing.T, limit time.Duration, ask func(ctx context.Context) string) {
	t.Helper()
	ctx := timeLimit(t, limit)
	for {
		missing := ask(ctx)
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(missing)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func TestUpMakesAClusterWhereNothingLeaves(t *testing.T) {
	l := cluster(t)
	nodes, err := client(t, l).CoreV1().Nodes().List(timeLimit(t, patience), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := components.Versions()
	got := map[string]string{}
	for _, n := range nodes.Items {
		got[n.Name] = n.Status.NodeInfo.KubeletVersion
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				t.Errorf("node %s is not Ready: %s", n.Name, c.Message)
			}
		}
	}
	newest := versions[len(versions)-1]
	if diff := cmp.Diff(map[string]string{"n1": newest, "n2": newest, "n3": newest}, got); diff != "" {
		t.Error("nodes (-want +got):", diff)
	}
	for _, node := range l.Nodes() {
		if route := output(t, l, node, "ip", "route", "show", "default"); !strings.HasPrefix(route, "default via 10.88.0.1 ") {
			t.Errorf("%s: default route %q does not end in the lab's own switch", node, route)
		}
		if comm := output(t, l, node, "cat", "/proc/1/comm"); comm != "systemd" {
			t.Errorf("%s: pid 1 is %q", node, comm)
		}
	}
	if flags := output(t, l, "n1", "cat", "/etc/kubernetes/manifests/etcd.yaml"); strings.Contains(flags, "no-fsync") {
		t.Error("etcd runs without fsync")
	}
}

// The count is 0 while a cluster is made and runs, and it can rise: an image
// pull by name asks for the name, one by address sends packets.
func TestADeliberatePullIsCounted(t *testing.T) {
	l := cluster(t)
	ctx := timeLimit(t, patience)
	count := func() supervisor.Outside {
		o, err := l.RegistryRequests(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := count()
	if before.Packets != 0 || before.Questions != 0 || before.Lost != 0 {
		t.Errorf("before any pull: %+v", before)
	}
	pull := func(image string) {
		if err := l.Exec(ctx, "n2", nil, nil, nil, "timeout", "10", "ctr", "-n", "k8s.io", "images", "pull", image); err == nil {
			t.Errorf("pulling %s worked: the node has a way out", image)
		}
	}
	pull("registry.k8s.io/absent:1")
	byName := count()
	if byName.Questions == 0 {
		t.Errorf("the question for registry.k8s.io was not counted: %+v", byName)
	}
	pull("192.0.2.1/absent:1")
	byAddress := count()
	if byAddress.Packets <= byName.Packets {
		t.Errorf("packets to 192.0.2.1 were not counted: %+v", byAddress)
	}
	var seen []string
	for _, a := range byAddress.Details {
		seen = append(seen, a.From+" "+a.Kind+" "+a.To)
	}
	for _, want := range []string{"10.88.0.12 dns registry.k8s.io", "10.88.0.12 tcp 192.0.2.1:443"} {
		if !strings.Contains(strings.Join(seen, "\n"), want) {
			t.Errorf("details without %q: %q", want, seen)
		}
	}
}

func TestADeploymentAnswersOnItsServiceAddressAndByName(t *testing.T) {
	l := cluster(t)
	c := client(t, l)
	ctx := timeLimit(t, patience)
	two := int32(2)
	labels := map[string]string{"app": "answer"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "answer"}, Spec: appsv1.DeploymentSpec{
		Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: components.AppRepository + ":v1", ImagePullPolicy: corev1.PullNever,
			Env:            []corev1.EnvVar{{Name: "LISTEN", Value: ":8080"}},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}},
		}}}},
	}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "answer"}, Spec: corev1.ServiceSpec{Selector: labels,
		ClusterIP: "10.96.0.80", Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	if _, err := c.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range l.Nodes() {
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, node, network, address)
		}
		web := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		eventually(t, patience, func(context.Context) string {
			r, err := web.Get("http://10.96.0.80/")
			if err != nil {
				return node + ": " + err.Error()
			}
			defer r.Body.Close()
			body, _ := io.ReadAll(r.Body)
			if !strings.HasPrefix(string(body), "v1 answer-") {
				return node + " got " + string(body)
			}
			return ""
		})
		names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, "udp", "10.96.0.10:53")
		}}
		eventually(t, patience, func(ctx context.Context) string {
			ask, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			found, err := names.LookupHost(ask, "answer.default.svc.cluster.local.")
			if err != nil || len(found) != 1 || found[0] != "10.96.0.80" {
				return fmt.Sprintf("%s: the service's name gives %v, %v", node, found, err)
			}
			return ""
		})
	}
}

func TestExecRunsInsideTheNode(t *testing.T) {
	l := cluster(t)
	ctx := timeLimit(t, patience)
	var out, complaint bytes.Buffer
	err := l.Exec(ctx, "n3", strings.NewReader("hello"), &out, &complaint, "sh", "-c", "cat; hostname; echo oh >&2; exit 7")
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 7 {
		t.Errorf("exit status 7 came back as %v", err)
	}
	if out.String() != "hellon3\n" || complaint.String() != "oh\n" {
		t.Errorf("got %q and %q", out.String(), complaint.String())
	}
	for line := range strings.Lines(output(t, l, "n3", "cat", "/proc/self/cgroup")) {
		if group := strings.TrimSpace(line); !strings.HasSuffix(group, ":/") {
			t.Errorf("the command is in group %q, not in the node's", group)
		}
	}
	if err := l.Exec(ctx, "n9", nil, nil, nil, "true"); err == nil || !strings.Contains(err.Error(), `no node "n9"`) {
		t.Errorf("a node that does not exist: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := l.Exec(short, "n3", nil, nil, nil, "sleep", "4711"); err == nil {
		t.Error("a command outlived its context")
	}
	eventually(t, patience, func(context.Context) string { // it is killed, and ends a moment later
		return output(t, l, "n3", "sh", "-c", "pgrep -x sleep -a | grep 4711 || true")
	})
}

func TestARebootIsOne(t *testing.T) {
	l := cluster(t)
	for name, again := range map[string]func(context.Context, string) error{"n3": l.Reboot, "n2": l.Crash} {
		boot, id := output(t, l, name, "cat", "/proc/sys/kernel/random/boot_id"), output(t, l, name, "cat", "/etc/machine-id")
		if err := again(timeLimit(t, patience), name); err != nil {
			t.Fatal(err)
		}
		after := output(t, l, name, "cat", "/proc/sys/kernel/random/boot_id")
		if after == boot {
			t.Errorf("%s: boot id %s did not change", name, boot)
		}
		if now := output(t, l, name, "cat", "/etc/machine-id"); now != id {
			t.Errorf("%s: machine id changed from %s to %s", name, id, now)
		}
		if started := unitStart(t, l, name, "kubelet.service"); started < unitStart(t, l, name, "containerd.service") {
			t.Errorf("%s: kubelet started before containerd", name)
		}
		c := client(t, l)
		eventually(t, patience, func(ctx context.Context) string {
			n, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if n.Status.NodeInfo.BootID != after {
				return name + " does not report its new boot id"
			}
			return ""
		})
		if err := l.WaitReady(timeLimit(t, patience)); err != nil {
			t.Fatal(err)
		}
	}
}

// unitStart is when the unit became active, in microseconds since the boot.
func unitStart(t *testing.T, l *lab.Lab, node, unit string) int64 {
	t.Helper()
	text := output(t, l, node, "systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", unit)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at == 0 {
		t.Fatalf("%s: start of %s: %q", node, unit, text)
	}
	return at
}
