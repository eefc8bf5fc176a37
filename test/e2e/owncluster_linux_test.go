package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// TestYourOwnCluster types the commands of docs/how-to/your-own-cluster.md, as they stand
// there, for a kubeadm cluster that was made without refit. The release is in a directory,
// and its images in a registry. The bundle reaches the nodes as a file on a FAT32 stick.
//
// Replaced are only names that each reader replaces too: the mirror's host, the directory of
// the stick, and its device. Nodes of the lab have no ssh, and the lab has no internet. So
// `refit install` gets the lab's remote shell, and commands that would read from the internet
// get the directory and the mirror.
func TestYourOwnCluster(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a whole update by hand takes long: make e2e")
	}
	s := start(t, "own", 3)
	keepStory(t, "owncluster.json")
	dir := t.TempDir()
	release, err := components.Release(t.Context(), to, func(line string) { t.Log(line) })
	must(t, err)
	for _, r := range []*components.Kubernetes{release, s.FromRelease()} {
		must(t, officialDirectory(filepath.Join(dir, "release"), r))
	}
	mirror := registrytest.Start(t)
	for _, image := range slices.Concat(release.Images, s.FromRelease().Images) { // those of the running release are for cluster:
		name, tag, _ := strings.Cut(strings.TrimPrefix(image.Name, "registry.k8s.io/"), ":")
		mirror.PushArchive("kubernetes/"+name, image.Archive, tag)
	}
	mirror.PushArchive("kubernetes/app", s.AppImage(), "v1")
	must(t, applications(mirror, dir))
	bin, err := filepath.Abs("../../bin")
	must(t, err)
	must(t, os.Symlink(filepath.Join(bin, "refit-agent"), filepath.Join(dir, "refit-agent")))
	if r, err := s.Run(t.Context(), "self-image", "--output", filepath.Join(dir, "refit-image")); err != nil || r.Code != 0 {
		t.Fatalf("self-image: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	blocks := pageBlocks(t, "../../docs/how-to/your-own-cluster.md")
	if len(blocks) != 6 {
		t.Fatalf("the page has %d blocks of commands, want 6", len(blocks))
	}
	places := strings.NewReplacer("mirror.example", mirror.Addr, "/media/stick", filepath.Join(dir, "stick"))
	internet := " --kubernetes-from release --kubernetes-images docker://" + mirror.Addr + "/kubernetes --kubernetes-images " +
		strings.TrimSuffix(components.AppRepository, "/app") + "=docker://" + mirror.Addr + "/kubernetes"
	// Each bundle replaces the one before: the one with the chart is carried.
	create := strings.Join([]string{blocks[0], blocks[1], blocks[3], blocks[2], blocks[4]}, "\n")
	must(t, os.Mkdir(filepath.Join(dir, "stick"), 0o755))
	site := typist{t: t, dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.Lab.Kubeconfig())}

	var said string
	step(t, "bundles are made from a directory, a mirror, what runs, a chart and manifests", func(t *testing.T) {
		for _, line := range strings.Split(places.Replace(create), "\n") {
			switch {
			case strings.HasPrefix(line, "refit bundle images cluster:"):
				line += " --kubernetes-from release"
			case strings.Contains(line, " kubernetes:v") && !strings.Contains(line, "--kubernetes-from"):
				line += internet
			}
			said += site.types(line)
		}
		for _, word := range []string{components.AppRepository + ":v1", mirror.Addr + "/monitoring/server:3.1", mirror.Addr + "/network/agent:1.7", "registry.k8s.io/kube-apiserver:" + to} {
			if !strings.Contains(said, word) {
				t.Errorf("the commands never said %q", word)
			}
		}
	})
	mirror.Stop() // the site has none
	b, err := s.Inspect(t.Context(), filepath.Join(dir, "release.bundle"))
	must(t, err)
	measured(t, "bundle", map[string]any{"bytes": b.Size, "images": len(b.Images)})
	var device string
	step(t, "the file is copied to a FAT32 stick", func(t *testing.T) {
		image := s.Path("stick.img")
		must(t, fatMedium(image, filepath.Join(dir, "stick"), b.Size))
		device, err = s.InsertFile(t.Context(), "n1", image)
		must(t, err)
	})
	before := imageBytes(t, s)
	step(t, "refit is installed from it, and the cluster is updated", func(t *testing.T) {
		line := strings.ReplaceAll(blocks[5], "/dev/sdX", device)
		for line := range strings.SplitSeq(line, "\n") {
			switch {
			case strings.HasPrefix(line, "refit install"):
				line += ` --rsh "` + s.Rsh() + `"`
			case line == "refit apply":
				line = `script -qec "refit apply" /dev/null <<< y`
			}
			said += site.types(line)
		}
		for _, word := range []string{"Start this update? [y/N]", "3 of 3 nodes are at 1.36.3"} {
			if !strings.Contains(said, word) {
				t.Errorf("the commands never said %q", word)
			}
		}
	})
	step(t, "workers hold no image that only control planes need", func(t *testing.T) {
		apiServer := "registry.k8s.io/kube-apiserver:" + to
		use := map[string]nodeBytes{}
		for node, bytes := range imageBytes(t, s) {
			use[node] = nodeBytes{Before: before[node], After: bytes}
			held, err := s.Held(t.Context(), node, b, apiServer)
			must(t, err)
			if control := node == s.Lab.Nodes()[0]; held != control {
				t.Errorf("node %s holds %s: %v, want %v", node, apiServer, held, control)
			}
		}
		measured(t, "imageBytesOfNodes", use)
	})
	step(t, "the nodes run the release, and no packet left the lab", func(t *testing.T) {
		for _, n := range s.Lab.Nodes() {
			if v, ready, err := s.Kubelet(t.Context(), n); err != nil || v != to || !ready {
				t.Errorf("node %s: kubelet %s, ready %v, %v", n, v, ready, err)
			}
			held, err := s.Held(t.Context(), n, b, mirror.Addr+"/monitoring/server:3.1")
			must(t, err)
			if !held {
				t.Errorf("node %s does not have the chart's image", n)
			}
		}
		out, err := s.Outside(t.Context())
		must(t, err)
		measured(t, "outside", out)
	})
}

