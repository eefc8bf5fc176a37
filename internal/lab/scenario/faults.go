package scenario

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/components"
)

// fillFile takes a node's room.
const fillFile = "/var/lib/refit-test-fill"

// Exec runs a command in a node; its output is in the error.
func (s *Scenario) Exec(ctx context.Context, node string, argv ...string) error {
	_, err := s.Output(ctx, node, argv...)
	return err
}

// Output runs a command in a node and gives its standard output.
func (s *Scenario) Output(ctx context.Context, node string, argv ...string) (string, error) {
	var out, errs bytes.Buffer
	if err := s.Lab.Exec(ctx, node, nil, &out, &errs, argv...); err != nil {
		return out.String(), fmt.Errorf("node %s: %s: %w: %s", node, strings.Join(argv, " "), err, lastLines(errs.String(), 3))
	}
	return out.String(), nil
}

// Fill takes a node's room until only leave bytes are free. Others may write meanwhile: it looks again then.
func (s *Scenario) Fill(ctx context.Context, node string, leave int64) error {
	for tries := 5; ; tries-- {
		out, err := s.Output(ctx, node, "stat", "-f", "-c", "%a %S", "/var/lib")
		if err != nil {
			return err
		}
		var blocks, size int64
		if _, err := fmt.Sscan(out, &blocks, &size); err != nil {
			return fmt.Errorf("node %s: stat says %q: %w", node, out, err)
		}
		err = s.Exec(ctx, node, "fallocate", "-l", strconv.FormatInt(blocks*size-leave, 10), fillFile)
		if err == nil || tries == 1 || !strings.Contains(err.Error(), "No space left") {
			return err
		}
		if err := s.Free(ctx, node); err != nil {
			return err
		}
	}
}

// Free gives the room back.
func (s *Scenario) Free(ctx context.Context, node string) error {
	return s.Exec(ctx, node, "rm", "-f", fillFile)
}

// Held reports whether a node's CRI has an image of the bundle.
func (s *Scenario) Held(ctx context.Context, node string, b Bundle, image string) (bool, error) {
	socket, err := s.socket(node)
	if err != nil {
		return false, err
	}
	digest, ok := b.Images[image]
	if !ok {
		return false, fmt.Errorf("the bundle has no image %s", image)
	}
	held, _, _, err := criImages(ctx, socket, map[string]string{image: digest})
	return held == 1, err
}

// Cordoned reports whether a node is unschedulable.
func (s *Scenario) Cordoned(ctx context.Context, node string) (bool, error) {
	var n corev1.Node
	err := s.Client.Get(ctx, client.ObjectKey{Name: node}, &n)
	return n.Spec.Unschedulable, err
}

// Kubelet is a node's kubelet version, and whether the node is Ready.
func (s *Scenario) Kubelet(ctx context.Context, node string) (version string, ready bool, err error) {
	var n corev1.Node
	if err := s.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return "", false, err
	}
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return n.Status.NodeInfo.KubeletVersion, ready, nil
}

// ReplaceKubelet puts the kubelet of a release into a node behind refit's back,
// and restarts it.
func (s *Scenario) ReplaceKubelet(ctx context.Context, node string, r *components.Kubernetes) error {
	f, err := os.Open(filepath.Join(r.BinDir, "kubelet"))
	if err != nil {
		return err
	}
	defer f.Close()
	const place = `p=$(command -v kubelet) && cat > "$p.new" && chmod 755 "$p.new" && mv "$p.new" "$p" && systemctl restart kubelet`
	return s.Lab.Exec(ctx, node, f, io.Discard, io.Discard, "sh", "-c", place)
}

// WorkloadPods is how many pods of the workload a node has.
func (s *Scenario) WorkloadPods(ctx context.Context, node string) (int, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(workloadNamespace), client.MatchingLabels(workloadLabels()),
		client.MatchingFields{"spec.nodeName": node})
	return len(pods.Items), err
}

// ReadyPods is how many pods of the workload are ready on a node.
func (s *Scenario) ReadyPods(ctx context.Context, node string) (int, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(workloadNamespace), client.MatchingLabels(workloadLabels()),
		client.MatchingFields{"spec.nodeName": node})
	return readyPods(pods.Items), err
}

// KillController kills the process of the controller that leads, on its node.
func (s *Scenario) KillController(ctx context.Context) error {
	var lease coordinationv1.Lease
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}, &lease); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelComponent: "controller"}); err != nil {
		return err
	}
	for _, p := range pods.Items {
		if leads := lease.Spec.HolderIdentity; p.Status.Phase == corev1.PodRunning && (leads == nil || *leads == p.Name) {
			return s.Exec(ctx, p.Spec.NodeName, "pkill", "-9", "-f", "refit-controller")
		}
	}
	return fmt.Errorf("no controller pod leads")
}

// controllerLog prints the end of the controller's log.
func (s *Scenario) controllerLog(ctx context.Context, lines int) {
	s.kubectl(ctx, "-n", v1alpha1.SystemNamespace, "logs", "-l", v1alpha1.LabelComponent+"=controller", fmt.Sprintf("--tail=%d", lines), "--timestamps")
}

// kubectl prints what the cluster's own kubectl answers.
func (s *Scenario) kubectl(ctx context.Context, args ...string) {
	out, err := s.Output(ctx, s.Lab.Nodes()[0], append([]string{"timeout", "20", "kubectl"}, args...)...)
	if err != nil {
		out += err.Error()
	}
	s.report("$ kubectl %s", strings.Join(args, " "))
	fmt.Fprint(indent{s.Out}, out)
}

// SmallBundle makes a bundle of refit's own image and a file that no other
// bundle has; without a key it is not signed.
func (s *Scenario) SmallBundle(ctx context.Context, o BundleOptions) (Bundle, error) {
	file := s.Path(o.File)
	note := s.Path(o.File + ".note")
	if err := os.WriteFile(note, []byte("only in "+o.File+"\n"), 0o600); err != nil {
		return Bundle{}, err
	}
	signed := "--unsigned"
	if o.Key != "" {
		signed = "--key=" + o.Key
	}
	_, err := s.refit(ctx, "bundle", "create", "--output", file, signed, "--name", "demo", "--version", o.Version, "oci:"+s.Path("image"), "payload:note="+note)
	if err != nil {
		return Bundle{}, err
	}
	return s.Inspect(ctx, file)
}

// Altered is a stick with the bundle and one byte changed.
func (s *Scenario) Altered(b Bundle, offset int64) (string, error) {
	medium, err := s.writeMedium(b)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.work, "altered.stick")
	if err := os.Rename(medium, path); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var one [1]byte
	if _, err := f.ReadAt(one[:], offset); err != nil && err != io.EOF {
		return "", err
	}
	one[0] ^= 0xff
	_, err = f.WriteAt(one[:], offset)
	return path, err
}

// Dump prints the state of the lab for debugging.
func (s *Scenario) Dump(ctx context.Context) {
	if s.Lab == nil {
		return
	}
	for _, n := range s.Lab.Nodes() {
		out, err := s.Output(ctx, n, "journalctl", "-u", "refit-agent", "-n", "60", "--no-pager", "-o", "cat")
		s.report("agent of %s (%v):", n, err)
		fmt.Fprint(indent{s.Out}, out)
	}
	s.kubectl(ctx, "get", "refit", "-A")
	s.kubectl(ctx, "get", "pods", "-A", "-o", "wide")
	s.kubectl(ctx, "get", "clusterupdates,bundles", "-o", "yaml")
	s.controllerLog(ctx, 80)
}
