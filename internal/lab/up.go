package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// completeName is the file that says a lab was made to the end.
const completeName = "complete"

// bringUpLimit bounds how long a lab may take to come up once everything is
// built. It takes half a minute on two free cores.
const bringUpLimit = 20 * time.Minute

// ErrUp says that the lab is already there.
type ErrUp struct{ Name string }

func (e ErrUp) Error() string {
	return fmt.Sprintf("lab %s is up already: use it, or take it down first with `refit-lab down --name %s`", e.Name, e.Name)
}

// parts is what the lab is built of.
type parts struct {
	release *components.Kubernetes
	node    *components.Node
	crio    *components.CRIO // nil if no node has it
	// lookAlike stands in for a distribution; nil on kubeadm nodes.
	lookAlike *components.LookAlike
	apps      []components.Image
}

// Up creates a lab. It first removes an unfinished lab, or one whose supervisor died.
// After a failure the lab stays, so that its logs can be read; Down removes it.
func Up(ctx context.Context, options Options) (*Lab, error) {
	o, err := options.complete()
	if err != nil {
		return nil, err
	}
	if err := Preflight(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, o.StateDir, o.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(o.StateDir, o.Name)
	if isUp(dir) {
		return nil, ErrUp{o.Name}
	}
	p, err := gatherParts(ctx, o)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	say := func(format string, args ...any) {
		o.Progress(fmt.Sprintf("%5.1f s  ", time.Since(start).Seconds()) + fmt.Sprintf(format, args...))
	}
	if err := takeDown(ctx, dir); err != nil {
		return nil, fmt.Errorf("taking away what is left of an earlier lab: %w", err)
	}
	l, err := prepare(ctx, o, dir, p)
	if err != nil {
		return nil, err
	}
	if err := kernel.RaiseLimits(ctx); err != nil {
		return nil, fmt.Errorf("raising a limit of the machine: %w", err)
	}
	say("disks of %d nodes made", o.Nodes)
	if err := l.bringUp(ctx, o, p, say); err != nil {
		return nil, fmt.Errorf("%w\n(the lab stays, so that you can read its logs; `refit-lab down --name %s` removes it)", err, o.Name)
	}
	return l, os.WriteFile(filepath.Join(dir, completeName), nil, 0o644)
}

func isUp(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, completeName)); err != nil {
		return false
	}
	p, err := supervisor.LoadProcess(dir)
	return err == nil && p.Alive()
}

func gatherParts(ctx context.Context, o Options) (parts, error) {
	var p parts
	var err error
	if p.release, err = components.Release(ctx, distribution.SplitVersion(o.Version).Release, o.Progress); err != nil {
		return p, err
	}
	if o.Distribution != "" {
		if p.lookAlike, err = components.ForLookAlike(ctx, o.Version, o.Progress); err != nil {
			return p, err
		}
	}
	if p.node, err = components.ForNodes(ctx, o.Progress); err != nil {
		return p, err
	}
	if len(o.crioNodes()) > 0 {
		if p.crio, err = components.ForCRIO(ctx, o.Progress); err != nil {
			return p, err
		}
	}
	for _, v := range o.AppVersions {
		app, err := components.App(ctx, v, o.Progress)
		if err != nil {
			return p, err
		}
		p.apps = append(p.apps, app)
	}
	return p, nil
}

// prepare writes everything a supervisor needs: settings, disks, programs, control groups.
func prepare(ctx context.Context, o Options, dir string, p parts) (*Lab, error) {
	config := &supervisor.Config{Name: o.Name, Version: o.Version, Distribution: o.Distribution, Group: groupOf(dir), Gateway: gateway + "/24",
		Endpoint: nodeAddress(1) + ":6443", Inside: []string{nodeNetwork, podNetwork, ServiceNetwork}, ImageHosts: o.ImageHosts}
	for number := 1; number <= o.Nodes; number++ {
		config.Nodes = append(config.Nodes, nodeName(number))
	}
	config.ControlPlanes = config.Nodes[:o.ControlPlanes]
	for _, number := range o.crioNodes() {
		config.CRIO = append(config.CRIO, nodeName(number))
	}
	config.Later = slices.Clone(config.Nodes[o.Nodes-o.Later:])
	if o.ControlPlanes > 1 {
		config.Endpoint = gateway + ":6443"
	}
	l := &Lab{Name: o.Name, Dir: dir, Config: config}
	programs := filepath.Join(dir, "programs")
	if err := linkPrograms(programs, p); err != nil {
		return nil, err
	}
	disks, ctx := errgroup.WithContext(ctx)
	for number := 1; number <= o.Nodes; number++ {
		m := newMachine(l, number, programs, p)
		m.OSImage = o.osImage(number)
		if err := os.MkdirAll(m.Dir, 0o700); err != nil {
			return nil, err
		}
		if err := m.Save(); err != nil {
			return nil, err
		}
		if err := kernel.CreateCgroup(m.Group); err != nil {
			return nil, err
		}
		disks.Go(func() error { return machine.MakeDisk(ctx, m.Disk, o.diskSize(m.Name)) })
	}
	return l, disks.Wait()
}

