package components

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/refit-dev/refit/internal/distribution"
)

// LookAlikes are the distributions of which the lab has a look-alike.
var LookAlikes = []string{distribution.K3s, distribution.RKE2, distribution.K0s}

// LookAlike is a program that stands in for a build of a distribution.
type LookAlike struct {
	// Version is that of the build, as v1.35.4+k3s1.
	Version string
	// Program carries all parts.
	Program string
	// Release has the images.
	Release *Kubernetes
}

// ForLookAlike builds, or finds built, the look-alike of a distribution at a version.
func ForLookAlike(ctx context.Context, version string, progress Progress) (*LookAlike, error) {
	b := distribution.SplitVersion(version)
	if !slices.Contains(LookAlikes, b.Distribution) || b.Number == "" {
		return nil, fmt.Errorf("version %q: the lab has look-alikes of %v, with versions like v1.35.4+k3s1, v1.35.4+rke2r1 and v1.35.4+k0s.0", version, LookAlikes)
	}
	release, err := Release(ctx, b.Release, progress)
	if err != nil {
		return nil, err
	}
	node, err := ForNodes(ctx, progress)
	if err != nil {
		return nil, err
	}
	k, err := find(b.Release)
	if err != nil {
		return nil, err
	}
	named, err := build(ctx, namedSet(k, reported(b, version)), progress)
	if err != nil {
		return nil, err
	}
	own, err := build(ctx, lookAlikeSet(b, version), progress)
	if err != nil {
		return nil, err
	}
	from := map[string][]string{
		named:              {"kubelet", "kube-apiserver"},
		release.BinDir:     {"kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kubeadm", "etcd"},
		node.ContainerdDir: {"containerd", "containerd-shim-runc-v2", "ctr"},
	}
	if err := addKine(ctx, from, b, progress); err != nil {
		return nil, err
	}
	parts := map[string]entry{}
	for dir, names := range from {
		for _, name := range names {
			parts[name] = entry{source: filepath.Join(dir, name)}
		}
	}
	program, err := packParts(ctx, filepath.Join(own, "lookalike"), b.Distribution, parts, progress)
	return &LookAlike{Version: version, Program: program, Release: release}, err
}

// reported is the version that kubelet and API server of a build report.
func reported(b distribution.Build, version string) string {
	if row, _ := distribution.ByName(b.Distribution); row.ReleaseHidden {
		return b.Release + "+" + b.Distribution
	}
	return version
}

// addKine adds what k3s alone has.
func addKine(ctx context.Context, from map[string][]string, b distribution.Build, progress Progress) error {
	if b.Distribution != distribution.K3s {
		return nil
	}
	dir, err := build(ctx, kineSet(), progress)
	from[dir] = []string{"kine"}
	return err
}

// namedSet are the programs whose version nodes and the API server report.
func namedSet(k kubernetes, version string) set {
	k.version = version
	s := kubernetesSet(k)
	s.binaries = slices.DeleteFunc(s.binaries, func(b binary) bool { return b.name != "kubelet" && b.name != "kube-apiserver" })
	return s
}

func lookAlikeSet(b distribution.Build, version string) set {
	return set{name: "look-alike-" + version, sources: "_lookalike", binaries: []binary{{name: "lookalike", pkg: "."}},
		ldflags: fmt.Sprintf("-s -w -X main.face=%s -X main.version=%s -X main.release=%s", b.Distribution, version, b.Release)}
}

// packParts appends the parts to the program: a compressed tar, its digest, its length.
func packParts(ctx context.Context, program, name string, parts map[string]entry, progress Progress) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "look-alikes", name+"-"+key(fingerprint(parts), fingerprint(map[string]entry{name: {source: program}})))
	to := filepath.Join(dir, name)
	if exists(to) {
		return to, nil
	}
	return to, locked(ctx, dir+".lock", progress, func() error {
		progress.say("packing the look-alike of %s ...", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		return appendParts(to, program, parts)
	})
}

func appendParts(to, program string, parts map[string]entry) error {
	out, err := os.OpenFile(to+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := copyInto(out, program); err != nil {
		return err
	}
	hash, size := sha256.New(), counter(0)
	if err := writeParts(io.MultiWriter(out, hash, &size), parts); err != nil {
		return fmt.Errorf("packing the parts of a look-alike: %w", err)
	}
	if _, err := fmt.Fprintf(out, "%s%016x", hex.EncodeToString(hash.Sum(nil)), int64(size)); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(to+".part", to)
}

func writeParts(to io.Writer, parts map[string]entry) error {
	zip, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	for _, name := range sortedKeys(parts) {
		st, err := os.Stat(parts[name].source)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: st.Size()}); err != nil {
			return err
		}
		if err := copyInto(w, parts[name].source); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return zip.Close()
}

func copyInto(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}
