package components

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func TestAnArchiveIsTheSameEveryTimeAndReadableByOthers(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := imageSpec{name: "example.test/a/b:v1", entrypoint: "/usr/bin/b", env: []string{"X=1"}, files: map[string]entry{
		"usr/bin/b": {source: program}, "usr/bin/c": {link: "b"}, "etc/passwd": {data: []byte("root\n"), mode: 0o600}}}
	var archives [2][]byte
	for i := range archives {
		path := filepath.Join(dir, "image.tar")
		if err := writeArchive(path, spec); err != nil {
			t.Fatal(err)
		}
		archives[i], _ = os.ReadFile(path)
		if err := os.Chtimes(program, time.Now(), time.Now().Add(-time.Duration(i+1)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
	root := filepath.Join(dir, "layout")
	untar(t, archives[0], root)
	index, err := layout.ImageIndexFromPath(root)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if name := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != spec.name {
		t.Errorf("the archive is called %q", name)
	}
	image, err := index.Image(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"linux", runtime.GOARCH, "/usr/bin/b", searchPath, "X=1"},
		append([]string{config.OS, config.Architecture}, append(config.Config.Entrypoint, config.Config.Env...)...)); diff != "" {
		t.Error("config (-want +got):", diff)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"etc/", "etc/passwd", "tmp/", "usr/", "usr/bin/", "usr/bin/b", "usr/bin/c"}
	if diff := cmp.Diff(want, names(t, content)); diff != "" {
		t.Error("layer (-want +got):", diff)
	}
}

func untar(t *testing.T, archive []byte, root string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(r)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, archive io.Reader) []string {
	t.Helper()
	var all []string
	r := tar.NewReader(archive)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h.Name)
	}
}

func TestEveryReleaseOfTheTableCanBeAskedFor(t *testing.T) {
	for _, version := range versions(true) {
		k, err := find(version)
		if err != nil {
			t.Fatal(err)
		}
		files, err := moduleFiles(kubernetesSet(k))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"k8s.io/kubernetes " + version, "go.etcd.io/etcd/server/v3 v" + strings.TrimSuffix(k.etcdTag, "-0")} {
			if !strings.Contains(string(files["go.mod"]), want) {
				t.Errorf("the module of %s does not require %q", version, want)
			}
		}
	}
	if _, err := find("v1.0.0"); err == nil || !strings.Contains(err.Error(), "choose one of") {
		t.Errorf("an unknown release: %v", err)
	}
	for _, s := range []set{containerdSet(), cniSet(), corednsSet(), kineSet(), ownSet(), clusterAPISet()} {
		if files, err := moduleFiles(s); err != nil || len(files["go.mod"]) == 0 {
			t.Errorf("%s has no module: %v", s.name, err)
		}
	}
}

func TestArchivesAreNamedByTheLastPartOfTheRepository(t *testing.T) {
	for reference, want := range map[string]string{
		"registry.k8s.io/coredns/coredns:v1.14.2": "coredns.tar",
		"registry.k8s.io/pause:3.10.2":            "pause.tar",
	} {
		if got := archiveName(reference); got != want {
			t.Errorf("%s is kept as %s, want %s", reference, got, want)
		}
	}
}

func TestTwoBuildersDoNotCollide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	err := locked(t.Context(), path, nil, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := func(string) { cancel() } // the second one reports that it waits
		return locked(ctx, path, waiting, func() error { return errors.New("two at once") })
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the second builder: %v", err)
	}
	if err := locked(t.Context(), path, nil, func() error { return nil }); err != nil {
		t.Errorf("the lock was not released: %v", err)
	}
}

func TestAFailedBuildSaysWhyAndLeavesNothing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	s := ownSet()
	s.binaries = []binary{{name: "nothing", pkg: "./nothing"}}
	dir, err := build(t.Context(), s, nil)
	if err == nil || !strings.Contains(err.Error(), "building nothing of own (1/1)") {
		t.Fatalf("got %v", err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBuildsDoNotDependOnTheCallersSettings(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=vendor -tags=x")
	t.Setenv("GOWORK", "/somewhere/go.work")
	t.Setenv("CGO_ENABLED", "1")
	env := strings.Join(goEnv(false), "\n") + "\n"
	for _, want := range []string{"CGO_ENABLED=0\n", "GOFLAGS=-mod=readonly\n", "GOWORK=off\n"} {
		if strings.Count(env, want[:strings.Index(want, "=")+1]) != 1 || !strings.Contains(env, want) {
			t.Errorf("environment does not have %q exactly once", want)
		}
	}
}