func newMachine(l *Lab, number int, programs string, p parts) *machine.Machine {
	name := nodeName(number)
	m := &machine.Machine{Name: name, Number: number, Dir: l.nodeDir(name), Disk: filepath.Join(l.nodeDir(name), "disk.img"),
		Group: filepath.Join(l.Config.Group, name), Address: nodeAddress(number) + "/24", Gateway: gateway, PodCIDR: podCIDR(number),
		Programs: filepath.Join(programs, l.Runtime(name)), Runtime: l.Runtime(name), CNIDir: p.node.CNIDir, Pause: p.release.Pause().Name}
	if p.lookAlike != nil {
		m.Supervised, m.Programs = true, filepath.Join(programs, l.Config.Distribution)
	}
	for other := 1; other <= len(l.Config.Nodes); other++ {
		if other != number {
			m.Peers = append(m.Peers, machine.Peer{Name: nodeName(other), Address: nodeAddress(other), PodCIDR: podCIDR(other)})
		}
	}
	return m
}

// linkPrograms collects what is in /usr/local/bin of every node, by its
// runtime: a node has no program of another. The nodes share these files:
// nothing is copied, and the kernel keeps each only once.
func linkPrograms(dir string, p parts) error {
	if p.lookAlike != nil {
		return linkLookAlike(dir, p.lookAlike)
	}
	kubernetes := map[string]string{}
	for _, name := range []string{"kubelet", "kubeadm", "kubectl"} {
		kubernetes[name] = filepath.Join(p.release.BinDir, name)
	}
	programs := map[string]map[string]string{RuntimeContainerd: maps.Clone(kubernetes)}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs[RuntimeContainerd][name] = filepath.Join(p.node.ContainerdDir, name)
	}
	if p.crio != nil {
		programs[RuntimeCRIO] = kubernetes
		for _, name := range []string{"crio", "pinns"} {
			kubernetes[name] = filepath.Join(p.crio.Dir, name)
		}
		kubernetes["lab-runc"] = p.crio.Wrapper
	}
	for runtime, files := range programs {
		to := filepath.Join(dir, runtime, "local/bin")
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for name, from := range files {
			if err := machine.LinkOrCopy(from, filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bringUp starts the supervisor and the nodes, and makes the cluster.
func (l *Lab) bringUp(ctx context.Context, o Options, p parts, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, bringUpLimit)
	defer cancel()
	if err := l.startSupervisor(); err != nil {
		return err
	}
	if err := l.startNodes(ctx, l.Config.Nodes); err != nil {
		return err
	}
	say("%d nodes started", o.Nodes)
	if o.Bare {
		return nil
	}
	if o.Distribution != "" {
		return l.startDistribution(ctx, o.Datastore, p, say)
	}
	return l.startKubeadm(ctx, o, p, say)
}

// startKubeadm has kubeadm make the cluster.
func (l *Lab) startKubeadm(ctx context.Context, o Options, p parts, say func(string, ...any)) error {
	imported := l.importOnWorkers(ctx, p)
	if err := l.Import(ctx, nodeName(1), p.release.Images...); err != nil {
		return err
	}
	say("images of %s on the control plane", o.Version)
	v, err := l.kubeadmValues()
	if err != nil {
		return err
	}
	if err := l.initialize(ctx, v.of(1, o.ControlPlanes)); err != nil {
		return err
	}
	say("kubeadm init done")
	if err := imported.Wait(); err != nil {
		return err
	}
	if err := l.joinAll(ctx, v); err != nil {
		return err
	}
	say("%d nodes joined", o.Nodes-o.Later-1)
	if err := l.waitReady(ctx, say); err != nil {
		return err
	}
	say("all nodes Ready")
	if err := l.waitAddons(ctx, say); err != nil {
		return err
	}
	say("kube-proxy and CoreDNS ready; KUBECONFIG=%s", l.Kubeconfig())
	return nil
}

// importOnWorkers fills the other nodes while the first becomes a control plane.
func (l *Lab) importOnWorkers(ctx context.Context, p parts) *errgroup.Group {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(2)
	for i, node := range l.Config.Nodes {
		images := p.apps
		switch {
		case i == 0: // its other images are on the way already
		case slices.Contains(l.Config.ControlPlanes, node):
			images = slices.Concat(p.release.Images, p.apps)
		default:
			images = slices.Concat(p.release.OnEveryNode(), p.apps)
		}
		all.Go(func() error { return l.Import(ctx, node, images...) })
	}
	return all
}

func (l *Lab) startNodes(ctx context.Context, nodes []string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for _, name := range nodes {
		all.Go(func() error { return l.PowerOn(ctx, name) })
	}
	return all.Wait()
}

// startSupervisor starts the process that outlives this one. The listener for
// the API server is opened here, in the machine's own network, and handed on:
// the supervisor itself lives in a network of its own.
func (l *Lab) startSupervisor() error {
	if err := kernel.CreateCgroup(filepath.Join(l.Config.Group, "switch")); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	l.Config.Listen = listener.Addr().String()
	if err := l.Config.Save(l.Dir); err != nil {
		return err
	}
	handed, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer handed.Close()
	log, err := os.Create(filepath.Join(l.Dir, supervisor.LogName))
	if err != nil {
		return err
	}
	defer log.Close()
	ready, readyThere, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{supervisorProcess, l.Dir}, Dir: "/", Env: []string{machine.SearchPath, "HOME=/root"},
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{handed, readyThere},
		SysProcAttr: ownNetwork()}
	err = cmd.Start()
	readyThere.Close()
	if err != nil {
		return fmt.Errorf("starting the lab's supervisor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // no zombie in a program that lives on
	why, err := io.ReadAll(ready)
	if err != nil {
		return err
	}
	if len(why) > 0 {
		return fmt.Errorf("the lab's supervisor could not start: %s", strings.TrimSpace(string(why)))
	}
	return nil
}
