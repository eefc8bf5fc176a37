package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

// StaticPod is one manifest of the node.
type StaticPod struct {
	// Name of the pod without the node's name, for example kube-apiserver.
	Name      string
	Namespace string
	// Containers with their images.
	Containers []StaticContainer
}

// StaticContainer is one container of a static pod.
type StaticContainer struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
}

// Flag is the value of --name=value in the container's command, "" if absent.
func (c StaticContainer) Flag(name string) string {
	for _, a := range append(append([]string{}, c.Command...), c.Args...) {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// StaticPods reads the manifests in a directory, sorted by name. A directory
// that is not there holds none.
func StaticPods(dir string) ([]StaticPod, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("static pods: %w", err)
	}
	var out []StaticPod
	for _, e := range entries {
		if !isManifest(e) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("static pods: %w", err)
		}
		var m struct {
			Metadata struct{ Name, Namespace string }       `json:"metadata"`
			Spec     struct{ Containers []StaticContainer } `json:"spec"`
		}
		if err := yaml.Unmarshal(b, &m); err != nil {
			return nil, fmt.Errorf("static pod %s: %w", e.Name(), err)
		}
		if m.Metadata.Name == "" {
			continue
		}
		out = append(out, StaticPod{Name: m.Metadata.Name, Namespace: m.Metadata.Namespace, Containers: m.Spec.Containers})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// isManifest: the kubelet passes over directories and files that begin with a
// dot.
func isManifest(e fs.DirEntry) bool {
	ext := filepath.Ext(e.Name())
	return !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// APIServer is the name of the API server's static pod.
const APIServer = "kube-apiserver"

// Find is the pod of a name, nil if there is none.
func Find(pods []StaticPod, name string) *StaticPod {
	for i := range pods {
		if pods[i].Name == name && len(pods[i].Containers) > 0 {
			return &pods[i]
		}
	}
	return nil
}

// Tag of an image name, "" if it has none.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return ""
}

// LocalAPIServer is the URL of this node's API server, "" if it has none.
func LocalAPIServer(pods []StaticPod) string {
	p := Find(pods, APIServer)
	if p == nil {
		return ""
	}
	host, port := p.Containers[0].Flag("advertise-address"), p.Containers[0].Flag("secure-port")
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "6443"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "https://" + host + ":" + port
}
