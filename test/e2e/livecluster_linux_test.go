package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// liveObjects are workloads of several kinds. The CronJob never starts a Job by itself.
const liveObjects = `apiVersion: v1
kind: Namespace
metadata: {name: live}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: live}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      initContainers: [{name: setup, image: "REGISTRY/live/setup:1", command: [/usr/local/bin/kube-proxy, --version]}]
      containers: [{name: web, image: "REGISTRY/live/web:2", env: [{name: LISTEN, value: ":8080"}]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe, namespace: live}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 2
      tolerations: [{operator: Exists}]
      containers: [{name: probe, image: "REGISTRY/live/probe:3", env: [{name: LISTEN, value: ":8080"}]}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: live}
spec:
  schedule: "0 0 31 2 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: nightly, image: "REGISTRY/live/nightly:4", command: [/coredns, -version]}]
`

// TestLiveCluster makes a bundle of what runs in a cluster. After its registry is gone, every
// node loses power and the whole store of its runtime. Everything that ran restarts from
// the bundle, and a CronJob that had no pod starts one.
func TestLiveCluster(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("two nodes lose their images and come back: make e2e")
	}
	s := start(t, "livecluster", 2)
	keepStory(t, "livecluster.json")
	ctx := t.Context()
	mirror := registrytest.Start(t)
	step(t, "workloads of several kinds run", func(t *testing.T) { liveWorkloads(t, s, mirror) })
	var b scenario.Bundle
	step(t, "a bundle is made of what runs, and the registry goes", func(t *testing.T) {
		b = liveBundle(t, s, mirror)
		mirror.Stop()
		measured(t, "bundle", map[string]any{"bytes": b.Size, "images": len(b.Images)})
	})
	step(t, "every node holds, pins and copies it", func(t *testing.T) {
		device, err := s.Insert(ctx, s.MediumNode, b)
		must(t, err)
		must(t, s.Install(ctx, b, device))
		must(t, s.Approve(ctx, b))
		copied(t, s)
		for _, n := range s.Lab.Nodes() {
			holdsAll(t, s, n, b)
		}
		must(t, s.Eject(ctx, s.MediumNode, device))
	})
	cut := time.Now()
	step(t, "every node loses power and its images, and everything that ran runs again", func(t *testing.T) { liveRestart(t, s) })
	step(t, "the CronJob's Job starts", func(t *testing.T) {
		must(t, s.Exec(ctx, "n1", "kubectl", "-n", "live", "create", "job", "now", "--from=cronjob/nightly"))
		eventually(t, 2*time.Minute, "the Job succeeds", func() (bool, string) {
			var j batchv1.Job
			err := s.Client.Get(ctx, client.ObjectKey{Namespace: "live", Name: "now"}, &j)
			return err == nil && j.Status.Succeeded == 1, fmt.Sprintf("%+v %v", j.Status, err)
		})
	})
	step(t, "no pod pulled an image, and no packet left the lab", func(t *testing.T) {
		liveNoPull(t, s, cut)
		noRequestForARegistry(t, s)
		out, err := s.Outside(ctx)
		must(t, err)
		measured(t, "outside", out)
	})
}

// liveWorkloads puts images into the registry and into every node, and starts the workloads.
func liveWorkloads(t *testing.T, s *scenario.Scenario, mirror *registrytest.Server) {
	ctx := t.Context()
	var web, probe components.Image
	for version, to := range map[string]*components.Image{"live-web": &web, "live-probe": &probe} {
		app, err := components.App(ctx, version, func(line string) { t.Log(line) })
		must(t, err)
		*to = app
	}
	release := func(name string) components.Image {
		i := slices.IndexFunc(s.FromRelease().Images, func(i components.Image) bool { return strings.Contains(i.Name, "/"+name+":") })
		return s.FromRelease().Images[i]
	}
	for name, image := range map[string]components.Image{"setup:1": release("kube-proxy"), "web:2": web, "probe:3": probe, "nightly:4": release("coredns")} {
		repository, tag, _ := strings.Cut("live/"+name, ":")
		mirror.PushArchive(repository, image.Archive, tag)
		for _, n := range s.Lab.Nodes() {
			archive, err := os.Open(image.Archive)
			must(t, err)
			err = s.Lab.Exec(ctx, n, archive, io.Discard, newLog(t), "ctr", "-n", "k8s.io", "images", "import", "-")
			archive.Close()
			must(t, err)
			must(t, s.Exec(ctx, n, "ctr", "-n", "k8s.io", "images", "tag", "--force", image.Name, mirror.Addr+"/live/"+name))
		}
	}
	objects := strings.ReplaceAll(liveObjects, "REGISTRY", mirror.Addr)
	must(t, s.Lab.Exec(ctx, "n1", strings.NewReader(objects), io.Discard, newLog(t), "kubectl", "apply", "-f", "-"))
	eventually(t, 2*time.Minute, "the workloads run", func() (bool, string) {
		ready, not := livePods(t, s)
		of := slices.DeleteFunc(ready, func(p string) bool { return !strings.HasPrefix(p, "live/") })
		return len(of) == 4 && len(not) == 0, fmt.Sprint(of, " not ready: ", not)
	})
}

