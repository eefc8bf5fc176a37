package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// kubeadmTimeout bounds one run of kubeadm, which connects to nothing here.
	kubeadmTimeout = time.Minute
	// parallelImages bounds how many images are resolved at a time.
	parallelImages = 8
)

// kubeadmImages returns kubeadm's own list of images for its version, which it must have.
// repository replaces that of kubeadm's images if it is not empty.
func kubeadmImages(ctx context.Context, kubeadm *releaseProgram, version, repository string) ([]string, error) {
	is, err := runKubeadm(ctx, kubeadm, "version", "-o", "short")
	if err != nil {
		return nil, err
	}
	if is = strings.TrimSpace(is); is != version {
		return nil, console.UsageErrorf("kubernetes %s: kubeadm from %s is %.40q. Name a place with programs of that release with --kubernetes-from, or use kubernetes:%.40s", version, kubeadm.origin, is, is)
	}
	args := []string{"config", "images", "list", "--kubernetes-version", version}
	if repository != "" {
		args = append(args, "--image-repository", repository)
	}
	list, err := runKubeadm(ctx, kubeadm, args...)
	if err != nil {
		return nil, err
	}
	images, err := parseImageList(list)
	if err != nil {
		return nil, fmt.Errorf("images of kubeadm from %s: %w", kubeadm.origin, err)
	}
	return images, nil
}

// parseImageList reads image references, one a line.
func parseImageList(list string) ([]string, error) {
	var out []string
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, _, err := oci.ParseName(line)
		if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, errors.New("its list is empty")
	}
	return out, nil
}

// runKubeadm returns the standard output of a run. kubeadm gets no proxy and no
// configuration: a version that is given needs neither.
func runKubeadm(ctx context.Context, p *releaseProgram, args ...string) (string, error) {
	file, err := filepath.Abs(p.path)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, kubeadmTimeout, fmt.Errorf("it did not end within %v", kubeadmTimeout))
	defer cancel()
	c := exec.CommandContext(ctx, file, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err == nil {
		return string(out), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, text.Tail(strings.TrimSpace(string(failed.Stderr)), 300))
	}
	return "", fmt.Errorf("run kubeadm %s of %s: %w", strings.Join(args, " "), p.origin, err)
}

// Kinds of sources that may have the images.
const (
	mirrorKind  = "docker"
	layoutKind  = "oci"
	archiveKind = "oci-archive"
)

// imagePlace is where images are read from, if not from the registry in their names.
type imagePlace struct {
	// prefix of the names that it is for, "" for all others.
	prefix     string
	kind, path string
}

type imagePlaces []imagePlace

// parseImagePlaces reads the values of --kubernetes-images.
func parseImagePlaces(values []string) (imagePlaces, error) {
	var out imagePlaces
	for _, s := range values {
		p, err := parseImagePlace(s)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o imagePlace) bool { return o.prefix == p.prefix }) {
			return nil, console.UsageErrorf("--kubernetes-images %s: the same images have two places. Write PREFIX=SOURCE for different images", s)
		}
		out = append(out, p)
	}
	return out, nil
}

func parseImagePlace(s string) (imagePlace, error) {
	var p imagePlace
	source := s
	for _, kind := range []string{mirrorKind, layoutKind, archiveKind} {
		if i := strings.Index(s, "="+kind+":"); i > 0 {
			p.prefix, source = strings.TrimSuffix(s[:i], "/"), s[i+1:]
		}
	}
	p.kind, p.path, _ = strings.Cut(source, ":")
	switch {
	case p.kind == mirrorKind:
		p.path = strings.TrimSuffix(strings.TrimPrefix(p.path, "//"), "/")
	case p.kind != layoutKind && p.kind != archiveKind:
		return p, console.UsageErrorf("--kubernetes-images %s: write docker://HOST/PATH for a mirror, oci:DIR for an OCI image layout or oci-archive:FILE", s)
	case strings.Contains(p.path, ":"):
		return p, console.UsageErrorf("--kubernetes-images %s: name the whole layout, without an image; its path must have no colon", s)
	}
	if p.path == "" {
		return p, console.UsageErrorf("--kubernetes-images %s: the place is missing. Write for example docker://registry.example/kubernetes", s)
	}
	return p, nil
}

// placeOf is the place with the longest prefix of a name, nil for the name's own registry.
func (l imagePlaces) placeOf(name string) *imagePlace {
	var best *imagePlace
	for i := range l {
		p := &l[i]
		if (p.prefix == "" || strings.HasPrefix(name, p.prefix+"/") || oci.Repository(name) == p.prefix) && (best == nil || len(p.prefix) > len(best.prefix)) {
			best = p
		}
	}
	return best
}

// references are those under which a mirror may have an image. First the path below the
// prefix, or below the registry of the name. Then the last part alone, as kubeadm names the
// images of its own imageRepository.
func (p *imagePlace) references(name string) []string {
	repository := oci.Repository(name)
	tag := strings.TrimPrefix(name, repository)
	_, rest, _ := strings.Cut(repository, "/")
	if p.prefix != "" {
		rest = strings.TrimPrefix(strings.TrimPrefix(repository, p.prefix), "/")
	}
	first := strings.TrimSuffix(p.path+"/"+rest, "/") + tag
	short := p.path + "/" + path.Base(repository) + tag
	if rest == "" || short == first {
		return []string{first}
	}
	return []string{first, short}
}

// sources are the sources of a bundle for images, each under its own name. Images of mirrors
// are resolved to their digests, so that all that are missing can be named at once.
func (l imagePlaces) sources(ctx context.Context, names []string) ([]string, error) {
	registries, err := oci.NewRegistries()
	if err != nil {
		return nil, err
	}
	out, missing := make([]string, len(names)), make([]string, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelImages)
	for i, name := range names {
		place := l.placeOf(name)
		switch {
		case place == nil:
			out[i] = mirrorKind + "://" + name
		case place.kind != mirrorKind:
			out[i] = place.kind + ":" + place.path + ":" + name
		default:
			g.Go(func() (err error) {
				out[i], missing[i], err = place.resolve(ctx, registries, name)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	missing = slices.DeleteFunc(missing, func(s string) bool { return s == "" })
	if len(missing) > 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("%s missing in the mirror: %s. Copy them there, or name another place with --kubernetes-images PREFIX=SOURCE",
			text.Count(len(missing), "image"), strings.Join(missing, "; ")))
	}
	return out, nil
}

// resolve finds an image in a mirror: its source, or where it is missing.
func (p *imagePlace) resolve(ctx context.Context, registries *oci.Registries, name string) (source, missing string, err error) {
	all := p.references(name)
	for _, ref := range all {
		root, err := registries.Open(ctx, ref)
		if err == nil {
			ref, _, _ = strings.Cut(ref, "@")
			return name + "=" + mirrorKind + "://" + ref + "@" + root.Desc.Digest.String(), "", nil
		}
		var said *transport.Error
		if !errors.As(err, &said) || said.StatusCode != http.StatusNotFound {
			return "", "", err
		}
	}
	return "", fmt.Sprintf("%s (not at %s)", name, strings.Join(all, ", ")), nil
}
