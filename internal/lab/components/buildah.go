package components

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// BuildahName is the name of the image with buildah.
const BuildahName = "example.test/buildah:1"

// buildahPackages are the Debian packages that the image with buildah is made of.
var buildahPackages = []Package{
	{"buildah", "/usr/bin/buildah"},
	{"uidmap", "/usr/bin/newuidmap"},
}

// Capabilities of the programs by which a user without any makes its user namespace.
const (
	capSetgid = 1 << 6
	capSetuid = 1 << 7
)

// Buildah is an image with Debian's buildah for builds of Containerfiles in a pod
// without privileges, as root or as user 1000, who may use 50,000 more user numbers.
func Buildah(ctx context.Context, progress Progress) (Image, error) {
	if names := missing(buildahPackages); len(names) > 0 {
		return Image{}, fmt.Errorf("missing Debian packages for an image with buildah: %[1]s; install them: apt-get install -y --no-install-recommends %[1]s", strings.Join(names, " "))
	}
	files := map[string]entry{
		"etc/passwd":                     {data: []byte("root:x:0:0:root:/root:/bin/sh\nbuild:x:1000:1000::/home/build:/bin/sh\n"), mode: 0o644},
		"etc/group":                      {data: []byte("root:x:0:\nbuild:x:1000:\n"), mode: 0o644},
		"etc/subuid":                     {data: []byte("build:10000:50000\n"), mode: 0o644},
		"etc/subgid":                     {data: []byte("build:10000:50000\n"), mode: 0o644},
		"etc/containers/policy.json":     {data: []byte(`{"default":[{"type":"insecureAcceptAnything"}]}` + "\n"), mode: 0o644},
		"etc/containers/registries.conf": {data: []byte("unqualified-search-registries = []\n"), mode: 0o644},
		"var/tmp":                        {folder: true, mode: 0o1777},
		"home/build":                     {folder: true, mode: 0o777},
	}
	for _, name := range []string{"proc", "sys", "dev", "run", "root"} {
		files[name] = entry{folder: true, mode: 0o755}
	}
	for _, name := range []string{"buildah", "newuidmap", "newgidmap", "mount", "cat", "chmod", "cp", "grep", "head", "id", "ls", "mkdir", "rm", "sleep", "tail", "true"} {
		if err := addProgram(files, name); err != nil {
			return Image{}, err
		}
	}
	for name, bit := range map[string]byte{"newuidmap": capSetuid, "newgidmap": capSetgid} {
		e := files["usr/bin/"+name]
		e.capability = bit
		files["usr/bin/"+name] = e
	}
	images, err := pack(ctx, "buildah", []imageSpec{{name: BuildahName, entrypoint: "/usr/bin/buildah", files: files}}, progress)
	if err != nil {
		return Image{}, err
	}
	return images[0], nil
}

// Shell are a shell with its libraries, by their paths in an image and where they are
// on this machine: what RUN of a Containerfile needs of its base. They are
// /usr/bin/dash and, below usr, what it loads.
func Shell() (map[string]string, error) {
	files := map[string]entry{}
	if err := addProgram(files, "dash"); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, e := range files {
		if e.source != "" {
			out[name] = e.source
		}
	}
	return out, nil
}

// addProgram adds a program of this machine with its libraries, and a shell. All are
// below usr, the target of the root's links.
func addProgram(files map[string]entry, name string) error {
	for _, program := range []string{name, "dash"} {
		source, err := filepath.EvalSymlinks(filepath.Join("/usr/bin", program))
		if err != nil {
			return fmt.Errorf("a program for the image with buildah: %w", err)
		}
		found := map[string]entry{}
		if err := addLibraries(found, source); err != nil {
			return err
		}
		files["usr/bin/"+program] = entry{source: source}
		for path, e := range found {
			if !strings.HasPrefix(path, "usr/") {
				path = "usr/" + path
			}
			files[path] = e
		}
	}
	files["usr/bin/sh"] = entry{link: "dash"}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		files[dir] = entry{link: "usr/" + dir}
	}
	return nil
}
