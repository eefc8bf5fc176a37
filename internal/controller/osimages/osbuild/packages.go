package osbuild

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/text"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
)

const (
	// cheapBase is how many bytes of a base's layers are read for its packages.
	cheapBase = 32 << 20
	// mostList bytes of a list, and mostUnpacked of a layer when it is unpacked.
	mostList     = 900 << 10
	mostUnpacked = 512 << 20
	// mostChanges are kept of what differs.
	mostChanges = 100
)

// databases of packages that can be read as text, by their path in an image.
var databases = map[string]func(string) osimage.Packages{
	"var/lib/dpkg/status": osimage.ReadDpkg, "usr/lib/sysimage/dpkg/status": osimage.ReadDpkg, "lib/apk/db/installed": osimage.ReadApk, "usr/lib/apk/db/installed": osimage.ReadApk,
}

// packages records the packages of an image that was made, and what changed since the
// image that a pool has. The status reports an unknown list, and the build does not
// fail because of it.
func (r *Builds) packages(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials, got result) error {
	var builds v1alpha1.OSBuildList
	if err := r.Live.List(ctx, &builds); err != nil {
		return err
	}
	name, list, err := r.list(ctx, b, m, got, builds.Items)
	if err != nil {
		st.PackagesSay = text.Truncate("the packages are not known: "+err.Error(), 1024)
		return ctx.Err()
	}
	content := list.Text()
	if len(content) > mostList {
		st.PackagesSay = fmt.Sprintf("the packages are not kept: their list has %d bytes", len(content))
		return nil
	}
	if name == "" {
		c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentPackages, content)
		if err != nil {
			return err
		}
		name = c.Name
	}
	st.Packages, st.PackageCount = name, int32(strings.Count(content, "\n"))
	st.PackagesSay = fmt.Sprintf("%d packages", st.PackageCount)
	from := priorBuild(b, o, builds.Items)
	if from == nil || from.Status.Packages == "" {
		return nil
	}
	old, err := r.readPackages(ctx, from.Status.Packages)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	changes := list.Changes(old)
	st.PackagesFrom, st.PackagesSay = from.Name, text.Truncate(osimage.SummarizeChanges(changes), 1024)
	for _, c := range changes[:min(len(changes), mostChanges)] {
		st.PackageChanges = append(st.PackageChanges, text.Truncate(c, 512))
	}
	return nil
}

// priorBuild is the build whose image a pool has that wants this one, else the newest of
// the same OSImage.
func priorBuild(b *v1alpha1.OSBuild, o *v1alpha1.OSImage, builds []v1alpha1.OSBuild) *v1alpha1.OSBuild {
	var newest *v1alpha1.OSBuild
	for i := range builds {
		x := &builds[i]
		if x.Name == b.Name || x.Spec.OSImageUID != b.Spec.OSImageUID || x.Status.Phase != v1alpha1.BuildSucceeded {
			continue
		}
		if slices.ContainsFunc(o.Status.Pools, func(p v1alpha1.OSImagePool) bool { return p.Wanted == b.Name && p.Build == x.Name }) {
			return x
		}
		if newest == nil || newest.Status.FinishedAt.Before(x.Status.FinishedAt) {
			newest = x
		}
	}
	return newest
}

func (r *Builds) readPackages(ctx context.Context, name string) (osimage.Packages, error) {
	var c v1alpha1.Content
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c); err != nil {
		return nil, err
	}
	return osimage.ReadPackages(c.Data), nil
}

// list of the packages of an image; name is that of the Content if there is one.
func (r *Builds) list(ctx context.Context, b *v1alpha1.OSBuild, m materials, got result, builds []v1alpha1.OSBuild) (name string, list osimage.Packages, err error) {
	if b.Spec.Builder == string(osimage.Containerfile) {
		list, err = m.written(ctx, b.Spec.Repository, got.packages)
		return "", list, err
	}
	// A layer of configuration installs nothing: the packages are the base's.
	for i := range builds {
		x := &builds[i]
		if x.Spec.Builder == b.Spec.Builder && x.Spec.Base == b.Spec.Base && x.Status.Packages != "" {
			if list, err := r.readPackages(ctx, x.Status.Packages); err == nil {
				return x.Status.Packages, list, nil
			}
		}
	}
	if b.Spec.Output == v1alpha1.OutputNodes {
		return "", nil, errors.New("the base's layers are on the nodes, and are not read for it")
	}
	list, err = m.ofBase(ctx, b.Spec.Base)
	return "", list, err
}

