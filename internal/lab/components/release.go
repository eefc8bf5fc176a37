package components

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Image is a container image as an OCI archive.
type Image struct {
	Name    string // full reference, as kubeadm or a pod spec says it
	Archive string // absolute path of the archive, one uncompressed layer
}

// Kubernetes is one release of Kubernetes, built.
type Kubernetes struct {
	Version string
	// BinDir holds kube-apiserver, kube-controller-manager, kube-scheduler,
	// kubelet, kubeadm, kube-proxy, kubectl and etcd.
	BinDir string
	// Images are those kubeadm of this version wants, under its names.
	Images []Image
}

// Pause is the sandbox image of the release.
func (k *Kubernetes) Pause() Image { return k.image("/pause:") }

// OnEveryNode are the images a node without a control plane needs.
func (k *Kubernetes) OnEveryNode() []Image {
	return []Image{k.Pause(), k.image("/kube-proxy:"), k.image("/coredns:")}
}

func (k *Kubernetes) image(part string) Image {
	for _, i := range k.Images {
		if strings.Contains(i.Name, part) {
			return i
		}
	}
	return Image{}
}

// Node has the programs of a node in addition to Kubernetes, built.
type Node struct {
	ContainerdDir string // containerd, containerd-shim-runc-v2, ctr
	CNIDir        string // bridge, host-local, loopback, portmap
}

// Release builds, or finds built, one of [Versions] with its images.
func Release(ctx context.Context, version string, progress Progress) (*Kubernetes, error) {
	k, err := find(version)
	if err != nil {
		return nil, err
	}
	bin, err := build(ctx, kubernetesSet(k), progress)
	if err != nil {
		return nil, err
	}
	dns, err := build(ctx, corednsSet(), progress)
	if err != nil {
		return nil, err
	}
	own, err := build(ctx, ownSet(), progress)
	if err != nil {
		return nil, err
	}
	specs, err := k.images(bin, dns, own)
	if err != nil {
		return nil, err
	}
	images, err := pack(ctx, k.version, specs, progress)
	return &Kubernetes{Version: k.version, BinDir: bin, Images: images}, err
}

// ForNodes builds, or finds built, the container runtime and network plugins.
func ForNodes(ctx context.Context, progress Progress) (*Node, error) {
	ctd, err := build(ctx, containerdSet(), progress)
	if err != nil {
		return nil, err
	}
	cni, err := build(ctx, cniSet(), progress)
	return &Node{ContainerdDir: ctd, CNIDir: cni}, err
}

// App is the test application: an HTTP server on $LISTEN that answers
// "VERSION HOSTNAME". Its name is AppRepository:version.
func App(ctx context.Context, version string, progress Progress) (Image, error) {
	own, err := build(ctx, ownSet(), progress)
	if err != nil {
		return Image{}, err
	}
	images, err := pack(ctx, "app-"+version, []imageSpec{{name: AppRepository + ":" + version, entrypoint: "/app",
		env: []string{"VERSION=" + version}, files: plain("/app", filepath.Join(own, "app"))}}, progress)
	if err != nil {
		return Image{}, err
	}
	return images[0], nil
}

func (k kubernetes) images(bin, dns, own string) ([]imageSpec, error) {
	program := func(name, tag, path, source string) imageSpec {
		return imageSpec{name: registry + "/" + name + ":" + tag, entrypoint: path, files: plain(path, source)}
	}
	var specs []imageSpec
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		specs = append(specs, program(name, k.version, "/usr/local/bin/"+name, filepath.Join(bin, name)))
	}
	tools, err := filterTools()
	if err != nil {
		return nil, err
	}
	maps.Copy(specs[3].files, tools)
	return append(specs,
		program("etcd", k.etcdTag, "/usr/local/bin/etcd", filepath.Join(bin, "etcd")),
		program("coredns/coredns", k.corednsTag, "/coredns", filepath.Join(dns, "coredns")),
		program("pause", k.pauseTag, "/pause", filepath.Join(own, "pause")),
	), nil
}

// pack writes the images that are not there yet. The directory is named by
// everything that goes in, so it never has to be looked into again.
func pack(ctx context.Context, name string, specs []imageSpec, progress Progress) ([]Image, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, s := range specs {
		parts = append(parts, s.name, s.entrypoint, strings.Join(s.env, ","), fingerprint(s.files))
	}
	dir := filepath.Join(cache, "images", name+"-"+key(parts...))
	images := make([]Image, len(specs))
	for i, s := range specs {
		images[i] = Image{Name: s.name, Archive: filepath.Join(dir, archiveName(s.name))}
	}
	if !slices.ContainsFunc(images, func(i Image) bool { return !exists(i.Archive) }) {
		return images, nil
	}
	return images, locked(ctx, dir+".lock", progress, func() error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		progress.say("packing %d images of %s ...", len(specs), name)
		for i, s := range specs {
			if exists(images[i].Archive) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := writeArchive(images[i].Archive, s); err != nil {
				return fmt.Errorf("packing %s: %w", s.name, err)
			}
		}
		return nil
	})
}

// archiveName is the last part of the repository: registry.k8s.io/coredns/coredns:v1 is coredns.tar.
func archiveName(reference string) string {
	repository := reference[:strings.LastIndex(reference, ":")]
	return repository[strings.LastIndex(repository, "/")+1:] + ".tar"
}