// nodeBytes is what images take on a node's disk before and after an update: what containerd
// fetched and what it unpacked.
type nodeBytes struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// imageBytes is what images take on the disk of each node now.
func imageBytes(t *testing.T, s *scenario.Scenario) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, n := range s.Lab.Nodes() {
		out, err := s.Output(t.Context(), n, "du", "-s", "--block-size=1", "/var/lib/containerd")
		must(t, err)
		size, _, _ := strings.Cut(out, "\t")
		all[n], err = strconv.ParseInt(size, 10, 64)
		must(t, err)
	}
	return all
}

// typist runs lines of a page in one directory.
type typist struct {
	t   *testing.T
	dir string
	env []string
}

// types runs one line with bash and returns what it printed.
func (p typist) types(line string) string {
	p.t.Helper()
	if strings.TrimSpace(line) == "" {
		return ""
	}
	c := exec.CommandContext(p.t.Context(), "bash", "-c", line)
	c.Dir, c.Env = p.dir, p.env
	var out bytes.Buffer
	c.Stdout = io.MultiWriter(&out, newLog(p.t))
	c.Stderr = c.Stdout
	if err := c.Run(); err != nil {
		p.t.Fatalf("$ %s\n%v\n%s", line, err, out.String())
	}
	return out.String()
}

// pageBlocks are the commands of a page, block by block, without their comments.
func pageBlocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	var blocks []string
	for i, part := range strings.Split("\n"+string(text), "\n```") {
		commands, ok := strings.CutPrefix(part, "sh\n")
		if i%2 == 0 || !ok {
			continue
		}
		var lines []string
		for line := range strings.SplitSeq(commands, "\n") {
			line, _, _ = strings.Cut(line, "  #")
			lines = append(lines, strings.TrimSpace(line))
		}
		blocks = append(blocks, strings.Join(lines, "\n"))
	}
	return blocks
}

// officialDirectory has the programs of a release as the release server has them, with
// checksums.
func officialDirectory(dir string, k *components.Kubernetes) error {
	dir = filepath.Join(dir, k.Version, "bin/linux", runtime.GOARCH)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
		if err := os.Symlink(filepath.Join(k.BinDir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
		out, err := exec.Command("sha256sum", filepath.Join(k.BinDir, name)).Output()
		if err != nil {
			return err
		}
		sum, _, _ := strings.Cut(string(out), " ")
		if err := os.WriteFile(filepath.Join(dir, name+".sha256"), []byte(sum), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// applications are the chart and the manifests that the page names. Their images are in the mirror.
func applications(mirror *registrytest.Server, dir string) error {
	platform := []string{"linux/" + runtime.GOARCH}
	mirror.Push("monitoring/server", registrytest.Image{Version: "3.1", Platforms: platform}, "3.1")
	mirror.Push("monitoring/alertmanager", registrytest.Image{Version: "0.9", Platforms: platform}, "0.9")
	mirror.Push("network/agent", registrytest.Image{Version: "1.7", Platforms: platform}, "1.7")
	files := map[string]string{
		"monitoring/Chart.yaml":  "apiVersion: v2\nname: monitoring\nversion: 1.0.0\n",
		"monitoring/values.yaml": "registry: registry.invalid\nalertmanager: {enabled: false}\n",
		"values.yaml":            "registry: " + mirror.Addr + "\n",
		"monitoring/templates/server.yaml": deploymentOf("server", `{{ .Values.registry }}/monitoring/server:3.1`) +
			"{{- if .Values.alertmanager.enabled }}\n---\n" + deploymentOf("alertmanager", `{{ .Values.registry }}/monitoring/alertmanager:0.9`) + "{{- end }}\n",
		"network.yaml": deploymentOf("network", mirror.Addr+"/network/agent:1.7"),
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func deploymentOf(name, image string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: main, image: %[2]q}]}
`, name, image)
}

// fatMedium makes the image of a stick with one FAT32 partition and the files of a directory.
func fatMedium(image, dir string, need int64) error {
	const start = 2048 // sectors before the partition
	kib := (need+need/8)>>10 + 64<<10
	script := fmt.Sprintf(`set -e
truncate -s %[1]dK %[2]q
mkfs.vfat -F 32 -n STICK --offset %[3]d %[2]q %[4]d
mcopy -s -Q -i %[2]q@@%[5]d %[6]q/* ::/
`, kib+start/2, image, start, kib, start*512, dir)
	c := exec.Command("bash", "-c", script)
	c.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "MTOOLS_SKIP_CHECK=1")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("making the stick: %w: %s", err, out)
	}
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const table, fat32 = 446, 0x0c // of the master boot record; FAT32 with addresses of blocks
	record := make([]byte, 512-table)
	record[4] = fat32
	binary.LittleEndian.PutUint32(record[8:], start)
	binary.LittleEndian.PutUint32(record[12:], uint32(kib*2))
	record[len(record)-2], record[len(record)-1] = 0x55, 0xaa
	_, err = f.WriteAt(record, table)
	return err
}