// written reads the list that the Job pushed next to its image, and deletes it.
func (m materials) written(ctx context.Context, repository, digest string) (osimage.Packages, error) {
	if digest == "" {
		return nil, errors.New("the image has none of rpm, dpkg and apk, or the Job could not leave its list")
	}
	from, err := m.registryReader(m.push)
	if err != nil {
		return nil, err
	}
	root, err := from.Open(ctx, repository+"@"+digest)
	if err != nil {
		return nil, err
	}
	layers, err := layersOf(ctx, root)
	if err != nil {
		return nil, err
	}
	var list osimage.Packages
	for _, l := range layers {
		err = eachFile(ctx, root.Store, l, func(name string, text func() (string, error)) (bool, error) {
			if name != "packages" {
				return true, nil
			}
			s, err := text()
			list = osimage.ReadPackages(s)
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the list that the Job left is empty")
	}
	_ = m.registryWriter().Delete(ctx, repository, digest) // a registry that deletes nothing keeps a few kilobytes
	return list, nil
}

// ofBase reads the database of packages in a base, if that costs little. The topmost
// layer that has one counts.
func (m materials) ofBase(ctx context.Context, base string) (osimage.Packages, error) {
	from, err := m.bases()
	if err != nil {
		return nil, err
	}
	root, err := from.Open(ctx, base)
	if err != nil {
		return nil, err
	}
	layers, err := layersOf(ctx, root)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	for _, l := range layers {
		size += l.Size
	}
	if size > cheapBase {
		return nil, fmt.Errorf("the base's layers have %d MB, and are not read for it", size>>20)
	}
	slices.Reverse(layers)
	for _, l := range layers {
		var list osimage.Packages
		err := eachFile(ctx, root.Store, l, func(name string, text func() (string, error)) (bool, error) {
			read := databases[name]
			if read == nil {
				return true, nil
			}
			s, err := text()
			list = read(s)
			return false, err
		})
		if err != nil || len(list) > 0 {
			return list, err
		}
	}
	return nil, errors.New("the base has no database of dpkg or apk; one of rpm is read by a Containerfile build alone")
}

// layersOf an image, or of the first of an index.
func layersOf(ctx context.Context, root oci.Root) ([]ocispec.Descriptor, error) {
	d := root.Desc
	for range 3 {
		raw, err := oci.Fetch(ctx, root.Store, d)
		if err != nil {
			return nil, err
		}
		var doc struct {
			Layers    []ocispec.Descriptor `json:"layers"`
			Manifests []ocispec.Descriptor `json:"manifests"`
		}
		if err := json.Unmarshal(raw, &doc); err != nil {
			return nil, err
		}
		if len(doc.Manifests) == 0 {
			return doc.Layers, nil
		}
		d = doc.Manifests[0]
	}
	return nil, errors.New("an index of indexes")
}

// eachFile of a layer, until see says false. text reads the file at hand.
func eachFile(ctx context.Context, s oci.Store, d ocispec.Descriptor, see func(name string, text func() (string, error)) (bool, error)) error {
	if !strings.HasSuffix(d.MediaType, "gzip") && !strings.HasSuffix(d.MediaType, "tar") {
		return fmt.Errorf("layer %s has media type %s, which is not read", d.Digest, d.MediaType)
	}
	blob, err := s.Open(ctx, d)
	if err != nil {
		return err
	}
	defer blob.Close()
	var in io.Reader = blob
	if strings.HasSuffix(d.MediaType, "gzip") {
		if in, err = gzip.NewReader(blob); err != nil {
			return fmt.Errorf("layer %s: %w", d.Digest, err)
		}
	}
	if err := eachOf(tar.NewReader(io.LimitReader(in, mostUnpacked)), see); err != nil {
		return fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	return nil
}

func eachOf(t *tar.Reader, see func(name string, text func() (string, error)) (bool, error)) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		more, err := see(path.Clean(strings.TrimPrefix(h.Name, "/")), func() (string, error) {
			if h.Size > mostList*8 {
				return "", fmt.Errorf("%s has %d bytes, and is not read", h.Name, h.Size)
			}
			raw, err := io.ReadAll(t)
			return string(raw), err
		})
		if err != nil || !more {
			return err
		}
	}
}
