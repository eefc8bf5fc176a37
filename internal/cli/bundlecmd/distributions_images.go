package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/text"
)

// releaseList is a list of the images of a release.
type releaseList struct {
	*releaseFile
	// images in full, with tag and digest.
	images []string
}

// releaseImages are the images of a release for one architecture.
type releaseImages struct {
	arch  string
	lists []releaseList
	// names are those of the lists; listed has the references as a registry has them.
	names  []string
	listed map[string]string
	// found are the digests of the images in the archives, by name.
	found    map[string]string
	archives []*releaseFile
	// why no archive was found for a part.
	why []error
}

// images returns the sources of the images: the archives, and for images that no archive has
// the registry or a place of --kubernetes-images.
func (r *distributionReader) images(ctx context.Context, arches []string, places imagePlaces) ([]string, error) {
	var all []*releaseImages
	for _, arch := range arches {
		i, err := r.imagesFor(ctx, arch)
		if err != nil {
			return nil, err
		}
		if err := r.checkImages(i); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	missing, err := r.missingImages(all)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		fmt.Fprintf(r.out, "%s: %s in no archive (%s): read from the registry in the name, or from --kubernetes-images\n", r, text.Count(len(missing), "image"), joinReasons(reasonsOf(all)))
	}
	sources, err := places.sources(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		for _, a := range i.archives {
			sources = append(sources, "docker-archive:"+a.path)
		}
	}
	return sources, nil
}

