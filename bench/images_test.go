package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag/audit"
	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/model"
)

const (
	benchPods   = 5000
	benchImages = 500
	benchNodes  = 250
)

func benchDigest(n int) string { return fmt.Sprintf("sha256:%064x", n) }

func benchImage(n int) string { return fmt.Sprintf("registry.example/team-%d/service-%d", n%20, n) }

// imageDump is a cluster as kubectl prints it: 5,000 pods of 500 images on 250
// nodes that report 49 images each; every tenth image has moved on every third
// node.
func imageDump(b *testing.B) []byte {
	b.Helper()
	var out bytes.Buffer
	out.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
	put := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		if out.Len() > 64 {
			out.WriteByte(',')
		}
		out.Write(text)
	}
	for i := range benchNodes {
		put(benchNode(i))
	}
	for i := range benchPods {
		put(benchPod(i))
	}
	out.WriteString("]}")
	return out.Bytes()
}

func benchNode(i int) *corev1.Node {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%03d", i), Labels: map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%03d", i)}}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.2.9", Architecture: "amd64", OSImage: "Debian GNU/Linux 12", KernelVersion: "6.1.0"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for j := range 49 {
		image := (i*7 + j*11) % benchImages
		digest := image
		if image%10 == 0 && i%3 == 0 {
			digest += benchImages // the tag has moved here
		}
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{benchImage(image) + "@" + benchDigest(digest), benchImage(image) + ":1.2.3"}, SizeBytes: 1 << 28})
	}
	return n
}

func benchPod(i int) *corev1.Pod {
	image := i % benchImages
	yes := true
	name := fmt.Sprintf("service-%d", image)
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", image%20), Name: fmt.Sprintf("%s-6d4b75cb6d-%05d", name, i),
		Labels: map[string]string{"app.kubernetes.io/name": name, "pod-template-hash": "6d4b75cb6d"}, Annotations: map[string]string{"note": strings.Repeat("what other programs write here ", 20)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-6d4b75cb6d", Controller: &yes}}}}
	p.Spec.NodeName = fmt.Sprintf("node-%03d", i%benchNodes)
	for j := range 2 {
		ref := benchImage((image + j) % benchImages)
		c := corev1.Container{Name: fmt.Sprint("c", j), Image: ref + ":1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Resources:      corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
			Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}}
		if image%25 == 0 {
			c.ImagePullPolicy = corev1.PullAlways
		}
		for k := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", k), Value: "some value of a usual length"})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: ref + "@" + benchDigest((image+j)%benchImages), Ready: true, Started: &yes})
	}
	return p
}

// cpu reports the processor time of each round next to the time on the wall, which
// on a busy machine is that of others too.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Milliseconds())/float64(b.N), "cpu-ms/op") }
}

// BenchmarkImageReport reads a dump of 5,000 pods and 500 images and makes the
// report, with what a crash and a reboot would do with every container. The
// promise is two seconds: bench/results/images.txt has what it took.
func BenchmarkImageReport(b *testing.B) {
	dump := imageDump(b)
	b.SetBytes(int64(len(dump)))
	lines := 0
	stop := cpu(b)
	for b.Loop() {
		o, err := auditfacts.ReadDump(bytes.NewReader(dump))
		if err != nil {
			b.Fatal(err)
		}
		o.Published = map[string]model.Published{}
		for i := range benchImages {
			o.Published[benchImage(i)+":1.2.3"] = model.Published{Digest: benchDigest(i)}
		}
		f := o.Facts()
		oracle := restartforecast.New(f.Site())
		r := audit.NewReport(audit.Facts{Nodes: f.Nodes, Pods: f.Pods, Published: f.Published, Same: f.Same,
			Restart: func(p *model.ImagePod, u *model.ImageUse) []model.RestartAnswer {
				return []model.RestartAnswer{oracle.Forecast(p, u, restartforecast.Crash, restartforecast.Up), oracle.Forecast(p, u, restartforecast.Reboot, restartforecast.Up)}
			}})
		lines = len(r.Lines)
	}
	stop()
	b.ReportMetric(float64(lines), "lines")
}

// BenchmarkImageReportLimit reads the same JSON and does nothing else.
func BenchmarkImageReportLimit(b *testing.B) {
	dump := imageDump(b)
	b.SetBytes(int64(len(dump)))
	defer cpu(b)()
	for b.Loop() {
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(dump, &list); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForecastAll answers all six events for every container of the same
// cluster.
func BenchmarkForecastAll(b *testing.B) {
	o, err := auditfacts.ReadDump(bytes.NewReader(imageDump(b)))
	if err != nil {
		b.Fatal(err)
	}
	f := o.Facts()
	defer cpu(b)()
	for b.Loop() {
		oracle := restartforecast.New(f.Site())
		n := 0
		for i := range f.Pods {
			for j := range f.Pods[i].Uses {
				n += len(oracle.ForecastAll(&f.Pods[i], &f.Pods[i].Uses[j]))
			}
		}
		b.ReportMetric(float64(n), "answers")
	}
}