// liveBundle makes a bundle of what runs, with refit itself.
func liveBundle(t *testing.T, s *scenario.Scenario, mirror *registrytest.Server) scenario.Bundle {
	ctx, dir := t.Context(), t.TempDir()
	key, err := s.Key(ctx, "keys")
	must(t, err)
	must(t, officialDirectory(dir, s.FromRelease()))
	for _, image := range s.FromRelease().Images {
		name, tag, _ := strings.Cut(strings.TrimPrefix(image.Name, "registry.k8s.io/"), ":")
		mirror.PushArchive("kubernetes/"+name, image.Archive, tag)
	}
	mirror.PushArchive("kubernetes/app", s.AppImage(), "v1")
	file, host := s.Path("live.bundle"), strings.TrimSuffix(components.AppRepository, "/app")
	for _, args := range [][]string{
		{"self-image", "--output", s.Path("image")},
		{"bundle", "create", "--output", file, "--key", key, "--name", "live", "--version", "1.0.0",
			"oci:" + s.Path("image"), "payload:refit-agent=" + filepath.Join(filepath.Dir(s.Refit), "refit-agent"), "cluster:",
			"--kubernetes-from", dir, "--kubernetes-images", "registry.k8s.io=docker://" + mirror.Addr + "/kubernetes",
			"--kubernetes-images", host + "=docker://" + mirror.Addr + "/kubernetes"},
	} {
		if r, err := s.Run(ctx, args...); err != nil || r.Code != 0 {
			t.Fatalf("refit %s: exit code %d, %v: %s", strings.Join(args, " "), r.Code, err, r.Stderr)
		}
	}
	b, err := s.Inspect(ctx, file)
	must(t, err)
	for _, name := range []string{"setup:1", "web:2", "probe:3", "nightly:4"} {
		if b.Images[mirror.Addr+"/live/"+name] == "" {
			t.Errorf("the bundle has no %s", name)
		}
	}
	return b
}

// liveRestart cuts the power of all nodes at one time. Their next start finds no images.
func liveRestart(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	before, _ := livePods(t, s)
	boots := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		must(t, s.Lab.WriteFile(ctx, n, "/etc/systemd/system/lab-once.service", []byte(onceUnit), 0o644))
		must(t, s.Lab.WriteFile(ctx, n, "/root/once.sh", []byte("rm -rf /var/lib/containerd/*\n"), 0o644))
		must(t, s.Exec(ctx, n, "sh", "-c", "systemctl daemon-reload && systemctl enable lab-once && touch /var/lib/lab-once && sync"))
		boots[n] = bootOf(t, s, n)
	}
	began, ended := time.Now(), make(chan error, len(boots))
	for n := range boots {
		go func() { ended <- s.Lab.Crash(ctx, n) }()
	}
	for range boots {
		must(t, <-ended)
	}
	allReady(t, s, boots)
	measured(t, "readySeconds", int(time.Since(began).Seconds()))
	after, not := livePods(t, s)
	for _, p := range before {
		if !slices.Contains(after, p) {
			t.Errorf("pod %s ran before, and does not run again (not ready: %v)", p, not)
		}
	}
	for n := range boots {
		if _, err := s.Output(ctx, n, "test", "!", "-e", "/var/lib/lab-once"); err != nil {
			t.Errorf("the store of %s was not wiped, so this shows nothing: %v", n, err)
		}
	}
}

// livePods are the pods whose containers are all ready, and the others.
func livePods(t *testing.T, s *scenario.Scenario) (ready, not []string) {
	t.Helper()
	var pods corev1.PodList
	must(t, s.Client.List(t.Context(), &pods))
	for _, p := range pods.Items {
		name := p.Namespace + "/" + p.Name
		if len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready }) {
			ready = append(ready, name)
		} else {
			not = append(not, name)
		}
	}
	return ready, not
}

// liveNoPull: the events of no pod tell of a pull. Until its node holds refit's image, the second
// controller of an installation asks for it: that was before the cut.
func liveNoPull(t *testing.T, s *scenario.Scenario, cut time.Time) {
	t.Helper()
	var events corev1.EventList
	must(t, s.Client.List(t.Context(), &events))
	present := 0
	for _, e := range events.Items {
		if e.Reason == "Pulled" {
			present++
		}
		if strings.HasPrefix(e.InvolvedObject.Name, "refit-controller-") && e.LastTimestamp.Time.Before(cut) {
			continue
		}
		refused := slices.ContainsFunc(refusals, func(word string) bool { return strings.Contains(e.Reason+" "+e.Message, word) })
		if e.Reason == "Pulling" || refused {
			t.Errorf("%s (%d times until %s) %s/%s: %s: %s", e.InvolvedObject.Kind, e.Count, e.LastTimestamp.UTC().Format(time.RFC3339), e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	if present == 0 {
		t.Error("no event tells of an image, so this shows nothing")
	}
}