// imagesFor reads the lists and the archives for an architecture.
func (r *distributionReader) imagesFor(ctx context.Context, arch string) (*releaseImages, error) {
	i := &releaseImages{arch: arch, listed: map[string]string{}, found: map[string]string{}}
	var err error
	if i.lists, err = r.lists(ctx, arch); err != nil {
		return nil, err
	}
	for _, l := range i.lists {
		for _, ref := range l.images {
			name, _, _ := oci.ParseName(ref) // lists has parsed it
			if i.listed[name] == "" {
				i.names = append(i.names, name)
			}
			i.listed[name] = ref
		}
	}
	for _, part := range r.partsFor(arch) {
		if err := r.readArchive(ctx, i, part); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// lists reads the lists of all parts.
func (r *distributionReader) lists(ctx context.Context, arch string) ([]releaseList, error) {
	var out []releaseList
	for _, part := range r.partsFor(arch) {
		l, err := r.readList(ctx, arch, part)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, r.checkMark(out)
}

// readList reads the list of a part from the first place that has it.
func (r *distributionReader) readList(ctx context.Context, arch, part string) (releaseList, error) {
	name := r.layout.list(arch, part)
	var why []error
	for _, place := range r.places {
		list, f, err := place.text(ctx, name, r.layout.sums(arch))
		var none *missingError
		if errors.As(err, &none) {
			why = append(why, err)
			continue
		}
		if err != nil {
			return releaseList{}, err
		}
		images, err := parseReleaseList(list)
		if err != nil {
			return releaseList{}, fmt.Errorf("%s: list of images %s: %w", r, f.origin, err)
		}
		return releaseList{f, images}, nil
	}
	instead := ""
	if r.layout.makeList != "" {
		instead = ", or write the output of `" + r.layout.makeList + "` of that release to it"
	}
	return releaseList{}, console.UsageErrorf("%s: the list of images is missing: %s. Copy %s from the release%s", r, joinReasons(why), name, instead)
}

// parseReleaseList reads image references, one a line, in full.
func parseReleaseList(list string) ([]string, error) {
	var out []string
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, problem := nameOf(line)
		if problem != "" {
			return nil, errors.New(problem)
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return out, nil
}

// checkMark refuses lists of another release, where an image has its version.
func (r *distributionReader) checkMark(lists []releaseList) error {
	if r.layout.mark == nil {
		return nil
	}
	mark := r.layout.mark(r.version)
	image, _, _ := strings.Cut(mark, ":")
	for _, l := range lists {
		for _, ref := range l.images {
			if strings.HasSuffix(oci.Repository(ref), image) && !strings.HasSuffix(ref, mark) {
				return console.UsageErrorf("%s: list of images %s is of another release: it has %s. Name a place with the files of %s", r, l.origin, ref, r.version)
			}
		}
	}
	return nil
}

// readArchive finds the archive of a part, if a place has it, and the images in it.
func (r *distributionReader) readArchive(ctx context.Context, i *releaseImages, part string) error {
	f, err := r.find(ctx, i.arch, r.layout.archives(r.version, i.arch, part))
	var none *missingError
	if errors.As(err, &none) {
		i.why = append(i.why, err)
		return nil
	}
	if err != nil {
		return err
	}
	roots, c, err := oci.OpenDockerArchive(ctx, f.path, "")
	if err != nil {
		return fmt.Errorf("%s: %s: %w", r, f.origin, err)
	}
	defer c.Close()
	for _, root := range roots {
		i.found[root.Name] = root.Desc.Digest.String()
	}
	i.archives = append(i.archives, f)
	fmt.Fprintf(r.out, "%s: %s for linux/%s from %s (%s)\n", r, text.Count(len(roots), "image"), i.arch, f.origin, f.check)
	return nil
}

// compare returns the names that only the lists have, those that only archives have, and those
// that have another digest in an archive. A further name of a listed image counts as listed.
func (i *releaseImages) compare() (missing, extra, other []string) {
	known := map[string]bool{}
	for _, name := range i.names {
		digest, ok := i.found[name]
		_, want, _ := strings.Cut(i.listed[name], "@")
		switch {
		case !ok:
			missing = append(missing, name)
		case want != "" && want != digest:
			other = append(other, name)
		}
		known[digest] = true
	}
	for _, name := range slices.Sorted(maps.Keys(i.found)) {
		if i.listed[name] == "" && !known[i.found[name]] {
			extra = append(extra, name)
		}
	}
	return missing, extra, other
}

// unverified are the lists without a published checksum.
func (i *releaseImages) unverified() []string {
	var out []string
	for _, l := range i.lists {
		if l.check == notVerified {
			out = append(out, l.origin)
		}
	}
	return out
}

// checkImages compares the archives with the lists. A list without a checksum could be cut off,
// or anyone's: it counts only if verified archives have exactly its images.
func (r *distributionReader) checkImages(i *releaseImages) error {
	missing, extra, other := i.compare()
	unverified := i.unverified()
	switch {
	case len(other) > 0:
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s: the archives for linux/%s have other images under these names than the list: %s. Download both again", r, i.arch, strings.Join(other, ", ")))
	case len(unverified) > 0 && len(missing)+len(extra) > 0:
		return console.WithExit(console.ExitVerification, r.differs(i, unverified[0], missing, extra))
	}
	for _, name := range extra {
		fmt.Fprintf(r.out, "%s: %s is in an archive for linux/%s, but not in the list; it is included\n", r, name, i.arch)
	}
	return nil
}

// differs is the error for a list without a checksum that is not that of the archives.
func (r *distributionReader) differs(i *releaseImages, list string, missing, extra []string) error {
	var says []string
	if len(missing) > 0 {
		says = append(says, "in no archive: "+text.FirstOf(missing, 5, ", "))
	}
	if len(extra) > 0 {
		says = append(says, "not in the list: "+text.FirstOf(extra, 5, ", "))
	}
	if len(i.why) > 0 {
		says = append(says, joinReasons(i.why))
	}
	return fmt.Errorf("%s: %s has no published checksum, so it must have exactly the images of the archives for linux/%s (%s). Name a place with the list and the archives of one release; or put a checksum of the list that you trust into NAME.sha256 next to it, in a directory",
		r, list, i.arch, strings.Join(says, "; "))
}

// missingImages returns the images that no archive has. An image must be in the archives for
// every architecture that lists it, or in none: one name has one image.
func (r *distributionReader) missingImages(all []*releaseImages) ([]string, error) {
	var out, bad []string
	refs, in, without := map[string]string{}, map[string]string{}, map[string]string{}
	for _, i := range all {
		for _, name := range i.names {
			refs[name] = i.listed[name]
			if i.found[name] != "" {
				in[name] = i.arch
			} else {
				without[name] = i.arch
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if in[name] != "" {
			bad = append(bad, fmt.Sprintf("%s (linux/%s has it, linux/%s does not)", name, in[name], without[name]))
			continue
		}
		out = append(out, refs[name])
	}
	if len(bad) > 0 {
		return nil, console.UsageErrorf("%s: archives have images for one platform only: %s. Name places with the archives for all platforms, or for none (%s)", r, strings.Join(bad, ", "), joinReasons(reasonsOf(all)))
	}
	return out, nil
}

// reasonsOf are the reasons why archives are missing.
func reasonsOf(all []*releaseImages) []error {
	var out []error
	for _, i := range all {
		out = append(out, i.why...)
	}
	return out
}
